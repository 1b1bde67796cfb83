package peers

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// hedgeDelayFactor times the usual latency of a node is how long the node may take before
	// another one is asked in addition (a hedge). About one call in twenty takes longer than the
	// usual latency itself. Hedges of all these calls would use up the credit (answersPerHedge) as
	// fast as answers earn it, and leave none for when a node hangs.
	hedgeDelayFactor = 2
	// minHedgeDelay and maxHedgeDelay are the limits of that time. The lower one is above the
	// latency of short calls, so that processors that are busy for a moment cause no hedges.
	minHedgeDelay = 5 * time.Millisecond
	maxHedgeDelay = 50 * time.Millisecond
	// answersPerHedge limits hedges to one per so many answered calls, so that they cannot double
	// the load of a cluster that is slow because it is overloaded (Dean and Barroso, "The Tail at
	// Scale", CACM 2013).
	answersPerHedge = 20
	// maxSavedHedges is how many hedges are saved up while none are needed. When a node hangs, they
	// are enough for 20 000 calls per second during the at most 50 ms until the node is suspected.
	maxSavedHedges = 1000
	// maxOvertaken is after how many overtaken calls in a row a node is suspected. A call is
	// overtaken if its hedge answers first. A single call may be slow by itself.
	maxOvertaken = 3
	// minRetryPause is the first pause before all nodes are asked again. Each further pause is
	// retryPauseGrowth times as long, up to maxRetryPause.
	minRetryPause    = 100 * time.Millisecond
	maxRetryPause    = 900 * time.Millisecond
	retryPauseGrowth = 3
)

// AskFunc asks a node about some partitions, which are given by their indexes in the argument of
// Scatter. Scatter calls an AskFunc concurrently, even for the same partitions, so the AskFunc must
// not record the answer itself. It returns keep, which does so. Scatter calls keep for only one
// answer about each partition, and only when all answers have arrived.
type AskFunc func(ctx context.Context, n *Node, indexes []int) (keep func(), err error)

// Scatter asks other nodes about partitions. It prefers nodes that it asks anyway, so that it asks
// few nodes. It asks all of them at the same time, and each of them once about all of its
// partitions. If a node does not answer, Scatter asks the next node that serves the partitions. If
// a node is slower than usual for the method, Scatter asks the next node in addition. When no node
// is left, Scatter pauses and asks all nodes again, up to three times, unless the node that was
// asked last has given a reason other than NOT_HERE. When all answers have arrived, Scatter keeps
// them, one after another. If an answer is missing, it keeps none.
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

	// All answers are kept here, in one goroutine, so that the functions that keep them need no
	// lock.
	for _, keep := range keeps {
		keep()
	}
	return nil
}

// retryUntilReached calls ask. It calls ask again, up to three times with growing pauses, as long
// as ask returns true for canRetry and an error with the reason NOT_HERE, which it also returns if
// it cannot reach the nodes. A retry helps if the connection to the only node that can answer has
// broken, or if this node does not know yet which nodes serve a partition now.
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

// collectAnswers returns functions that keep the answers about the partitions with the given
// indexes. It asks only nodes that are not in tried. lastErr is the error of the node that was
// tried last. It is nil if no node was tried, or if that node is still being asked.
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
	// hasAlternatives says that for each of the partitions there is another node to ask.
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

			// Prefer a node that is asked anyway, unless it is suspected and the first node of the
			// partition is not.
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
// node is slow, askGroup asks other nodes in addition (the hedge), and the first call continues
// until the hedge has succeeded, because the other nodes may not answer either. Both calls have
// ended when askGroup returns.
func (s *scatter) askGroup(ctx context.Context, g *nodeGroup, tried []string) ([]func(), error) {
	// Clip makes append copy the slice, to which other groups append at the same time.
	tried = append(slices.Clip(tried), g.node.Name)
	start := time.Now()
	limit := attemptTimeoutFor(ctx, g.hasAlternatives)
	delay := s.hedgeDelay(g.node.Name, s.procedure)

	firstCtx, stopFirst := context.WithTimeout(ctx, lastAttemptTimeout)
	defer stopFirst()
	hedgeCtx, stopHedge := context.WithCancel(ctx)
	defer stopHedge()
	// firstCallCtx ends when the first call has ended. A hedge that still waits for its start then
	// is not made: if the first call has failed, askGroup asks the other nodes itself.
	firstCallCtx, endFirstCall := context.WithCancel(hedgeCtx)
	defer endFirstCall()

	// The hedge runs in the goroutine of a timer, so that the many calls that are answered in time
	// start no goroutine. Only that goroutine may access the next three variables until hedgeEnded
	// is closed.
	var hasHedged bool
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
		hasHedged = s.spendHedgeCredit() || wait.For(firstCallCtx, limit-delay) == nil
		if !hasHedged {
			return
		}
		hedgeKeeps, hedgeErr = s.collectAnswers(hedgeCtx, g.indexes, tried, nil)
		if isFinal(hedgeErr) {
			stopFirst()
		}
	})

	keep, err := s.ask(firstCtx, &g.node, g.indexes)
	wasStopped := firstCtx.Err() != nil // if not, the first call has answered or failed by itself
	endFirstCall()
	if isFinal(err) {
		stopHedge()
		s.recordLatency(g.node.Name, s.procedure, time.Since(start))
	}
	if !timer.Stop() {
		<-hedgeEnded // the function of the timer has started, so wait until it has ended
	}

	switch {
	case hasHedged && isFinal(hedgeErr) && !isFinal(err) && wasStopped && time.Since(start) < limit:
		// The hedge has stopped the first call, so the error of that call says nothing about the node.
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

// hedgeDelay returns how long a node may take for a method before another one is asked in addition.
// For a method that the node has not answered yet, it is maxHedgeDelay.
func (p *Peers) hedgeDelay(name, procedure string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	usual, isKnown := p.usualLatency[nodeMethod{name, procedure}]
	if !isKnown {
		return maxHedgeDelay
	}
	return hedgeDelayFactor * usual
}

// recordLatency records how long a node took to answer a method.
func (p *Peers) recordLatency(name, procedure string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateUsualLatency(nodeMethod{name, procedure}, took)
}

// updateUsualLatency increases the usual latency by 19 % if a call took longer, and decreases it by
// 1 % otherwise. So it settles where about one in twenty calls takes longer (Robbins and Monro, "A
// Stochastic Approximation Method", 1951). mu must be held.
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

// recordOvertaken records that another node has answered a call before the node with this name.
//
// The call counts as one that took longer than usual. If overtaken calls did not count, only short
// calls would determine the usual latency. But if the node is suspected already, the call counts
// only as retried. So the usual latency of a node that hangs changes little, however many calls
// wait for the node.
func (p *Peers) recordOvertaken(name, procedure string) {
	p.Calls.Retried.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.suspected[name]
	if time.Now().Before(s.until) {
		return
	}
	p.updateUsualLatency(nodeMethod{name, procedure}, maxHedgeDelay)
	s.overtakenCalls++
	p.suspected[name] = s
	if s.overtakenCalls >= maxOvertaken {
		p.suspectLocked(name)
	}
}
