package seen_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// countAllocatedBytes returns how many bytes of memory are allocated while do runs. A fold that merges
// rows over and over allocates many.
func countAllocatedBytes(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestPlayCostIsIndependentOfOtherPlays checks that a play costs about as much among 100,000 plays of
// one user as among 1,000, whether they are folded in one call or a few at a time.
func TestPlayCostIsIndependentOfOtherPlays(t *testing.T) {
	for name, perCall := range map[string]int{"one call": 0, "a thousand per call": 1000, "twenty per call": 20} {
		t.Run(name, func(t *testing.T) {
			perPlay := map[int]float64{}
			for _, n := range []int{1000, 100_000} {
				j := newTestLog(t, seen.DefaultSettings(), store.Options{})
				evs := newPlays("ann", itemNumbers(0, n)...)
				j.advanceTo(monthStart(2026, 5))
				bytes := countAllocatedBytes(func() {
					for len(evs) > 0 {
						some := len(evs)
						if perCall > 0 {
							some = min(perCall, some)
						}
						j.add(evs[:some]...)
						evs = evs[some:]
					}
					unseen := j.findUnseen("ann", 1, "0", strconv.Itoa(n-1), strconv.Itoa(n))
					if len(unseen) != 1 {
						t.Errorf("got the indexes %v of unseen items, want only 2, the item that was not played", unseen)
					}
				})
				perPlay[n] = float64(bytes) / float64(n)
				j.close()
			}

			t.Logf("%.0f bytes per play among 1,000, %.0f among 100,000", perPlay[1000], perPlay[100_000])
			if perPlay[100_000] > 4*perPlay[1000] {
				t.Errorf("got %.0f bytes per play among 100,000, want at most four times the %.0f among 1,000",
					perPlay[100_000], perPlay[1000])
			}
		})
	}
}
