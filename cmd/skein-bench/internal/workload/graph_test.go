package workload

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGraphIsConsistentAndRepeatable(t *testing.T) {
	g := NewGraph(500, 4000, 1)
	if again := NewGraph(500, 4000, 1); !slices.Equal(g.Edges, again.Edges) {
		t.Error("graph of the same seed: got another one, want the same")
	}

	followerCounts := make([]int, g.Users)
	seen := make(map[Edge]bool)
	for _, e := range g.Edges {
		if e.Follower == e.Followee || seen[e] {
			t.Fatalf("follow %v: got one of oneself, or a repeat, want neither", e)
		}
		seen[e] = true
		if !g.Follows(e.Follower, e.Followee) {
			t.Fatalf("Follows of %v: got false, want true", e)
		}
		followerCounts[e.Followee]++
	}
	if len(seen) != 4000 {
		t.Errorf("follows: got %d, want 4000", len(seen))
	}
	if !slices.Equal(g.Followers, followerCounts) {
		t.Errorf("counts of followers: got %v, want %v", g.Followers, followerCounts)
	}

	// Users are numbered by their followers, the most followed one first.
	if !slices.IsSortedFunc(followerCounts, func(a, b int) int { return b - a }) {
		t.Errorf("counts of followers: got %v, want the greatest first", followerCounts)
	}

	for _, least := range []int{0, 1, 10, followerCounts[0], followerCounts[0] + 1} {
		want := 0
		for _, count := range followerCounts {
			if count >= least {
				want++
			}
		}
		if got := g.CountWithFollowers(least); got != want {
			t.Errorf("users with at least %d followers: got %d, want %d", least, got, want)
		}
	}
}

func TestHalfOfRandomQuestionsAreFollows(t *testing.T) {
	g := NewGraph(500, 4000, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for i, pair := range g.Pairs(rng, 1000) {
		want := i%2 == 0
		if got := g.Follows(pair.Follower, pair.Followee); got != want {
			t.Fatalf("pair %d, %v, follows: got %v, want %v", i, pair, got, want)
		}
	}

	for _, filter := range g.Filters(rng, 200) {
		if got := len(filter.Candidates); got != FilterSize {
			t.Fatalf("candidates of %d: got %d, want %d", filter.Viewer, got, FilterSize)
		}
		followed := 0
		for _, candidate := range filter.Candidates {
			if g.Follows(filter.Viewer, candidate) {
				followed++
			}
		}

		// A viewer who follows too few users has all of them among the candidates.
		if want := min(len(g.FolloweesOf(filter.Viewer)), FilterSize/2); followed != want {
			t.Fatalf("followed candidates of %d: got %d, want %d", filter.Viewer, followed, want)
		}
	}
}

// TestIDsHaveThirteenDigits checks the form that redis-benchmark needs, which writes random numbers
// with 12 digits: they come behind a 1.
func TestIDsHaveThirteenDigits(t *testing.T) {
	for user, want := range map[uint32]string{0: "1000000000000", 42: "1000000000042"} {
		if got := UserID(user); got != want {
			t.Errorf("UserID(%d): got %s, want %s", user, got, want)
		}
	}
}
