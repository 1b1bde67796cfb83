package peers

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// hedgeAfter is how long a node is waited for before another one is asked as well, and the first answer taken. Nodes that are well
	// answer long before.
	hedgeAfter = 50 * time.Millisecond
	// hedgeShare bounds hedges to one in so many answered calls, so that they cannot double the load of a cluster that is slow because it is
	// overloaded (Dean and Barroso, "The Tail at Scale", CACM 2013). maxHedges bounds what is saved up while none are needed: with it,
	// 20 000 calls a second go on through the 50 ms until a node that stands still is asked last.
	hedgeShare, maxHedges = 20, 1000
)

// Ask puts a call to a node about some partitions, given by their indexes. Two nodes may be asked about the same partitions at a time. The
// function that it returns keeps the answer. It is called only if no other node's answer about these partitions is kept.
type Ask func(ctx context.Context, n *Node, of []int) (keep func(), err error)

// Scatter asks other nodes about some partitions, few nodes, several at a time, each once for all partitions that fall to it. If
// a node does not answer, the next one is asked, as long as there is one; if it is slow, the next one is asked as well. Answers are kept
// one after another, when all are there.
func (p *Peers) Scatter(ctx context.Context, partitions []uint8, ask Ask) error {
	of := make([]int, len(partitions))
	for i := range of {
		of[i] = i
	}
	s := &scatter{p, partitions, ask}
	kept, err := s.answers(ctx, of, nil, nil)
	p.ended(ctx, err)
	if err != nil {
		return err
	}
	for _, keep := range kept {
		keep()
	}
	return nil
}

type scatter struct {
	*Peers
	partitions []uint8
	ask        Ask
}

// answers returns functions that keep the answers about some partitions, of nodes that were not tried. The last error is of one that was.
func (s *scatter) answers(ctx context.Context, of []int, tried []string, last error) ([]func(), error) {
	groups, err := s.group(of, tried, last)
	if err != nil {
		return nil, err
	}
	if len(groups) == 1 {
		return s.attempt(ctx, groups[0], tried)
	}
	kept := make([][]func(), len(groups))
	var all errgroup.Group
	for i, g := range groups {
		all.Go(func() (err error) {
			kept[i], err = s.attempt(ctx, g, tried)
			return err
		})
	}
	err = all.Wait()
	return slices.Concat(kept...), err
}

// group is what one node is asked about.
type group struct {
	node Node
	of   []int
	// others: other nodes could be asked about all of them.
	others bool
}

func (s *scatter) group(of []int, tried []string, last error) (groups []*group, err error) {
	choice := map[uint8]*group{}
	byName := map[string]*group{}
	for _, i := range of {
		partition := s.partitions[i]
		g := choice[partition]
		if g == nil {
			nodes := s.serving(partition, tried)
			if len(nodes) == 0 {
				return nil, noNode(partition, last)
			}
			node := nodes[0]
			if i := slices.IndexFunc(nodes, func(n Node) bool { // rather one that is asked anyway, if it answered as well lately
				return byName[n.Name] != nil && s.suspects(n.Name) <= s.suspects(node.Name)
			}); i >= 0 {
				node = nodes[i]
			}
			if g = byName[node.Name]; g == nil {
				g = &group{node: node, others: true}
				byName[node.Name], groups = g, append(groups, g)
			}
			g.others = g.others && len(nodes) > 1
			choice[partition] = g
		}
		g.of = append(g.of, i)
	}
	return groups, nil
}

// attempt has the node of a group answer. Others are asked when it did not, or when it is slow. Both calls have ended when attempt returns.
func (s *scatter) attempt(ctx context.Context, g *group, tried []string) ([]func(), error) {
	tried = append(slices.Clip(tried), g.node.Name)
	first, stopFirst := patience(ctx, g.others)
	defer stopFirst()
	second, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	var hedged bool
	var kept []func()
	var secondErr error
	ended := make(chan struct{})
	timer := time.AfterFunc(hedgeAfter, func() {
		defer close(ended)
		if hedged = g.others && s.mayHedge(); !hedged {
			return
		}
		if kept, secondErr = s.answers(second, g.of, tried, nil); final(secondErr) {
			stopFirst()
		}
	})
	keep, err := s.ask(first, &g.node, g.of)
	if final(err) {
		stopSecond()
	}
	if !timer.Stop() {
		<-ended
	}
	switch {
	case !s.judge(ctx, g.node.Name, err):
		return []func(){keep}, err
	case hedged:
		return kept, secondErr
	}
	return s.answers(ctx, g.of, tried, err)
}
