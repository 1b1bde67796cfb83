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
	at := func(seq uint64) string { return events.Position{Epoch: 1, Seq: seq}.String() }
	table := placement.Table{Revision: 1, Copies: 2}
	a := placement.Member{
		Name: "a", Addr: "a:1", Zone: "z", Weight: 3, LastSeen: now.Add(-time.Second),
		Announcement: placement.Announcement{Position: at(7), State: "serving", PartitionChange: "cut_over"},
	}
	b := placement.Member{
		Name: "b", Addr: "b:1", Draining: true, LastSeen: now.Add(time.Hour),
		Announcement: placement.Announcement{Position: at(12), State: "of a later version"},
	}
	c := placement.Member{Name: "c", Addr: "c:1", Zone: "y", Weight: 1, LastSeen: now.Add(-30 * time.Second)}
	c.State = "serving"
	c.Serves.Add(0) // what c announced before it was silent

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

	// The API has a set of partitions as 64 hexadecimal digits.
	none := strings.Repeat("0", 64)
	f61 := strings.Repeat("f", 61)
	want := &skeinv1.ClusterStatus{
		Copies: 2, ShortPartitions: 20, UnservedPartitions: 1,
		Nodes: []*skeinv1.NodeStatus{
			{
				Name: "a", Addr: "a:1", Zone: "z", Weight: 3, Serves: 255, Given: 255, Position: at(7),
				ServesPartitions: "7ff" + f61, GivenPartitions: "fff" + f61[:60] + "e", SilentSeconds: new(1.0), LagEnvelopes: new(uint64(3)),
				State: skeinv1.NodeState_NODE_STATE_SERVING, PartitionChange: skeinv1.PartitionChangeState_PARTITION_CHANGE_STATE_CUT_OVER,
			},
			{
				Name: "b", Addr: "b:1", Weight: 1, Draining: true, Serves: 236, Given: 245, Self: true, Position: at(12),
				ServesPartitions: "00000" + f61[:59], GivenPartitions: "003" + f61[:60] + "e", SilentSeconds: new(0.0), LagEnvelopes: new(uint64(0)),
			},
			{
				Name: "c", Addr: "c:1", Zone: "y", Weight: 1, Away: true, Given: 10,
				ServesPartitions: none, GivenPartitions: "ffc" + none[3:], SilentSeconds: new(30.0),
			},
			{Name: "d", Away: true, Given: 1, ServesPartitions: none, GivenPartitions: none[1:] + "1"},
		},
	}

	view := clusterView{
		members: []placement.Member{a, b}, silent: []placement.Member{c, {Name: "gone", Addr: "gone:1"}}, table: table,
		copies: 5, self: "b", headSeq: 10, readTime: now,
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
