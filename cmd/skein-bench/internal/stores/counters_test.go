package stores

import (
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
)

func openCounters(t *testing.T) *countersStore {
	t.Helper()
	f, err := workload.OpenStore(t.TempDir(), monthStart(0)+(playDays+1)*day, func() projections.Projection {
		return counters.New(counters.DefaultSettings())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.CloseAndRemove(); err != nil {
			t.Error(err)
		}
	})
	return &countersStore{playStore{f}}
}

func TestPlaysAreSpreadOverItemsAndDays(t *testing.T) {
	plays := slices.Collect(spreadPlays(500).all)
	if !slices.Equal(plays, slices.Collect(spreadPlays(500).all)) {
		t.Error("the same size gave other plays")
	}
	items := make(map[uint64]int)
	for i, p := range plays {
		if items[p.item]++; i > 0 && p.playedAt <= plays[i-1].playedAt || p.playedAt >= monthStart(0)+playDays*day {
			t.Fatalf("play %d is at %d", i, p.playedAt)
		}
	}
	if len(plays) != 1000 || len(items) != 500 || items[workload.FirstID] < 5 {
		t.Errorf("%d plays of %d items, %d of the first", len(plays), len(items), items[workload.FirstID])
	}
}

// TestTrendingListIsComplete folds what the bench folds, and asks for it.
func TestTrendingListIsComplete(t *testing.T) {
	const items = 3000
	c := openCounters(t)
	if err := c.foldPlays(t.Context(), spreadPlays(items).all); err != nil {
		t.Fatal(err)
	}
	if err := c.checkTrending(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	first, next, err := c.readTrending(t.Context(), nil, trendingPageSize)
	if err != nil || len(first) != trendingPageSize || next == nil {
		t.Fatalf("got a page of %d items, %v, want %d and a cursor", len(first), err, trendingPageSize)
	}
	if err := c.checkTrending(t.Context(), items+1); err == nil || !strings.Contains(err.Error(), "3000 items, not 3001") {
		t.Errorf("an item too few: %v", err)
	}
}
