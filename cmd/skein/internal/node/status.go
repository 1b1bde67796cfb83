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

// clusterView is what a node knows about its cluster at one time.
type clusterView struct {
	// members are the nodes that are alive. silent are nodes that were alive before and may still
	// have partitions in the table.
	members, silent []placement.Member
	table           placement.Table
	// copies is the number of copies of each partition with which the node was configured. The
	// status has this number until there is a table, which has a number of its own.
	copies int
	// self is the name of the node whose view this is.
	self string
	// headSeq is the last sequence of the log.
	headSeq uint64
	// readTime is the time of the view.
	readTime time.Time
}

// UnreadableKeys returns the keys in the bucket of the cluster that are ignored because their
// values cannot be read.
func (n *Node) UnreadableKeys() []string { return n.cluster.UnreadableKeys() }

// Status returns the state of the cluster as this node sees it.
func (n *Node) Status() *skeinv1.ClusterStatus {
	members := n.cluster.Members()
	for i := range members {
		// The node knows its own states before the bucket has them.
		if members[i].Name == n.Name {
			members[i].State = n.State().String()
			members[i].PartitionChange = n.changer.slowest().String()
		}
	}
	status := clusterStatus(&clusterView{
		members: members, silent: n.cluster.SilentNodes(), table: n.cluster.Table(), copies: n.Copies, self: n.Name,
		headSeq: n.Hub.Head(), readTime: time.Now(),
	})
	status.UnreadableKeys = n.UnreadableKeys()
	return status
}

// clusterStatus returns a view as the API has it: each node with the partitions that it serves and
// that the table gives it, and how many partitions have too few copies.
func clusterStatus(v *clusterView) *skeinv1.ClusterStatus {
	c := &skeinv1.ClusterStatus{Copies: uint32(cmp.Or(v.table.Copies, v.copies))}
	given := map[string]*events.Partitions{} // by the name of each node in c.Nodes
	add := func(s *skeinv1.NodeStatus) {
		s.Self = s.GetName() == v.self
		c.Nodes = append(c.Nodes, s)
		given[s.GetName()] = &events.Partitions{}
	}

	// A state that the enum of the API lacks, as of a node of a later version, becomes UNSPECIFIED.
	for _, m := range v.members {
		s := v.nodeStatus(m)
		s.Serves = uint32(m.Serves.Len())
		s.ServesPartitions = partitionsText(m.Serves)
		s.State = skeinv1.NodeState(skeinv1.NodeState_value[enumName("NODE_STATE_", m.State)])
		change := enumName("PARTITION_CHANGE_STATE_", m.PartitionChange)
		s.PartitionChange = skeinv1.PartitionChangeState(skeinv1.PartitionChangeState_value[change])
		add(s)
	}

	for p := range events.NumPartitions {
		for _, name := range v.table.Nodes[p] {
			if given[name] == nil {
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
		partitions := given[s.GetName()]
		s.Given = uint32(partitions.Len())
		s.GivenPartitions = partitionsText(*partitions)
	}
	slices.SortFunc(c.Nodes, func(a, b *skeinv1.NodeStatus) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return c
}

// enumName returns the name that a state has in an enum of the API, whose values have a prefix.
func enumName(prefix, state string) string { return prefix + strings.ToUpper(state) }

// nodeStatus returns what a node last announced about itself, without its partitions and states.
func (v *clusterView) nodeStatus(m placement.Member) *skeinv1.NodeStatus {
	s := &skeinv1.NodeStatus{
		Name:          m.Name,
		Addr:          m.Addr,
		Zone:          m.Zone,
		Weight:        uint32(max(m.Weight, 1)),
		Draining:      m.Draining,
		Position:      m.Position,
		SilentSeconds: new(max(0, v.readTime.Sub(m.LastSeen).Seconds())),
	}
	if at, err := events.ParsePosition(m.Position); err == nil {
		s.LagEnvelopes = new(v.headSeq - min(v.headSeq, at.Seq))
	}
	return s
}

// awayStatus returns the status of a node that the table names and that is not alive. No call
// reaches such a node, so the status says that it serves nothing, whatever it last announced.
func (v *clusterView) awayStatus(name string) *skeinv1.NodeStatus {
	s := &skeinv1.NodeStatus{Name: name}
	if i := slices.IndexFunc(v.silent, func(m placement.Member) bool { return m.Name == name }); i >= 0 {
		s = v.nodeStatus(v.silent[i])
	}
	s.Away = true
	s.ServesPartitions = partitionsText(events.Partitions{})
	return s
}

// partitionsText returns a set of partitions as the API has it.
func partitionsText(s events.Partitions) string {
	text, _ := s.MarshalText() // never fails
	return string(text)
}

// Drain stops assigning partitions to a node, if drained is true, or resumes it.
func (n *Node) Drain(ctx context.Context, name string, drained bool) error {
	err := n.cluster.SetDraining(ctx, name, drained)
	if err == nil {
		n.Logger.Info("an operator has changed whether a node is drained", "node", name, "drained", drained)
		return nil
	}
	if errors.Is(err, placement.ErrUnknownNode) {
		var names []string
		for _, m := range n.cluster.Members() {
			names = append(names, m.Name)
		}
		return &operator.Refusal{
			Cause: operator.ErrUnknownNode, Text: fmt.Sprintf("this process knows no node %q, and sees %s", name, strings.Join(names, ", ")),
		}
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}
