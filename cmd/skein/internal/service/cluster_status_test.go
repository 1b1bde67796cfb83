package service

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Of 256 partitions the first ten are given to a and c, the others to a and b. c is away, b serves only what a serves too.
func TestClusterStatus(t *testing.T) {
	table := placement.Table{Revision: 1, Replicas: 2}
	a := placement.Member{Name: "a", Addr: "a:1", Zone: "z", Weight: 3, Position: "1.7"}
	b := placement.Member{Name: "b", Addr: "b:1", Draining: true}
	for p := range events.NumPartitions {
		table.Nodes[p] = []string{"a", "b"}
		if p < 10 {
			table.Nodes[p][1] = "c"
		}
		if p != 0 {
			a.Serves.Add(uint8(p))
		}
		if p >= 20 {
			b.Serves.Add(uint8(p))
		}
	}
	want := &skeinv1.ClusterStatus{
		Copies: 2, ShortPartitions: 20, UnservedPartitions: 1,
		Nodes: []*skeinv1.NodeStatus{
			{Name: "a", Addr: "a:1", Zone: "z", Weight: 3, Serves: 255, Given: 256, Position: "1.7"},
			{Name: "b", Addr: "b:1", Weight: 1, Draining: true, Serves: 236, Given: 246, Self: true},
			{Name: "c", Away: true, Given: 10},
		},
	}
	if diff := cmp.Diff(want, clusterStatus([]placement.Member{a, b}, table, 5, "b"), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	// Before there is a table, what the node was started with counts.
	if c := clusterStatus(nil, placement.Table{}, 2, "b"); c.GetCopies() != 2 || c.GetUnservedPartitions() != 256 || len(c.GetNodes()) != 0 {
		t.Error(c)
	}
}

func TestNodeDoesNotErase(t *testing.T) {
	a := &Service{node: &node{}}
	if _, err := a.eraseWork(operator.Order{User: "ann"}); !errors.Is(err, operator.ErrNotPossible) {
		t.Error(err)
	}
}
