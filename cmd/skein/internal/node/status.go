package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// clusterView is what a node knows of its cluster at one time.
type clusterView struct {
	// members are the nodes that are alive, silent those that are not and may still have partitions.
	members, silent []placement.Member
	table           placement.Table
	// copies is the number that counts until there is a table.
	copies int
	// self is the name of the node that answers.
	self string
	// headSeq is the last sequence of the log.
	headSeq  uint64
	readTime time.Time
}

// UnreadableKeys returns the keys of the bucket of the cluster whose values cannot be read and are ignored.
func (n *Node) UnreadableKeys() []string { return n.cluster.UnreadableKeys() }

// Status is the cluster as this node sees it.
func (n *Node) Status() *skeinv1.ClusterStatus {
	members := n.cluster.Members()
	for i := range members {
		if members[i].Name == n.Name { // it knows its own states before the bucket has them
			members[i].State, members[i].Change = n.State().String(), n.changer.slowest().String()
		}
	}
	status := clusterStatus(&clusterView{
		members: members, silent: n.cluster.SilentNodes(), table: n.cluster.Table(), copies: n.Copies, self: n.Name,
		headSeq: n.Hub.Head(), readTime: time.Now(),
	})
	status.UnreadableKeys = n.UnreadableKeys()
	return status
}

// clusterStatus counts the partitions of members and of the table.
func clusterStatus(v *clusterView) *skeinv1.ClusterStatus {
	c := &skeinv1.ClusterStatus{Copies: uint32(cmp.Or(v.table.Replicas, v.copies))}
	known := map[string]*skeinv1.NodeStatus{}
	given := map[string]*events.Partitions{}
	add := func(s *skeinv1.NodeStatus) {
		s.Self = s.GetName() == v.self
		known[s.GetName()], given[s.GetName()], c.Nodes = s, &events.Partitions{}, append(c.Nodes, s)
	}
	for _, m := range v.members {
		s := v.nodeStatus(m)
		s.Serves, s.ServesPartitions = uint32(m.Serves.Len()), partitionsText(m.Serves)
		s.State = skeinv1.NodeState(skeinv1.NodeState_value[enumName("NODE_STATE_", m.State)])
		s.PartitionChange = skeinv1.PartitionChangeState(skeinv1.PartitionChangeState_value[enumName("PARTITION_CHANGE_STATE_", m.Change)])
		add(s)
	}
	for p := range events.NumPartitions {
		for _, name := range v.table.Nodes[p] {
			if known[name] == nil {
				add(v.awayStatus(name))
			}
			given[name].Add(uint8(p))
		}
		serving := uint32(0)
		for _, m := range v.members {
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
	for _, s := range c.GetNodes() {
		set := given[s.GetName()]
		s.Given, s.GivenPartitions = uint32(set.Len()), partitionsText(*set)
	}
	slices.SortFunc(c.Nodes, func(a, b *skeinv1.NodeStatus) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return c
}

// enumName returns the name that a state has in the API. A state of a later version has none there.
func enumName(prefix, state string) string { return prefix + strings.ToUpper(state) }

// nodeStatus is what a node last said of itself, without its partitions.
func (v *clusterView) nodeStatus(m placement.Member) *skeinv1.NodeStatus {
	s := &skeinv1.NodeStatus{
		Name: m.Name, Addr: m.Addr, Zone: m.Zone, Weight: uint32(max(m.Weight, 1)), Draining: m.Draining, Position: m.Position,
		SilentSeconds: new(max(0, v.readTime.Sub(m.LastSeen).Seconds())),
	}
	if at, err := events.ParsePosition(m.Position); err == nil {
		s.LagEnvelopes = new(v.headSeq - min(v.headSeq, at.Seq))
	}
	return s
}

// away is a node that the table names and that is not alive: it serves nothing.
func (v *clusterView) awayStatus(name string) *skeinv1.NodeStatus {
	s := &skeinv1.NodeStatus{Name: name}
	if i := slices.IndexFunc(v.silent, func(m placement.Member) bool { return m.Name == name }); i >= 0 {
		s = v.nodeStatus(v.silent[i])
	}
	s.Away, s.ServesPartitions = true, partitionsText(events.Partitions{})
	return s
}

// textOf is a set as the API has it.
func partitionsText(s events.Partitions) string {
	text, _ := s.MarshalText() // it never fails
	return string(text)
}

// Drain takes the partitions away from a node, or gives it partitions again.
func (n *Node) Drain(ctx context.Context, name string, on bool) error {
	err := n.cluster.Drain(ctx, name, on)
	switch {
	case err == nil:
		n.Logger.Info("an operator drains a node", "node", name, "undo", !on)
		return nil
	case errors.Is(err, placement.ErrUnknownNode):
		var names []string
		for _, m := range n.cluster.Members() {
			names = append(names, m.Name)
		}
		return &operator.Refusal{
			Cause: operator.ErrUnknownNode, Text: fmt.Sprintf("the cluster has no node %q, only %s", name, strings.Join(names, ", ")),
		}
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}
