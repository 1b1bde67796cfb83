package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/events"
)

// The exponents of two power laws say how unequal users are as followees and as followers: 0 would
// make all equal. With 100,000 users and ten follows per user, the user with most followers has
// some 30,000 of them, and the user who follows most follows some 3,000.
const (
	FolloweeSkew = 0.7
	FollowerSkew = 0.5
)

// The sizes of the questions that rows ask about the graph.
const (
	// FilterSize is how many candidates a filter has.
	FilterSize = 25
	// PageSize is how many entries a page of followers has.
	PageSize = 50
	// DistinctRequests is how many different requests a row sends, one after the other and then
	// again from the first.
	DistinctRequests = 50_000
)

// FirstFollow is the time of the first follow of the graph. Each further follow is a millisecond
// later.
const FirstFollow events.Micros = 1_700_000_000_000_000

// FirstID is the id of user 0. The id of a user has 13 digits: a 1, and then the number of the user
// in 12 digits, as redis-benchmark writes the random numbers in its commands.
const FirstID = 1_000_000_000_000

// UserID returns the id of the user with a number.
func UserID(user uint32) string { return strconv.FormatUint(FirstID+uint64(user), 10) }

// Edge is one follow between two users, who are given by their numbers.
type Edge struct{ Follower, Followee uint32 }

// Graph is a follow graph. Users have numbers from 0 in the order of their number of followers,
// largest first. So the users with long lists of followers are the first ones.
type Graph struct {
	Users int
	// Edges are the follows in the order of time.
	Edges []Edge
	// followees has the followees of all users, one user after the other, and those of a user in
	// rising order. Those of user u begin at followeesStart[u] and end before followeesStart[u+1].
	followees      []uint32
	followeesStart []int
	// Followers has the number of followers of each user.
	Followers []int
}

// NewGraph makes a random graph. The same seed always gives the same graph.
func NewGraph(users, edges int, seed uint64) *Graph {
	r := rand.New(rand.NewPCG(seed, 0))
	// Users who follow many others are not those who have many followers, so the two power laws
	// rank users differently.
	byEagerness := r.Perm(users)

	// Draw pairs until there are enough different ones. A pair is one number, so that sorting finds
	// the repeats. A quarter more are drawn than are lacking, because some of them will be repeats.
	var pairs []uint64
	for len(pairs) < edges {
		for range (edges - len(pairs)) * 5 / 4 {
			follower := byEagerness[PowerLaw(r, users, FollowerSkew)]
			followee := PowerLaw(r, users, FolloweeSkew)
			if follower != followee {
				pairs = append(pairs, uint64(follower)<<32|uint64(followee))
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

// PowerLaw draws a number below n. The probability of k is proportional to (k+1)^-skew.
func PowerLaw(r *rand.Rand, n int, skew float64) int {
	return min(n-1, int(float64(n)*math.Pow(r.Float64(), 1/(1-skew))))
}

// renumberByFollowers gives users new numbers, so that the user with most followers is user 0.
func (g *Graph) renumberByFollowers() {
	byRank := make([]uint32, g.Users)
	for i := range byRank {
		byRank[i] = uint32(i)
	}
	slices.SortStableFunc(byRank, func(a, b uint32) int { return g.Followers[b] - g.Followers[a] })

	rank := make([]uint32, g.Users)
	followers := make([]int, g.Users)
	for i, user := range byRank {
		rank[user] = uint32(i)
		followers[i] = g.Followers[user]
	}
	for i, e := range g.Edges {
		g.Edges[i] = Edge{rank[e.Follower], rank[e.Followee]}
	}
	g.Followers = followers
}

// indexFollowees fills followees and followeesStart from the edges.
func (g *Graph) indexFollowees() {
	// Count the followees of each user, and add the counts up to where the followees of each user
	// start.
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
		slices.Sort(g.FolloweesOf(uint32(u)))
	}
}

// FolloweesOf returns the followees of a user in rising order.
func (g *Graph) FolloweesOf(user uint32) []uint32 {
	return g.followees[g.followeesStart[user]:g.followeesStart[user+1]]
}

// Follows reports whether user a follows user b.
func (g *Graph) Follows(a, b uint32) bool {
	_, ok := slices.BinarySearch(g.FolloweesOf(a), b)
	return ok
}

// FollowTime returns the time of the i-th follow.
func (g *Graph) FollowTime(i int) events.Micros {
	return FirstFollow + events.Micros(time.Duration(i)*time.Millisecond/time.Microsecond)
}

// CountWithFollowers returns how many users have at least n followers. They are the users with the
// lowest numbers.
func (g *Graph) CountWithFollowers(n int) int {
	count, _ := slices.BinarySearchFunc(g.Followers, n, func(have, n int) int {
		if have >= n {
			return -1
		}
		return 1
	})
	return count
}

// RandomNonFollowee returns a random user other than a whom a does not follow.
func (g *Graph) RandomNonFollowee(r *rand.Rand, a uint32) uint32 {
	for {
		if b := uint32(r.IntN(g.Users)); b != a && !g.Follows(a, b) {
			return b
		}
	}
}

// Pairs returns n random pairs of users. In the first, third, fifth … pair the follower follows the
// followee, in the others not.
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

// Filter is the question which of the candidates the viewer follows.
type Filter struct {
	Viewer     uint32
	Candidates []uint32
}

// Filters returns n random filters. The viewer follows half of the candidates, or fewer if the
// viewer does not follow that many users.
func (g *Graph) Filters(r *rand.Rand, n int) []Filter {
	out := make([]Filter, n)
	for i := range out {
		// The follower of a random edge: a user who follows many others is drawn more often.
		viewer := g.Edges[r.IntN(len(g.Edges))].Follower
		f := Filter{Viewer: viewer}

		followees := g.FolloweesOf(viewer)
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

// Coprime draws a number from 1 to n that has no divisor in common with n. Steps of that size visit
// all numbers below n before one repeats.
func Coprime(r *rand.Rand, n int) int {
	for {
		step := 1 + r.IntN(n)

		// Euclid's algorithm ends with the greatest common divisor in a.
		a, b := n, step
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return step
		}
	}
}
