package serving

import (
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// TestDifferingAnswersAreFound lets answerers differ in one answer each.
func TestDifferingAnswersAreFound(t *testing.T) {
	g := workload.NewGraph(300, 3000, 1)
	q := sampleOf(g, rand.New(rand.NewPCG(1, 1)), 100)
	names := []string{"one", "other"}
	good := newTruth(g)
	if err := q.agree(t.Context(), names, []answerer{good, newTruth(g)}); err != nil {
		t.Fatal(err)
	}
	late := newTruth(g)
	for e := range late.since {
		late.since[e]++
	}
	short := newTruth(g)
	short.lists[0] = short.lists[0][1:]
	empty := newTruth(g)
	empty.Graph = workload.NewGraph(300, 3000, 2)
	for name, bad := range map[string]answerer{"late": late, "short": short, "empty": empty} {
		if err := q.agree(t.Context(), names, []answerer{good, bad}); err == nil {
			t.Errorf("%s: nobody noticed", name)
		}
	}
}
