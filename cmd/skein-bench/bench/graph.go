package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/events"
)

// Exponents of the two power laws: how unequal users are as followees and as followers. With 100,000 users and ten
// follows a user the most followed one has some 30,000 followers, the most eager one some 3,000 followees.
const (
	followeeSkew = 0.7
	followerSkew = 0.5
)

// firstFollow is the time of the first follow of the graph; each next one is a millisecond later.
const firstFollow events.Micros = 1_700_000_000_000_000

// Ids are decimal numbers of 13 digits: a 1, then the number of the user as redis-benchmark writes its random numbers.
const firstID = 1_000_000_000_000

func userID(user uint32) string { return strconv.FormatUint(firstID+uint64(user), 10) }

// edge is one follow.
type edge struct{ follower, followee uint32 }

// followGraph is a follow graph. Users are numbered by their followers, the most followed first, so that the users with
// long lists are the first ones.
type followGraph struct {
	users int
	// edges are the follows in the order of time.
	edges []edge
	// following holds the followees of all users, one user after the other, each in rising order; of user u those
	// from start[u] to start[u+1].
	following []uint32
	start     []int
	// followers is how many followers each user has.
	followers []int
}

// newGraph makes a graph from a seed, always the same.
func newGraph(users, edges int, seed uint64) *followGraph {
	r := rand.New(rand.NewPCG(seed, 0))
	eager := r.Perm(users) // who follows much is not who is followed much
	var pairs []uint64
	for len(pairs) < edges {
		for range (edges - len(pairs)) * 5 / 4 {
			a, b := eager[powerLaw(r, users, followerSkew)], powerLaw(r, users, followeeSkew)
			if a != b {
				pairs = append(pairs, uint64(a)<<32|uint64(b))
			}
		}
		slices.Sort(pairs)
		pairs = slices.Compact(pairs)
	}
	r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	g := &followGraph{users: users, edges: make([]edge, edges), followers: make([]int, users)}
	for i, p := range pairs[:edges] {
		g.edges[i] = edge{uint32(p >> 32), uint32(p)}
		g.followers[uint32(p)]++
	}
	g.number()
	g.index()
	return g
}

// powerLaw draws a number below n: k with a probability falling as (k+1)^-skew.
func powerLaw(r *rand.Rand, n int, skew float64) int {
	return min(n-1, int(float64(n)*math.Pow(r.Float64(), 1/(1-skew))))
}

// number gives users new numbers, by falling number of followers.
func (g *followGraph) number() {
	byRank := make([]uint32, g.users)
	for i := range byRank {
		byRank[i] = uint32(i)
	}
	slices.SortStableFunc(byRank, func(a, b uint32) int { return g.followers[b] - g.followers[a] })
	rank, followers := make([]uint32, g.users), make([]int, g.users)
	for i, u := range byRank {
		rank[u], followers[i] = uint32(i), g.followers[u]
	}
	for i, e := range g.edges {
		g.edges[i] = edge{rank[e.follower], rank[e.followee]}
	}
	g.followers = followers
}

func (g *followGraph) index() {
	g.start = make([]int, g.users+1)
	for _, e := range g.edges {
		g.start[e.follower+1]++
	}
	for u := range g.users {
		g.start[u+1] += g.start[u]
	}
	g.following = make([]uint32, len(g.edges))
	next := slices.Clone(g.start)
	for _, e := range g.edges {
		g.following[next[e.follower]] = e.followee
		next[e.follower]++
	}
	for u := range g.users {
		slices.Sort(g.of(uint32(u)))
	}
}

// of returns the followees of a user in rising order.
func (g *followGraph) of(user uint32) []uint32 { return g.following[g.start[user]:g.start[user+1]] }

func (g *followGraph) follows(a, b uint32) bool {
	_, ok := slices.BinarySearch(g.of(a), b)
	return ok
}

// since is the time of the i-th follow.
func (g *followGraph) since(i int) events.Micros {
	return firstFollow + events.Micros(time.Duration(i)*time.Millisecond/time.Microsecond)
}

// withFollowers returns how many users have at least n followers: they are the first ones.
func (g *followGraph) withFollowers(n int) int {
	k, _ := slices.BinarySearchFunc(g.followers, n, func(have, n int) int {
		if have >= n {
			return -1
		}
		return 1
	})
	return k
}

// stranger returns a random user whom a does not follow.
func (g *followGraph) stranger(r *rand.Rand, a uint32) uint32 {
	for {
		if b := uint32(r.IntN(g.users)); b != a && !g.follows(a, b) {
			return b
		}
	}
}

// pairs returns n random pairs: every second one is a follow, the others are not.
func (g *followGraph) pairs(r *rand.Rand, n int) []edge {
	out := make([]edge, n)
	for i := range out {
		out[i] = g.edges[r.IntN(len(g.edges))]
		if i%2 == 1 {
			out[i].followee = g.stranger(r, out[i].follower)
		}
	}
	return out
}

// filter is the question which of some candidates the viewer follows.
type filter struct {
	viewer     uint32
	candidates []uint32
}

// filters returns n random filters, half of the candidates followed as far as the viewer follows as many.
func (g *followGraph) filters(r *rand.Rand, n int) []filter {
	out := make([]filter, n)
	for i := range out {
		viewer := g.edges[r.IntN(len(g.edges))].follower
		f := filter{viewer: viewer}
		followees := g.of(viewer)
		for _, j := range r.Perm(len(followees))[:min(len(followees), filterSize/2)] {
			f.candidates = append(f.candidates, followees[j])
		}
		for len(f.candidates) < filterSize {
			f.candidates = append(f.candidates, g.stranger(r, viewer))
		}
		r.Shuffle(filterSize, func(a, b int) {
			f.candidates[a], f.candidates[b] = f.candidates[b], f.candidates[a]
		})
		out[i] = f
	}
	return out
}
