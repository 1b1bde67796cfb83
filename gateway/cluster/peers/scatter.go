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
	// leastWait and mostWait bound how long a node is waited for before another one is asked as well, and the first answer taken. Within
	// them it is usualTimes the time within which the node answers 19 of 20 calls of the method (usual). That time alone would spend the
	// share for hedges at all times, and leave nothing for when a node hangs. The least is above the times of short calls: processors that
	// are busy for a moment cause no hedges.
	minHedgeDelay, maxHedgeDelay, hedgeDelayFactor = 5 * time.Millisecond, 50 * time.Millisecond, 2
	// hedgeShare bounds hedges to one in so many answered calls, so that they cannot double the load of a cluster that is slow because it is
	// overloaded (Dean and Barroso, "The Tail at Scale", CACM 2013). maxHedges bounds what is saved up while none are needed: with it,
	// 20 000 calls a second go on through the 50 ms, at most, until a node that stands still is asked last.
	answersPerHedge, maxSavedHedges = 20, 1000
	// maxOvertaken is how often in a row another node may have answered while one was asked, until that one is asked last. A single call
	// may be slow by itself.
	maxOvertaken = 3
	// leastPause and mostPause are the first and the last pause before all nodes are asked again. Each is pauseGrowth times the one before.
	minRetryPause, maxRetryPause, retryPauseGrowth = 100 * time.Millisecond, 900 * time.Millisecond, 3
)

// AskFunc puts a call to a node about some partitions, given by their indexes. Two nodes may be asked about the same partitions at a time. The
// function that it returns keeps the answer. It is called only if no other node's answer about these partitions is kept.
type AskFunc func(ctx context.Context, n *Node, of []int) (keep func(), err error)

// Scatter asks other nodes about some partitions, few nodes, several at a time, each once for all partitions that fall to it. If
// a node does not answer, the next one is asked, as long as there is one; if it is slow for the method, the next one is asked as well.
// When none is left, all are asked again for a while. Answers are kept one after another, when all are there.
func (p *Peers) Scatter(ctx context.Context, procedure string, partitions []uint8, ask AskFunc) error {
	of := make([]int, len(partitions))
	for i := range of {
		of[i] = i
	}
	s := &scatter{p, procedure, partitions, ask}
	var kept []func()
	err := retryUntilReached(ctx, func() (again bool, err error) {
		kept, err = s.collectAnswers(ctx, of, nil, nil)
		return true, err
	})
	p.countFailure(ctx, err)
	if err != nil {
		return err
	}
	for _, keep := range kept {
		keep()
	}
	return nil
}

// untilReached calls ask until a node was reached, or it says that it must not be called again, three times more at most: a connection to
// the only node that can answer may have broken, and the news of which nodes serve a partition takes some time to arrive.
func retryUntilReached(ctx context.Context, ask func() (again bool, err error)) error {
	again, err := ask()
	for pause := minRetryPause; again && err != nil && pause <= maxRetryPause; pause *= retryPauseGrowth {
		if apierror.Of(err).Reason != skeinv1.Reason_REASON_NOT_HERE || wait.For(ctx, pause) != nil {
			break
		}
		again, err = ask()
	}
	return err
}

type scatter struct {
	*Peers
	procedure  string
	partitions []uint8
	ask        AskFunc
}

// answers returns functions that keep the answers about some partitions, of nodes that were not tried. The last error is of one that was.
func (s *scatter) collectAnswers(ctx context.Context, of []int, tried []string, last error) ([]func(), error) {
	groups, err := s.assignNodes(of, tried, last)
	if err != nil {
		return nil, err
	}
	if len(groups) == 1 {
		return s.askGroup(ctx, groups[0], tried)
	}
	kept := make([][]func(), len(groups))
	var all errgroup.Group
	for i, g := range groups {
		all.Go(func() (err error) {
			kept[i], err = s.askGroup(ctx, g, tried)
			return err
		})
	}
	err = all.Wait()
	return slices.Concat(kept...), err
}

// group is what one node is asked about.
type nodeGroup struct {
	node    Node
	indexes []int
	// others: other nodes could be asked about all of them.
	hasAlternatives bool
}

