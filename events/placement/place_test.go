package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// nodesOf generates at most so many nodes with different names, in as many zones.
func drawNodes(most, zones, weights int) *rapid.Generator[[]Member] {
	one := rapid.Custom(func(t *rapid.T) Member {
		return Member{
			Name:   rapid.StringMatching(`[a-z0-9-]{1,12}`).Draw(t, "name"),
			Zone:   fmt.Sprint("zone-", rapid.IntRange(1, zones).Draw(t, "zone")),
			Weight: rapid.IntRange(1, weights).Draw(t, "weight"),
		}
	})
	return rapid.SliceOfNDistinct(one, 1, most, func(m Member) string { return m.Name })
}

// TestPlaceSpreadsOverNodesAndZones: each partition is on as many different nodes as there may be, in as many zones as there may be. The order of the nodes
// does not matter, and those that drain are as if they were not there.
func TestPlaceSpreadsOverNodesAndZones(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 4, 5).Draw(t, "nodes")
		replicas := rapid.IntRange(1, 4).Draw(t, "replicas")
		table := Place(nodes, replicas)
		zone := map[string]string{}
		zones := map[string]bool{}
		for _, m := range nodes {
			zone[m.Name], zones[m.Zone] = m.Zone, true
		}
		for p, names := range table.Nodes {
			different, apart := map[string]bool{}, map[string]bool{}
			for _, name := range names {
				different[name], apart[zone[name]] = true, true
			}
			if want := min(replicas, len(nodes)); len(names) != want || len(different) != want {
				t.Fatalf("partition %d is on %v", p, names)
			}
			if len(apart) != min(len(names), len(zones)) {
				t.Fatalf("partition %d is on %v, in the zones %v of %v", p, names, apart, zones)
			}
		}
		others := append(rapid.Permutation(nodes).Draw(t, "permutation"), Member{Name: "DRAINS", Draining: true, Weight: 100})
		if again := Place(others, replicas); !equalNodes(&table, &again) || again.Replicas != replicas {
			t.Fatal("another order makes another table")
		}
	})
}

// TestAddedNodeTakesOnlyItsShare: a node that is added gets partitions, and no other gets any. So one that is removed gives up its own only.
func TestAddedNodeTakesOnlyItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 3, 5).Draw(t, "nodes")
		replicas := rapid.IntRange(1, 4).Draw(t, "replicas")
		added := nodes[len(nodes)-1]
		before, after := Place(nodes[:len(nodes)-1], replicas), Place(nodes, replicas)
		for p, names := range after.Nodes {
			for _, name := range names {
				if name != added.Name && !slices.Contains(before.Nodes[p], name) {
					t.Fatalf("%s is added, and partition %d is moved from %v to %v", added.Name, p, before.Nodes[p], names)
				}
			}
			if !slices.Contains(names, added.Name) && !slices.Equal(names, before.Nodes[p]) {
				t.Fatalf("%s does not get partition %d, which is moved from %v to %v", added.Name, p, before.Nodes[p], names)
			}
		}
	})
}

// TestPlaceFollowsWeights: a node has partitions in proportion to its weight, as a random sample has.
func TestPlaceFollowsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 1, 3).Draw(t, "nodes")
		replicas := rapid.IntRange(1, 3).Draw(t, "replicas")
		if replicas > 1 { // the second node of a partition is not the first: then shares are exact for equal weights only
			for i := range nodes {
				nodes[i].Weight = 2
			}
		}
		all := 0
		for _, m := range nodes {
			all += m.Weight
		}
		table := Place(nodes, replicas)
		for _, m := range nodes {
			got := 0
			for _, names := range table.Nodes {
				if slices.Contains(names, m.Name) {
					got++
				}
			}
			share := min(1, float64(replicas*m.Weight)/float64(all))
			want, deviation := share*events.NumPartitions, math.Sqrt(events.NumPartitions*share*(1-share))
			if math.Abs(float64(got)-want) > 6*deviation+1 {
				t.Fatalf("%s with a share of %.3f has %d partitions", m.Name, share, got)
			}
		}
	})
}

// TestPlaceWithoutNodesIsEmpty: without a node no partition has one.
func TestPlaceWithoutNodesIsEmpty(t *testing.T) {
	for _, names := range Place([]Member{{Name: "a", Draining: true}}, 2).Nodes {
		if len(names) != 0 {
			t.Fatal(names)
		}
	}
}
