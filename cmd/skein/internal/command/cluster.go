package command

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// PrintCluster prints the nodes of a cluster, which partitions lack copies, and which keys of its
// bucket cannot be read.
func PrintCluster(w io.Writer, c *skeinv1.ClusterStatus) error {
	t := NewTable(w, "NODE", "ADDRESS", "ZONE", "WEIGHT", "SERVES", "GIVEN", "POSITION", "STATE")
	for _, n := range c.GetNodes() {
		t.Row(n.GetName(), cmp.Or(n.GetAddr(), "-"), cmp.Or(n.GetZone(), "-"), strconv.FormatUint(uint64(n.GetWeight()), 10),
			strconv.FormatUint(uint64(n.GetServes()), 10), strconv.FormatUint(uint64(n.GetGiven()), 10), cmp.Or(n.GetPosition(), "-"),
			strings.Join(nodeStates(n), ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	if n := c.GetUnservedPartitions(); n > 0 {
		fmt.Fprintf(w, "NO NODE SERVES %s: calls about their users fail\n", Plural(uint64(n), "partition", "partitions"))
	}
	if n := c.GetShortPartitions(); n > 0 {
		fmt.Fprintf(w, "LACKS COPIES: %s served by fewer than %s\n", Plural(uint64(n), "partition is", "partitions are"),
			Plural(uint64(c.GetCopies()), "node", "nodes"))
	}
	if keys := c.GetUnreadableKeys(); len(keys) > 0 {
		fmt.Fprintf(w, "UNREADABLE: the node that answers ignores %s of the cluster's bucket: %s\n", Plural(uint64(len(keys)), "key", "keys"),
			strings.Join(keys, ", "))
	}
	return nil
}

// nodeStates returns the state of a node, followed by what else a person should know: the change of
// its partitions, whether it is the one that answers, and whether it is drained.
func nodeStates(n *skeinv1.NodeStatus) (states []string) {
	if n.GetAway() {
		states = append(states, "away")
	} else if n.GetState() != skeinv1.NodeState_NODE_STATE_UNSPECIFIED {
		states = append(states, strings.ToLower(strings.TrimPrefix(n.GetState().String(), "NODE_STATE_")))
	}

	// In the other states the partitions of the node do not change.
	switch c := n.GetPartitionChange(); c {
	case skeinv1.PartitionChangeState_PARTITION_CHANGE_STATE_COPYING,
		skeinv1.PartitionChangeState_PARTITION_CHANGE_STATE_CATCHING_UP,
		skeinv1.PartitionChangeState_PARTITION_CHANGE_STATE_CUT_OVER:
		states = append(states, strings.ToLower(strings.TrimPrefix(c.String(), "PARTITION_CHANGE_STATE_")))
	}
	if n.GetSelf() {
		states = append(states, "answers this")
	}
	if n.GetDraining() {
		states = append(states, "drained")
	}
	return states
}
