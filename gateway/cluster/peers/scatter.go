package peers

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// hedgeDelayFactor determines when a hedge is made: if a node takes longer for a call than
	// hedgeDelayFactor times its usual latency, other nodes are asked in addition. These additional
	// calls are the hedge. The factor is not 1, because about one call in twenty takes longer than
	// the usual latency. Hedges of all these calls would use up the credit (answersPerHedge) as
	// fast as answers earn it, and leave none for when a node hangs.
	hedgeDelayFactor = 2
	// minHedgeDelay and maxHedgeDelay limit how long after the beginning of a call its hedge is
	// made. minHedgeDelay is longer than short calls usually take, so that a short call causes no
	// hedge if it has to wait for a processor for a moment.
	minHedgeDelay = 5 * time.Millisecond
	maxHedgeDelay = 50 * time.Millisecond
	// answersPerHedge is how many answered calls earn the credit for one hedge. In the long run at
	// most one hedge is made per 20 answered calls, so hedges cannot double the load of a cluster
	// that is slow because it is overloaded (Dean and Barroso, "The Tail at Scale", CACM 2013).
	answersPerHedge = 20
	// maxSavedHedges is for how many hedges credit is saved while none are needed. When a node
	// hangs, each call to it costs one hedge until the node is suspected. That happens when
	// maxOvertaken hedges have been answered: at most maxHedgeDelay, and the time of an answer,
	// after the first of these calls began. 1000 hedges are enough for 20 000 calls per second
	// during 50 ms. A call for which no credit is left is hedged only when the node has used up its
	// time (attemptTimeoutFor).
	maxSavedHedges = 1000
	// maxOvertaken is after how many overtaken calls in a row a node is suspected. A call is
	// overtaken if its hedge is answered first. One overtaken call is no reason for a suspicion,
	// because a healthy node may be slow to answer a single call.
	maxOvertaken = 3
	// minRetryPause is the first pause before all nodes are asked again. Each further pause is
	// retryPauseGrowth times as long, up to maxRetryPause.
	minRetryPause    = 100 * time.Millisecond
	maxRetryPause    = 900 * time.Millisecond
	retryPauseGrowth = 3
)

// AskFunc asks a node about some partitions. indexes are the indexes of these partitions in the
// argument of Scatter, in ascending order. Scatter calls an AskFunc concurrently, even for the same
// partitions, so the AskFunc must not record the answer. Instead the AskFunc returns the function
// keep, which records the answer. Scatter calls keep only when all answers have arrived, and only
// for one answer about each index. If err is not nil, keep may be nil.
type AskFunc func(ctx context.Context, n *Node, indexes []int) (keep func(), err error)

// Scatter asks other nodes about partitions. A partition may be given several times. Scatter
// chooses one node for each partition, and prefers a node that it has already chosen for another
// partition, so that it asks few nodes. It asks all chosen nodes at the same time, each of them
// once about all partitions for which it was chosen.
//
// If a node does not answer, Scatter asks other nodes that serve these partitions. If a node takes
// much longer than usual for the method, Scatter asks other nodes in addition. If no node is left
// for some partition, Scatter pauses and asks again about all partitions, including those that were
// answered, up to three times. It asks again only after an error with the reason NOT_HERE, which is
// also the reason if the nodes could not be reached.
//
// When all answers have arrived, Scatter keeps them, one after another. If an answer is missing,
// Scatter keeps none and returns an error.
func (p *Peers) Scatter(ctx context.Context, procedure string, partitions []uint8, ask AskFunc) error {
	indexes := make([]int, len(partitions))
	for i := range indexes {
		indexes[i] = i
	}

	s := &scatter{p, procedure, partitions, ask}
	var keeps []func()
	err := retryUntilReached(ctx, func() (canRetry bool, err error) {
		keeps, err = s.collectAnswers(ctx, indexes, nil, nil)
		return true, err
	})
	p.countFailure(ctx, err)
	if err != nil {
		return err
	}

	// The functions that keep the answers are all called in this goroutine, so they need no lock.
	for _, keep := range keeps {
		keep()
	}
	return nil
}

// retryUntilReached calls ask. It calls ask again, up to three times with growing pauses, as long
// as ask returns true for canRetry and an error with the reason NOT_HERE. noNodeError gives that
// reason also to the error for nodes that could not be reached. A retry helps if the connection to
// the only node that can answer has broken, or if this node does not know yet which nodes serve a
// partition now.
func retryUntilReached(ctx context.Context, ask func() (canRetry bool, err error)) error {
	canRetry, err := ask()
	for pause := minRetryPause; pause <= maxRetryPause; pause *= retryPauseGrowth {
		if err == nil || !canRetry || apierror.Of(err).Reason != skeinv1.Reason_REASON_NOT_HERE {
			break
		}
		if wait.For(ctx, pause) != nil {
			break // the caller no longer waits
		}
		canRetry, err = ask()
	}
	return err
}

