package serving

import (
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// TestDifferingAnswersAreFound changes the answers of one contender, and expects that the
// comparison notices.
func TestDifferingAnswersAreFound(t *testing.T) {
	g := workload.NewGraph(300, 3000, 1)
	q := drawQuestions(g, rand.New(rand.NewPCG(1, 1)), 100)
	names := []string{"one", "other"}
	good := newReferenceGraph(g)
	if err := q.compareAnswers(t.Context(), names, []graphQueries{good, newReferenceGraph(g)}); err != nil {
		t.Fatal(err)
	}
	late := newReferenceGraph(g)
	for e := range late.since {
		late.since[e]++
	}
	short := newReferenceGraph(g)
	short.lists[0] = short.lists[0][1:]
	empty := newReferenceGraph(g)
	empty.Graph = workload.NewGraph(300, 3000, 2)
	for name, bad := range map[string]graphQueries{"late": late, "short": short, "empty": empty} {
		if err := q.compareAnswers(t.Context(), names, []graphQueries{good, bad}); err == nil {
			t.Errorf("%s: expected an error for different answers", name)
		}
	}
}
