package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Place assigns each partition to up to copies nodes by weighted rendezvous hashing. It assigns
// nothing to nodes that are draining; if there are no other nodes, the lists of the table are
// empty. For each partition, every node has a score that depends only on the node's name, the
// node's weight and the partition. The nodes with the highest scores get the partition, the highest
// score first. A node in a zone that already has a copy is chosen only when each zone has one.
//
// The order of the nodes does not matter. A node that is added takes partitions from other nodes;
// no other node gets any. When a node is removed, only its partitions move. How many partitions a
// node gets varies like a random sample around its share by weight: for a share of one quarter, 64
// of the 256 partitions, the standard deviation is 7 partitions.
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
// its weight.
func nodeScore(m *Member, partition uint8) float64 {
	hash := xxh3.Hash(append([]byte(m.Name), 0, partition))
	u := (float64(hash>>12) + 0.5) / (1 << 52) // exact, and neither 0 nor 1
	return -float64(max(m.Weight, 1)) / math.Log(u)
}

// pickNodes returns the names of the nodes of one partition, at most copies of them. scores[i] is
// the score of nodes[i] for this partition.
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