// scatter has the arguments of one call of Scatter.
type scatter struct {
	*Peers
	procedure  string
	partitions []uint8
	ask        AskFunc
}

// collectAnswers asks nodes about the partitions with the given indexes, and returns functions that
// keep the answers. It asks only nodes that are not in tried. lastErr is the error of the node that
// was tried last. lastErr is nil if no node was tried, or if that node is still being asked.
// collectAnswers waits until all nodes have answered or failed, and then returns the first error.
func (s *scatter) collectAnswers(
	ctx context.Context, indexes []int, tried []string, lastErr error,
) ([]func(), error) {
	groups, err := s.assignNodes(indexes, tried, lastErr)
	if err != nil {
		return nil, err
	}
	if len(groups) == 1 {
		return s.askGroup(ctx, groups[0], tried) // the usual case needs no goroutine
	}

	keeps := make([][]func(), len(groups))
	var calls errgroup.Group
	for i, g := range groups {
		calls.Go(func() (err error) {
			keeps[i], err = s.askGroup(ctx, g, tried)
			return err
		})
	}
	err = calls.Wait()
	return slices.Concat(keeps...), err
}

// nodeGroup is a node, and the indexes of the partitions about which it is asked.
type nodeGroup struct {
	node    Node
	indexes []int
	// hasAlternatives says that for each of the partitions there is another node that has not been
	// tried. If it is false, askGroup makes no hedge.
	hasAlternatives bool
}

// assignNodes chooses a node that is not in tried for each partition, and returns one group per
// node. It fails if there is no such node for some partition. lastErr is as in collectAnswers.
func (s *scatter) assignNodes(indexes []int, tried []string, lastErr error) (groups []*nodeGroup, err error) {
	byPartition := map[uint8]*nodeGroup{}
	byName := map[string]*nodeGroup{}
	for _, index := range indexes {
		partition := s.partitions[index]
		g := byPartition[partition]
		if g == nil {
			nodes := s.nodesServing(partition, tried)
			if len(nodes) == 0 {
				return nil, noNodeError(partition, lastErr)
			}

			// Prefer a node that was already chosen for another partition, unless that node is
			// suspected and the first node of this partition is not.
			node := nodes[0]
			chosen := slices.IndexFunc(nodes, func(n Node) bool {
				return byName[n.Name] != nil && s.suspicionRank(n.Name) <= s.suspicionRank(node.Name)
			})
			if chosen >= 0 {
				node = nodes[chosen]
			}

			g = byName[node.Name]
			if g == nil {
				g = &nodeGroup{node: node, hasAlternatives: true}
				byName[node.Name] = g
				groups = append(groups, g)
			}
			g.hasAlternatives = g.hasAlternatives && len(nodes) > 1
			byPartition[partition] = g
		}
		g.indexes = append(g.indexes, index)
	}
	return groups, nil
}

