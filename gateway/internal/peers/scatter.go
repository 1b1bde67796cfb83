package peers

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Scatter asks other nodes about some partitions, each node once for all of which it is the first choice. ask is called for several nodes
// at a time, with the indexes of the partitions; what it returns is called for one node at a time, and keeps the answer. What a node does
// not answer is asked of another one, as long as there is one.
func (p *Peers) Scatter(
	ctx context.Context, partitions []uint8, ask func(ctx context.Context, n *Node, of []int) (keep func() error, err error),
) error {
	var pending []int
	for i := range partitions {
		pending = append(pending, i)
	}
	tried := map[string]bool{}
	var last error
	for len(pending) > 0 {
		groups, err := p.group(partitions, pending, tried, last)
		if err != nil {
			return err
		}
		pending = nil
		var mu sync.Mutex
		var all errgroup.Group
		for _, g := range groups {
			all.Go(func() error {
				within, cancel := patience(ctx, g.others)
				defer cancel()
				keep, err := ask(within, &g.node, g.of)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					err = keep()
				}
				if !p.judge(ctx, g.node.Name, err) {
					return err
				}
				tried[g.node.Name], last = true, err
				pending = append(pending, g.of...)
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		slices.Sort(pending) // of several nodes
	}
	return nil
}

// group is what one node is asked about.
type group struct {
	node Node
	of   []int
	// others: another node could be asked about one of them at least.
	others bool
}

func (p *Peers) group(partitions []uint8, pending []int, tried map[string]bool, last error) (groups []*group, err error) {
	choice := map[uint8]*group{}
	byName := map[string]*group{}
	for _, i := range pending {
		g := choice[partitions[i]]
		if g == nil {
			nodes := p.serving(partitions[i], tried)
			if len(nodes) == 0 {
				return nil, p.nobody(partitions[i], last)
			}
			if g = byName[nodes[0].Name]; g == nil {
				g = &group{node: nodes[0]}
				byName[nodes[0].Name], groups = g, append(groups, g)
			}
			g.others = g.others || len(nodes) > 1
			choice[partitions[i]] = g
		}
		g.of = append(g.of, i)
	}
	return groups, nil
}
