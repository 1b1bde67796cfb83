package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Place assigns each partition to at most as many nodes as copies says, by weighted rendezvous
// hashing. It assigns nothing to nodes that are draining; if there are no other nodes, the lists of
// the table are empty. For each partition, every node has a score that depends only on the node's
// name, the node's weight and the partition. Place chooses the nodes of a partition one after the
// other, each time the node with the highest score among those that are left. But it chooses a node
// in a zone that already has a copy only when each zone has one.
//
// The order of the nodes in the argument does not matter. A node that is added takes partitions
// from other nodes; no other node gets any. When a node is removed, only its partitions move. How
// many partitions a node gets varies like a random sample around its share by weight: for a share
// of one quarter, 64 of the 256 partitions, the standard deviation is 7 partitions.
func Place(nodes []Member, copies int) Table {
	t := Table{Copies: copies}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(m Member) bool { return m.Draining })
	// If two nodes have the same score, the first one by name wins, whatever the order of the
	// argument.
	slices.SortFunc(usable, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })

	scores := make([]float64, len(usable))
	for p := range t.Nodes {
		for i := range usable {
			scores[i] = nodeScore(&usable[i], uint8(p))
		}
		t.Nodes[p] = pickNodes(usable, scores, copies)
	}
	return t
}

// nodeScore returns -weight/ln(u), where u is a hash of the node's name and the partition, scaled
// to a number between 0 and 1. The probability that a node has the highest score is proportional to
// its weight. A weight below 1 counts as 1.
func nodeScore(m *Member, partition uint8) float64 {
	hash := xxh3.Hash(append([]byte(m.Name), 0, partition))
	u := (float64(hash>>12) + 0.5) / (1 << 52) // exact, and neither 0 nor 1
	return -float64(max(m.Weight, 1)) / math.Log(u)
}

// pickNodes returns the names of the nodes of one partition, in the order in which they are chosen.
// Their number is at most copies. scores[i] is the score of nodes[i] for this partition. Of two
// nodes with the same score, pickNodes chooses the first one in nodes.
func pickNodes(nodes []Member, scores []float64, copies int) (names []string) {
	var chosen []int // indexes of nodes
	for len(chosen) < min(copies, len(nodes)) {
		best := -1
		bestIsNewZone := false
		for i := range nodes {
			if slices.Contains(chosen, i) {
				continue
			}
			isNewZone := !slices.ContainsFunc(chosen, func(c int) bool { return nodes[c].Zone == nodes[i].Zone })
			// A new zone counts more than any score.
			hasBetterZone := isNewZone && !bestIsNewZone
			hasSameZoneRank := isNewZone == bestIsNewZone
			if best < 0 || hasBetterZone || hasSameZoneRank && scores[i] > scores[best] {
				best = i
				bestIsNewZone = isNewZone
			}
		}
		chosen = append(chosen, best)
		names = append(names, nodes[best].Name)
	}
	return names
}