// askGroup asks the node of a group. If the node fails, askGroup asks other nodes instead. If the
// node is slow, askGroup asks other nodes in addition (the hedge). The first call continues
// meanwhile, because the other nodes may not answer either. Whichever of the two ends first with a
// final result (isFinal) stops the other one. A hedge for whose answers this process has no memory
// does not stop the first call, whose answer may need no more memory. Both have ended when askGroup
// returns.
func (s *scatter) askGroup(ctx context.Context, g *nodeGroup, tried []string) ([]func(), error) {
	// Other groups append to the same slice at the same time, so append must make a copy. Clip
	// ensures that.
	tried = append(slices.Clip(tried), g.node.Name)
	start := time.Now()
	limit := attemptTimeoutFor(ctx, g.hasAlternatives)
	delay := s.hedgeDelay(g.node.Name, s.procedure)

	firstCtx, stopFirst := context.WithTimeout(ctx, lastAttemptTimeout)
	defer stopFirst()
	hedgeCtx, stopHedge := context.WithCancel(ctx)
	defer stopHedge()
	// A hedge that has no credit waits until hedgeWaitCtx ends, or until the node has used up its
	// time. hedgeWaitCtx ends with the first call. If the hedge has not begun by then, it is not
	// made: if the first call has failed, askGroup asks the other nodes itself.
	hedgeWaitCtx, endHedgeWait := context.WithCancel(hedgeCtx)
	defer endHedgeWait()

	// The hedge runs in the goroutine of a timer, so that the many calls that are answered in time
	// start no goroutine. Once the timer has fired, only that goroutine may access the next four
	// variables until it has closed hedgeEnded.
	var hasHedged, isHedgeAnswered bool
	var hedgeKeeps []func()
	var hedgeErr error
	hedgeEnded := make(chan struct{})
	timer := time.AfterFunc(delay, func() {
		defer close(hedgeEnded)
		if !g.hasAlternatives {
			return
		}
		// Without credit for a hedge, the other nodes are asked only when the first node has used
		// up its time.
		hasHedged = s.spendHedgeCredit() || wait.For(hedgeWaitCtx, limit-delay) == nil
		if !hasHedged {
			return
		}
		hedgeKeeps, hedgeErr = s.collectAnswers(hedgeCtx, g.indexes, tried, nil)
		isHedgeAnswered = isFinal(hedgeErr) && !errors.Is(hedgeErr, errNoMemory)
		if isHedgeAnswered {
			stopFirst()
		}
	})

	keep, err := s.ask(firstCtx, &g.node, g.indexes)
	wasStopped := firstCtx.Err() != nil // if false, the node has answered or failed by itself
	endHedgeWait()
	if isFinal(err) {
		stopHedge()
		s.recordLatency(g.node.Name, s.procedure, time.Since(start))
	}
	if !timer.Stop() {
		<-hedgeEnded // the timer has fired, so wait until its function has returned
	}

	switch {
	case isHedgeAnswered && !isFinal(err) && wasStopped && time.Since(start) < limit:
		// The hedge has stopped the first call, so the error of that call says nothing about the
		// node. If the node has used up its time, recordResult suspects it instead (next case).
		s.recordOvertaken(g.node.Name, s.procedure)
		return hedgeKeeps, hedgeErr
	case !s.recordResult(ctx, g.node.Name, err):
		return []func(){keep}, err
	case hasHedged:
		// The hedge has already asked the remaining nodes.
		return hedgeKeeps, hedgeErr
	}
	return s.collectAnswers(ctx, g.indexes, tried, err)
}

// hedgeDelay returns how long a node may take for a method before other nodes are asked in
// addition. If no latency of the node is known for the method, it returns maxHedgeDelay.
func (p *Peers) hedgeDelay(name, procedure string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	usual, isKnown := p.usualLatency[nodeMethod{name, procedure}]
	if !isKnown {
		return maxHedgeDelay
	}
	return hedgeDelayFactor * usual
}

// recordLatency records how long a node took to answer a call of a method.
func (p *Peers) recordLatency(name, procedure string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateUsualLatency(nodeMethod{name, procedure}, took)
}

// updateUsualLatency increases the usual latency by 19 % if a call took longer, and decreases it by
// 1 % otherwise. So the usual latency settles where about one in twenty calls takes longer (Robbins
// and Monro, "A Stochastic Approximation Method", 1951). It stays within limits, so that hedgeDelay
// is between minHedgeDelay and maxHedgeDelay. It begins at the upper limit. mu must be held.
func (p *Peers) updateUsualLatency(m nodeMethod, took time.Duration) {
	usual, isKnown := p.usualLatency[m]
	if !isKnown {
		usual = maxHedgeDelay / hedgeDelayFactor
	}
	if took > usual {
		usual += usual * 19 / 100
	} else {
		usual -= usual / 100
	}
	p.usualLatency[m] = min(max(usual, minHedgeDelay/hedgeDelayFactor), maxHedgeDelay/hedgeDelayFactor)
}

// recordOvertaken records that the hedge of a call was answered before the node with this name. It
// suspects the node after maxOvertaken such calls in a row.
//
// How long the node would have taken is not known, but the call counts as one that took longer than
// usual. If overtaken calls did not count, only short calls would determine the usual latency. If
// the node is suspected already, the call counts only as retried. So the usual latency of a node
// that hangs changes little, however many calls wait for the node.
func (p *Peers) recordOvertaken(name, procedure string) {
	p.Calls.Retried.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.suspected[name]
	if time.Now().Before(s.until) {
		return
	}
	// maxHedgeDelay is longer than any usual latency, so the usual latency increases.
	p.updateUsualLatency(nodeMethod{name, procedure}, maxHedgeDelay)
	s.overtakenCalls++
	p.suspected[name] = s
	if s.overtakenCalls >= maxOvertaken {
		p.suspectLocked(name)
	}
}
