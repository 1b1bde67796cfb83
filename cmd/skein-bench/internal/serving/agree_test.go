package serving

import (
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// TestDifferingAnswersAreFound checks that the comparison of two contenders fails if the answers of
// one of them are wrong, and only then.
func TestDifferingAnswersAreFound(t *testing.T) {
	g := workload.NewGraph(300, 3000, 1)
	questions := drawQuestions(g, rand.New(rand.NewPCG(1, 1)), 100)
	names := []string{"correct", "compared"}
	correct := newReferenceGraph(g)
	if err := questions.compareAnswers(t.Context(), names, []graphQueries{correct, newReferenceGraph(g)}); err != nil {
		t.Fatalf("compareAnswers of equal contenders: got error %v, want none", err)
	}

	wrongTimes := newReferenceGraph(g)
	for e := range wrongTimes.since {
		wrongTimes.since[e]++
	}
	missingFollower := newReferenceGraph(g)
	missingFollower.lists[0] = missingFollower.lists[0][1:]
	otherFollows := newReferenceGraph(g)
	otherFollows.Graph = workload.NewGraph(300, 3000, 2)
	for name, wrong := range map[string]graphQueries{
		"wrong times": wrongTimes, "a missing follower": missingFollower, "other follows": otherFollows,
	} {
		t.Run(name, func(t *testing.T) {
			if err := questions.compareAnswers(t.Context(), names, []graphQueries{correct, wrong}); err == nil {
				t.Error("compareAnswers: got no error, want one")
			}
		})
	}
}
