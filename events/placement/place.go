package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// Place returns the table of some nodes, of which those that drain get nothing: weighted rendezvous hashing. For each partition every
// node has a score, which depends on nothing but its name, its weight and the partition; the partition belongs to the nodes with the
// highest scores, in that order. Nodes of a zone that has the partition already come after all others. Without a usable node no partition
// has one.
//
// The result does not depend on the order of the nodes. An added node takes partitions from others, and no other node gets any; when a
// node is removed, only its partitions are moved. The number of partitions of a node varies about its share like a random sample: of
// 256 partitions, a node with a share of a quarter has 64 ± 7.
func Place(nodes []Member, replicas int) Table {
	t := Table{Replicas: replicas}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(m Member) bool { return m.Draining })
	slices.SortFunc(usable, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	scores := make([]float64, len(usable))
	for p := range t.Nodes {
		for i := range usable {
			scores[i] = score(&usable[i], uint8(p))
		}
		t.Nodes[p] = pick(usable, scores, replicas)
	}
	return t
}

// score is greater than that of another node with a probability that is proportional to the weight: -weight/ln(u), where u is a hash
// of name and partition as a number between 0 and 1.
func score(m *Member, partition uint8) float64 {
	hash := xxh3.Hash(append([]byte(m.Name), 0, partition))
	u := (float64(hash>>12) + 0.5) / (1 << 52) // exact, and neither 0 nor 1
	return -float64(max(m.Weight, 1)) / math.Log(u)
}

// pick returns the names of the nodes of one partition.
func pick(nodes []Member, scores []float64, replicas int) (names []string) {
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
