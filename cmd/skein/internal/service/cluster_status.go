package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// status is the cluster as this node sees it.
func (n *node) status() *skeinv1.ClusterStatus {
	return clusterStatus(n.cluster.Members(), n.cluster.Table(), n.Copies, n.Name)
}

// clusterStatus counts the partitions of members and of the table. Copies is the number that counts until there is a table.
func clusterStatus(members []placement.Member, table placement.Table, copies int, self string) *skeinv1.ClusterStatus {
	c := &skeinv1.ClusterStatus{Copies: uint32(cmp.Or(table.Replicas, copies))}
	known := map[string]*skeinv1.NodeStatus{}
	add := func(s *skeinv1.NodeStatus) {
		s.Self = s.GetName() == self
		known[s.GetName()], c.Nodes = s, append(c.Nodes, s)
	}
	for _, m := range members {
		add(&skeinv1.NodeStatus{
			Name: m.Name, Addr: m.Addr, Zone: m.Zone, Weight: uint32(max(m.Weight, 1)), Draining: m.Draining,
			Serves: uint32(m.Serves.Len()), Position: m.Position,
		})
	}
	for p := range events.NumPartitions {
		for _, name := range table.Nodes[p] {
			if known[name] == nil {
				add(&skeinv1.NodeStatus{Name: name, Away: true})
			}
			known[name].Given++
		}
		serving := uint32(0)
		for _, m := range members {
			if m.Serves.Has(uint8(p)) {
				serving++
			}
		}
		if serving < c.GetCopies() {
			c.ShortPartitions++
		}
		if serving == 0 {
			c.UnservedPartitions++
		}
	}
	slices.SortFunc(c.Nodes, func(a, b *skeinv1.NodeStatus) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return c
}

// drain takes the partitions away from a node, or gives it partitions again.
func (n *node) drain(ctx context.Context, name string, on bool) error {
	err := n.cluster.Drain(ctx, name, on)
	switch {
	case err == nil:
		n.a.logger.Info("an operator drains a node", "node", name, "undo", !on)
		return nil
	case errors.Is(err, placement.ErrUnknownNode):
		var names []string
		for _, m := range n.cluster.Members() {
			names = append(names, m.Name)
		}
		return &operator.Refusal{
			Why: operator.ErrUnknownNode, Text: fmt.Sprintf("the cluster has no node %q, only %s", name, strings.Join(names, ", ")),
		}
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}

// drain returns how nodes are drained; nil outside of a cluster.
func (a *Service) drain() func(context.Context, string, bool) error {
	if a.node == nil {
		return nil
	}
	return a.node.drain
}
