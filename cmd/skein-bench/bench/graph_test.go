package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestGraph(t *testing.T) {
	g := newGraph(500, 4000, 1)
	if !slices.Equal(g.edges, newGraph(500, 4000, 1).edges) {
		t.Error("the same seed gave another graph")
	}
	followers, seen := make([]int, g.users), make(map[edge]bool)
	for _, e := range g.edges {
		if e.follower == e.followee || seen[e] {
			t.Fatalf("follow %v is of oneself, or a repeat", e)
		}
		if !g.follows(e.follower, e.followee) {
			t.Fatalf("follow %v is not found", e)
		}
		seen[e] = true
		followers[e.followee]++
	}
	if !slices.Equal(followers, g.followers) {
		t.Error("the followers are counted wrongly")
	}
	if !slices.IsSortedFunc(followers, func(a, b int) int { return b - a }) {
		t.Error("users are not numbered by their followers")
	}
	if len(seen) != 4000 {
		t.Errorf("%d follows", len(seen))
	}
	for _, n := range []int{0, 1, 10, followers[0], followers[0] + 1} {
		want := 0
		for _, f := range followers {
			if f >= n {
				want++
			}
		}
		if got := g.withFollowers(n); got != want {
			t.Errorf("%d users have at least %d followers, want %d", got, n, want)
		}
	}
}

func TestQuestions(t *testing.T) {
	g, r := newGraph(500, 4000, 1), rand.New(rand.NewPCG(1, 1))
	for i, p := range g.pairs(r, 1000) {
		if g.follows(p.follower, p.followee) != (i%2 == 0) {
			t.Fatalf("pair %d: %v", i, p)
		}
	}
	for _, f := range g.filters(r, 200) {
		found := 0
		for _, c := range f.candidates {
			if g.follows(f.viewer, c) {
				found++
			}
		}
		if want := min(len(g.of(f.viewer)), filterSize/2); found != want || len(f.candidates) != filterSize {
			t.Fatalf("%d of %d candidates are followed, want %d", found, len(f.candidates), want)
		}
	}
}

// TestAgree lets answerers differ in one answer each.
func TestAgree(t *testing.T) {
	g := newGraph(300, 3000, 1)
	q := g.sample(rand.New(rand.NewPCG(1, 1)), 100)
	names := []string{"one", "other"}
	good := g.truth()
	if err := q.agree(t.Context(), names, []answerer{good, g.truth()}); err != nil {
		t.Fatal(err)
	}
	late := g.truth()
	for e := range late.since {
		late.since[e]++
	}
	short := g.truth()
	short.lists[0] = short.lists[0][1:]
	empty := g.truth()
	empty.followGraph = newGraph(300, 3000, 2)
	for name, bad := range map[string]answerer{"late": late, "short": short, "empty": empty} {
		if err := q.agree(t.Context(), names, []answerer{good, bad}); err == nil {
			t.Errorf("%s: nobody noticed", name)
		}
	}
}

func TestIDs(t *testing.T) {
	if userID(0) != "1000000000000" || userID(42) != "1000000000042" {
		t.Errorf("%s, %s: redis-benchmark writes random numbers with 12 digits", userID(0), userID(42))
	}
	seen := make(map[string]bool)
	for u := range uint32(10_000) {
		seen[wideID(u)] = true
	}
	if len(seen) != 10_000 {
		t.Errorf("%d different wide ids of 10,000", len(seen))
	}
}
