package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Place assigns each partition to up to replicas nodes by weighted rendezvous hashing. It assigns nothing to nodes that are draining; if
// there are no other nodes, the lists of the table are empty. For each partition, every node has a score that depends only on the node's
// name, its weight and the partition. The nodes with the highest scores get the partition, highest first, but a node in a zone that has the
// partition already is chosen only after the nodes of all other zones.
//
// The result does not depend on the order of the nodes. A node that is added takes partitions from others, and no other node gets any. When
// a node is removed, only its partitions move. The number of a node's partitions varies around its share like a random sample: with a share
// of a quarter of 256 partitions, a node has 64 ± 7.
func Place(nodes []Member, replicas int) Table {
	t := Table{Replicas: replicas}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(m Member) bool { return m.Draining })
	slices.SortFunc(usable, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	scores := make([]float64, len(usable))
	for p := range t.Nodes {
		for i := range usable {
			scores[i] = score(&usable[i], uint8(p))
		}
		t.Nodes[p] = pickNodes(usable, scores, replicas)
	}
	return t
}

// score returns -weight/ln(u), where u is a hash of the node's name and the partition, as a number between 0 and 1. The probability that a
// node has the highest score is proportional to its weight.
func score(m *Member, partition uint8) float64 {
	hash := xxh3.Hash(append([]byte(m.Name), 0, partition))
	u := (float64(hash>>12) + 0.5) / (1 << 52) // exact, and neither 0 nor 1
	return -float64(max(m.Weight, 1)) / math.Log(u)
}

// pickNodes returns the names of the nodes of one partition.
func pickNodes(nodes []Member, scores []float64, replicas int) (names []string) {
	var chosen []int
	for len(chosen) < min(replicas, len(nodes)) {
		best, bestFresh := -1, false
		for i := range nodes {
			if slices.Contains(chosen, i) {
				continue
			}
			fresh := !slices.ContainsFunc(chosen, func(c int) bool { return nodes[c].Zone == nodes[i].Zone })
			if best < 0 || fresh && !bestFresh || fresh == bestFresh && scores[i] > scores[best] {
				best, bestFresh = i, fresh
			}
		}
		chosen = append(chosen, best)
		names = append(names, nodes[best].Name)
	}
	return names
}