func (s *scatter) assignNodes(of []int, tried []string, last error) (groups []*nodeGroup, err error) {
	choice := map[uint8]*nodeGroup{}
	byName := map[string]*nodeGroup{}
	for _, i := range of {
		partition := s.partitions[i]
		g := choice[partition]
		if g == nil {
			nodes := s.nodesServing(partition, tried)
			if len(nodes) == 0 {
				return nil, noNodeError(partition, last)
			}
			node := nodes[0]
			if i := slices.IndexFunc(nodes, func(n Node) bool { // rather one that is asked anyway, if it answered as well lately
				return byName[n.Name] != nil && s.suspicionRank(n.Name) <= s.suspicionRank(node.Name)
			}); i >= 0 {
				node = nodes[i]
			}
			if g = byName[node.Name]; g == nil {
				g = &nodeGroup{node: node, hasAlternatives: true}
				byName[node.Name], groups = g, append(groups, g)
			}
			g.hasAlternatives = g.hasAlternatives && len(nodes) > 1
			choice[partition] = g
		}
		g.indexes = append(g.indexes, i)
	}
	return groups, nil
}

// attempt has the node of a group answer. Others are asked when it did not, or when it is slow; it is still waited for until one of them
// has answered, since they may be gone. Both calls have ended when attempt returns.
func (s *scatter) askGroup(ctx context.Context, g *nodeGroup, tried []string) ([]func(), error) {
	tried = append(slices.Clip(tried), g.node.Name)
	first, stopFirst := context.WithTimeout(ctx, lastAttemptTimeout)
	defer stopFirst()
	second, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	waited, stopWaiting := context.WithCancel(second)
	defer stopWaiting()
	began, limit, hedge := time.Now(), attemptTimeoutFor(ctx, g.hasAlternatives), s.hedgeDelay(g.node.Name, s.procedure)
	var asked bool // others were
	var kept []func()
	var secondErr error
	ended := make(chan struct{})
	timer := time.AfterFunc(hedge, func() {
		defer close(ended)
		if asked = g.hasAlternatives && (s.spendHedgeCredit() || wait.For(waited, limit-hedge) == nil); !asked {
			return
		}
		if kept, secondErr = s.collectAnswers(second, g.indexes, tried, nil); isFinal(secondErr) {
			stopFirst()
		}
	})
	keep, err := s.ask(first, &g.node, g.indexes)
	stopWaiting()
	if isFinal(err) {
		stopSecond()
		s.recordLatency(g.node.Name, s.procedure, time.Since(began))
	}
	if !timer.Stop() {
		<-ended
	}
	switch {
	case asked && isFinal(secondErr) && !isFinal(err) && time.Since(began) < limit:
		s.recordOvertaken(g.node.Name, s.procedure)
		return kept, secondErr
	case !s.recordResult(ctx, g.node.Name, err):
		return []func(){keep}, err
	case asked:
		return kept, secondErr
	}
	return s.collectAnswers(ctx, g.indexes, tried, err)
}

// hedgeAfter is how long a node is waited for before another one is asked as well.
func (p *Peers) hedgeDelay(name, procedure string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u, ok := p.usualLatency[nodeMethod{name, procedure}]; ok {
		return hedgeDelayFactor * u
	}
	return maxHedgeDelay
}

// answered notes how long an answer took.
func (p *Peers) recordLatency(name, procedure string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateUsualLatency(nodeMethod{name, procedure}, took)
}

// learn has usual grow by 19 % if a call took longer, and shrink by 1 % otherwise: it comes to rest where about one in twenty takes longer
// (Robbins and Monro, "A Stochastic Approximation Method", 1951).
func (p *Peers) updateUsualLatency(m nodeMethod, took time.Duration) {
	u, ok := p.usualLatency[m]
	if !ok {
		u = maxHedgeDelay / hedgeDelayFactor
	}
	if took > u {
		u += u * 19 / 100
	} else {
		u -= u / 100
	}
	p.usualLatency[m] = min(max(u, minHedgeDelay/hedgeDelayFactor), maxHedgeDelay/hedgeDelayFactor)
}

// overtaken notes that another node has answered while one was still asked. That call is one that took longer: without those, usual would
// become that of the short calls. Calls of a node that is asked last already are not counted, so that those which a node that hangs
// never answers, however many are under way, move usual little.
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
