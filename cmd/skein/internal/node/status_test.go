package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestClusterStatusCountsPartitions: the status of a cluster has every node that is alive or in the
// table, and counts the partitions that lack copies. The table gives the first ten of the 256
// partitions to the nodes a and c, the last one to d alone, and the others to a and b. c is silent,
// and d has no key in the bucket any more.
func TestClusterStatusCountsPartitions(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	positionAt := func(seq uint64) string { return events.Position{Epoch: 1, Seq: seq}.String() }
	a := placement.Member{
		Name: "a", Addr: "a:1", Zone: "z", Weight: 3, LastSeen: now.Add(-time.Second),
		Announcement: placement.Announcement{Position: positionAt(7), State: "serving", PartitionChange: "cut_over"},
	}
	// The clock of b is an hour ahead.
	b := placement.Member{
		Name: "b", Addr: "b:1", Draining: true, LastSeen: now.Add(time.Hour),
		Announcement: placement.Announcement{Position: positionAt(12), State: "of a later version"},
	}
	// What c announced before it was silent does not count any more.
	c := placement.Member{Name: "c", Addr: "c:1", Zone: "y", Weight: 1, LastSeen: now.Add(-30 * time.Second)}
	c.State = "serving"
	c.Serves.Add(0)

	table := placement.Table{Revision: 1, Copies: 2}
	for p := range events.NumPartitions {
		switch {
		case p < 10:
			table.Nodes[p] = []string{"a", "c"}
		case p == 255:
			table.Nodes[p] = []string{"d"}
		default:
			table.Nodes[p] = []string{"a", "b"}
		}
		if p != 0 {
			a.Serves.Add(uint8(p))
		}
		if p >= 20 {
			b.Serves.Add(uint8(p))
		}
	}

	// The API has a set of partitions as 64 hexadecimal digits. The highest bit of the first digit
	// is partition 0.
	f := func(digits int) string { return strings.Repeat("f", digits) }
	zeros := func(digits int) string { return strings.Repeat("0", digits) }
	want := &skeinv1.ClusterStatus{
		Copies: 2, ShortPartitions: 20, UnservedPartitions: 1,
		Nodes: []*skeinv1.NodeStatus{
			{
				Name: "a", Addr: "a:1", Zone: "z", Weight: 3, Position: positionAt(7), SilentSeconds: new(1.0), LagEnvelopes: new(uint64(3)),
				State: skeinv1.NodeState_NODE_STATE_SERVING, PartitionChange: skeinv1.PartitionChangeState_PARTITION_CHANGE_STATE_CUT_OVER,
				Serves: 255, ServesPartitions: "7" + f(63),
				Given: 255, GivenPartitions: f(63) + "e",
			},
			{
				Name: "b", Addr: "b:1", Weight: 1, Draining: true, Self: true, Position: positionAt(12), SilentSeconds: new(0.0), LagEnvelopes: new(uint64(0)),
				Serves: 236, ServesPartitions: zeros(5) + f(59),
				Given: 245, GivenPartitions: "003" + f(60) + "e",
			},
			{
				Name: "c", Addr: "c:1", Zone: "y", Weight: 1, Away: true, SilentSeconds: new(30.0),
				ServesPartitions: zeros(64),
				Given:            10, GivenPartitions: "ffc" + zeros(61),
			},
			{
				Name: "d", Away: true,
				ServesPartitions: zeros(64),
				Given:            1, GivenPartitions: zeros(63) + "1",
			},
		},
	}

	// The node gone is neither alive nor in the table.
	view := clusterView{
		members: []placement.Member{a, b}, silent: []placement.Member{c, {Name: "gone", Addr: "gone:1"}},
		table: table, copies: 5, self: "b", headSeq: 10, readTime: now,
	}
	if diff := cmp.Diff(want, clusterStatus(&view), protocmp.Transform()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestClusterStatusWithoutTable: before there is a table, the copies that the node was configured
// with count.
func TestClusterStatusWithoutTable(t *testing.T) {
	want := &skeinv1.ClusterStatus{Copies: 2, ShortPartitions: 256, UnservedPartitions: 256}
	got := clusterStatus(&clusterView{copies: 2, self: "b"})
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
