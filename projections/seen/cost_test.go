package seen_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// allocated is how many bytes of memory are taken while do runs: that work is counted by it which
// merges rows over and over.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestPlayCostIsIndependentOfOtherPlays: a play costs as much among a hundred thousand of one user
// as among a thousand, whether they come in one batch or few at a time, and whether they are read
// in between or not.
func TestPlayCostIsIndependentOfOtherPlays(t *testing.T) {
	for name, each := range map[string]int{"one batch": 0, "a thousand at a time": 1000, "twenty at a time": 20} {
		perPlay := map[int]float64{}
		for _, n := range []int{1000, 100_000} {
			j := journalOf(t, seen.DefaultSettings(), store.Options{})
			evs := plays("ann", numbers(0, n)...)
			j.at(monthStart(2026, 5))
			bytes := allocated(func() {
				for len(evs) > 0 {
					some := len(evs)
					if each > 0 {
						some = min(each, some)
					}
					j.add(evs[:some]...)
					evs = evs[some:]
				}
				if unseen := j.ask("ann", 1, "0", strconv.Itoa(n-1), strconv.Itoa(n)); len(unseen) != 1 {
					t.Errorf("%v are unseen", unseen)
				}
			})
			perPlay[n] = float64(bytes) / float64(n)
			j.close()
		}
		t.Logf("%s: %.0f bytes a play among 1000, %.0f among 100 000", name, perPlay[1000], perPlay[100_000])
		if perPlay[100_000] > 4*perPlay[1000] {
			t.Errorf("%s: %.0f bytes a play among 100 000, %.0f among 1000", name, perPlay[100_000], perPlay[1000])
		}
	}
}
