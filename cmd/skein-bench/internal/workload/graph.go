package workload

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
	FolloweeSkew = 0.7
	FollowerSkew = 0.5
)

// Questions about the graph.
const (
	// FilterSize is how many candidates a filter has.
	FilterSize = 25
	// PageSize is how many entries a page of followers has.
	PageSize = 50
	// DistinctRequests is how many different requests are sent in turn.
	DistinctRequests = 50_000
)

// FirstFollow is the time of the first follow of the graph; each next one is a millisecond later.
const FirstFollow events.Micros = 1_700_000_000_000_000

// FirstID is the id of user 0. Ids are decimal numbers of 13 digits: a 1, then the number of the user as redis-benchmark writes its
// random numbers.
const FirstID = 1_000_000_000_000

// UserID is the id of a user.
func UserID(user uint32) string { return strconv.FormatUint(FirstID+uint64(user), 10) }

// Edge is one follow.
type Edge struct{ Follower, Followee uint32 }

// Graph is a follow graph. Users are numbered by their followers, the most followed first, so that the users with
// long lists are the first ones.
type Graph struct {
	Users int
	// Edges are the follows in the order of time.
	Edges []Edge
	// following holds the followees of all users, one user after the other, each in rising order; of user u those
	// from start[u] to start[u+1].
	followees      []uint32
	followeesStart []int
	// Followers is how many followers each user has.
	Followers []int
}

// NewGraph makes a graph from a seed, always the same.
func NewGraph(users, edges int, seed uint64) *Graph {
	r := rand.New(rand.NewPCG(seed, 0))
	eager := r.Perm(users) // who follows much is not who is followed much
	var pairs []uint64
	for len(pairs) < edges {
		for range (edges - len(pairs)) * 5 / 4 {
			a, b := eager[PowerLaw(r, users, FollowerSkew)], PowerLaw(r, users, FolloweeSkew)
			if a != b {
				pairs = append(pairs, uint64(a)<<32|uint64(b))
			}
		}
		slices.Sort(pairs)
		pairs = slices.Compact(pairs)
	}
	r.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	g := &Graph{Users: users, Edges: make([]Edge, edges), Followers: make([]int, users)}
	for i, p := range pairs[:edges] {
		g.Edges[i] = Edge{uint32(p >> 32), uint32(p)}
		g.Followers[uint32(p)]++
	}
	g.renumberByFollowers()
	g.indexFollowees()
	return g
}

// PowerLaw draws a number below n: k with a probability falling as (k+1)^-skew.
func PowerLaw(r *rand.Rand, n int, skew float64) int {
	return min(n-1, int(float64(n)*math.Pow(r.Float64(), 1/(1-skew))))
}

// number gives users new numbers, by falling number of followers.
func (g *Graph) renumberByFollowers() {
	byRank := make([]uint32, g.Users)
	for i := range byRank {
		byRank[i] = uint32(i)
	}
	slices.SortStableFunc(byRank, func(a, b uint32) int { return g.Followers[b] - g.Followers[a] })
	rank, followers := make([]uint32, g.Users), make([]int, g.Users)
	for i, u := range byRank {
		rank[u], followers[i] = uint32(i), g.Followers[u]
	}
	for i, e := range g.Edges {
		g.Edges[i] = Edge{rank[e.Follower], rank[e.Followee]}
	}
	g.Followers = followers
}

func (g *Graph) indexFollowees() {
	g.followeesStart = make([]int, g.Users+1)
	for _, e := range g.Edges {
		g.followeesStart[e.Follower+1]++
	}
	for u := range g.Users {
		g.followeesStart[u+1] += g.followeesStart[u]
	}
	g.followees = make([]uint32, len(g.Edges))
	next := slices.Clone(g.followeesStart)
	for _, e := range g.Edges {
		g.followees[next[e.Follower]] = e.Followee
		next[e.Follower]++
	}
	for u := range g.Users {
		slices.Sort(g.Of(uint32(u)))
	}
}

// Of returns the followees of a user in rising order.
func (g *Graph) Of(user uint32) []uint32 {
	return g.followees[g.followeesStart[user]:g.followeesStart[user+1]]
}

// Follows reports whether user a follows user b.
func (g *Graph) Follows(a, b uint32) bool {
	_, ok := slices.BinarySearch(g.Of(a), b)
	return ok
}

// Since is the time of the i-th follow.
func (g *Graph) Since(i int) events.Micros {
	return FirstFollow + events.Micros(time.Duration(i)*time.Millisecond/time.Microsecond)
}

// CountWithFollowers returns how many users have at least n followers: they are the first ones.
func (g *Graph) CountWithFollowers(n int) int {
	k, _ := slices.BinarySearchFunc(g.Followers, n, func(have, n int) int {
		if have >= n {
			return -1
		}
		return 1
	})
	return k
}

// RandomNonFollowee returns a random user whom a does not follow.
func (g *Graph) RandomNonFollowee(r *rand.Rand, a uint32) uint32 {
	for {
		if b := uint32(r.IntN(g.Users)); b != a && !g.Follows(a, b) {
			return b
		}
	}
}

// Pairs returns n random pairs: every second one is a follow, the others are not.
func (g *Graph) Pairs(r *rand.Rand, n int) []Edge {
	out := make([]Edge, n)
	for i := range out {
		out[i] = g.Edges[r.IntN(len(g.Edges))]
		if i%2 == 1 {
			out[i].Followee = g.RandomNonFollowee(r, out[i].Follower)
		}
	}
	return out
}

// Filter is the question which of some candidates the viewer follows.
type Filter struct {
	Viewer     uint32
	Candidates []uint32
}

// Filters returns n random filters, half of the candidates followed as far as the viewer follows as many.
func (g *Graph) Filters(r *rand.Rand, n int) []Filter {
	out := make([]Filter, n)
	for i := range out {
		viewer := g.Edges[r.IntN(len(g.Edges))].Follower
		f := Filter{Viewer: viewer}
		followees := g.Of(viewer)
		for _, j := range r.Perm(len(followees))[:min(len(followees), FilterSize/2)] {
			f.Candidates = append(f.Candidates, followees[j])
		}
		for len(f.Candidates) < FilterSize {
			f.Candidates = append(f.Candidates, g.RandomNonFollowee(r, viewer))
		}
		r.Shuffle(FilterSize, func(a, b int) {
			f.Candidates[a], f.Candidates[b] = f.Candidates[b], f.Candidates[a]
		})
		out[i] = f
	}
	return out
}

// Coprime draws a number that shares no divisor with n.
func Coprime(r *rand.Rand, n int) int {
	for {
		step := 1 + r.IntN(n)
		a, b := n, step
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return step
		}
	}
}
