package workload

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGraphIsConsistentAndRepeatable(t *testing.T) {
	g := NewGraph(500, 4000, 1)
	if !slices.Equal(g.Edges, NewGraph(500, 4000, 1).Edges) {
		t.Error("the same seed gave another graph")
	}
	followers := make([]int, g.Users)
	seen := make(map[Edge]bool)
	for _, e := range g.Edges {
		if e.Follower == e.Followee || seen[e] {
			t.Fatalf("follow %v is of oneself, or a repeat", e)
		}
		if !g.Follows(e.Follower, e.Followee) {
			t.Fatalf("follow %v is not found", e)
		}
		seen[e] = true
		followers[e.Followee]++
	}
	if !slices.Equal(followers, g.Followers) {
		t.Error("the followers are counted wrongly")
	}
	if !slices.IsSortedFunc(followers, func(a, b int) int { return b - a }) {
		t.Error("users are not numbered by their followers")
	}
	if len(seen) != 4000 {
		t.Errorf("expected 4000 follows, got %d", len(seen))
	}
	for _, n := range []int{0, 1, 10, followers[0], followers[0] + 1} {
		want := 0
		for _, f := range followers {
			if f >= n {
				want++
			}
		}
		if got := g.CountWithFollowers(n); got != want {
			t.Errorf("%d users have at least %d followers, want %d", got, n, want)
		}
	}
}

func TestHalfOfRandomQuestionsAreFollows(t *testing.T) {
	g := NewGraph(500, 4000, 1)
	r := rand.New(rand.NewPCG(1, 1))
	for i, p := range g.Pairs(r, 1000) {
		if g.Follows(p.Follower, p.Followee) != (i%2 == 0) {
			t.Fatalf("pair %d: %v", i, p)
		}
	}
	for _, f := range g.Filters(r, 200) {
		found := 0
		for _, c := range f.Candidates {
			if g.Follows(f.Viewer, c) {
				found++
			}
		}
		if want := min(len(g.FolloweesOf(f.Viewer)), FilterSize/2); found != want || len(f.Candidates) != FilterSize {
			t.Fatalf("%d of %d candidates are followed, want %d", found, len(f.Candidates), want)
		}
	}
}

func TestIDsHaveThirteenDigits(t *testing.T) {
	if UserID(0) != "1000000000000" || UserID(42) != "1000000000042" {
		t.Errorf("%s, %s: redis-benchmark writes random numbers with 12 digits", UserID(0), UserID(42))
	}
}
