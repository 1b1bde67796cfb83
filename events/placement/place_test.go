package placement

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// drawNodes returns a generator of 1 to maxNodes nodes with different names, which are in at most
// maxZones zones and have weights from 1 to maxWeight.
func drawNodes(maxNodes, maxZones, maxWeight int) *rapid.Generator[[]Member] {
	node := rapid.Custom(func(t *rapid.T) Member {
		return Member{
			Name:   rapid.StringMatching(`[a-z0-9-]{1,12}`).Draw(t, "name"),
			Zone:   fmt.Sprint("zone-", rapid.IntRange(1, maxZones).Draw(t, "zone")),
			Weight: rapid.IntRange(1, maxWeight).Draw(t, "weight"),
		}
	})
	return rapid.SliceOfNDistinct(node, 1, maxNodes, func(m Member) string { return m.Name })
}

// TestPlaceSpreadsOverNodesAndZones checks that each partition is on as many different nodes, and
// in as many zones, as possible. The order of the nodes does not matter, and draining nodes get
// nothing.
func TestPlaceSpreadsOverNodesAndZones(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 4, 5).Draw(t, "nodes")
		copies := rapid.IntRange(1, 4).Draw(t, "copies")
		table := Place(nodes, copies)

		zoneOf := map[string]string{}
		zones := map[string]bool{}
		for _, m := range nodes {
			zoneOf[m.Name] = m.Zone
			zones[m.Zone] = true
		}

		for p, names := range table.Nodes {
			usedNodes := map[string]bool{}
			usedZones := map[string]bool{}
			for _, name := range names {
				usedNodes[name] = true
				usedZones[zoneOf[name]] = true
			}
			if want := min(copies, len(nodes)); len(names) != want || len(usedNodes) != want {
				t.Fatalf("nodes of partition %d: got %v, want %d different ones", p, names, want)
			}
			if len(usedZones) != min(len(names), len(zones)) {
				t.Fatalf("zones of partition %d on %v: got %v of %v, want as many as possible", p, names, usedZones, zones)
			}
		}

		others := append(rapid.Permutation(nodes).Draw(t, "permutation"), Member{Name: "DRAINS", Draining: true, Weight: 100})
		if again := Place(others, copies); !equalNodes(&table, &again) || again.Copies != copies {
			t.Fatalf("table for another order of the nodes: got %v, want %v", again.Nodes, table.Nodes)
		}
	})
}

// TestAddedNodeTakesOnlyItsShare adds a node. Only that node gets partitions. So when it is removed
// again, only its own partitions move.
func TestAddedNodeTakesOnlyItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 3, 5).Draw(t, "nodes")
		copies := rapid.IntRange(1, 4).Draw(t, "copies")
		added := nodes[len(nodes)-1]
		before := Place(nodes[:len(nodes)-1], copies)
		after := Place(nodes, copies)

		for p, names := range after.Nodes {
			for _, name := range names {
				if name != added.Name && !slices.Contains(before.Nodes[p], name) {
					t.Fatalf("partition %d after %s was added: got %v, want only that node in place of one of %v",
						p, added.Name, names, before.Nodes[p])
				}
			}

			if !slices.Contains(names, added.Name) && !slices.Equal(names, before.Nodes[p]) {
				t.Fatalf("partition %d, which %s does not get: got %v, want still %v", p, added.Name, names, before.Nodes[p])
			}
		}
	})
}

// TestPlaceFollowsWeights checks that the number of partitions of a node is in proportion to its
// weight, within six standard deviations of a random sample.
func TestPlaceFollowsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(8, 1, 3).Draw(t, "nodes")
		copies := rapid.IntRange(1, 3).Draw(t, "copies")

		// The second node of a partition differs from the first, so the shares are exact only for equal
		// weights.
		if copies > 1 {
			for i := range nodes {
				nodes[i].Weight = 2
			}
		}

		totalWeight := 0
		for _, m := range nodes {
			totalWeight += m.Weight
		}

		table := Place(nodes, copies)
		for _, m := range nodes {
			got := 0
			for _, names := range table.Nodes {
				if slices.Contains(names, m.Name) {
					got++
				}
			}

			share := min(1, float64(copies*m.Weight)/float64(totalWeight))
			want := share * events.NumPartitions
			deviation := math.Sqrt(events.NumPartitions * share * (1 - share))
			if math.Abs(float64(got)-want) > 6*deviation+1 {
				t.Fatalf("partitions of %s with a share of %.3f: got %d, want about %.0f", m.Name, share, got, want)
			}
		}
	})
}

// TestPlaceWithoutNodesIsEmpty places partitions when the only node drains.
func TestPlaceWithoutNodesIsEmpty(t *testing.T) {
	for _, names := range Place([]Member{{Name: "a", Draining: true}}, 2).Nodes {
		if len(names) != 0 {
			t.Fatalf("nodes of a partition: got %v, want none", names)
		}
	}
}
