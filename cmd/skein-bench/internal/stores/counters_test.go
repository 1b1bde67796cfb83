package stores

import (
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
)

// openCounters opens an empty store of counters, which is removed at the end of the test.
func openCounters(t *testing.T) *countersStore {
	t.Helper()
	s, err := workload.OpenStore(t.TempDir(), monthStart(0)+(playDays+1)*day, func() projections.Projection {
		return counters.New(counters.DefaultSettings())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.CloseAndRemove(); err != nil {
			t.Error(err)
		}
	})
	return &countersStore{playStore{s}}
}

func TestPlaysAreSpreadOverItemsAndDays(t *testing.T) {
	plays := slices.Collect(spreadPlays(500).all)
	if again := slices.Collect(spreadPlays(500).all); !slices.Equal(plays, again) {
		t.Error("plays of the same size: got other plays, want the same")
	}

	playsOfItem := make(map[uint64]int)
	end := monthStart(0) + playDays*day
	for i, p := range plays {
		playsOfItem[p.item]++
		if i > 0 && p.playedAt <= plays[i-1].playedAt {
			t.Fatalf("time of play %d: got %d, want it after %d", i, p.playedAt, plays[i-1].playedAt)
		}
		if p.playedAt >= end {
			t.Fatalf("time of play %d: got %d, want it before %d", i, p.playedAt, end)
		}
	}
	if len(plays) != 1000 {
		t.Errorf("plays: got %d, want 1000", len(plays))
	}
	if len(playsOfItem) != 500 {
		t.Errorf("played items: got %d, want 500", len(playsOfItem))
	}

	// The first item is the most popular one.
	if got := playsOfItem[workload.FirstID]; got < 5 {
		t.Errorf("plays of the first item: got %d, want at least 5", got)
	}
}

// TestTrendingListIsComplete folds the plays that the bench folds, and reads the list of trending
// items as the bench does.
func TestTrendingListIsComplete(t *testing.T) {
	const items = 3000
	c := openCounters(t)
	if err := c.foldPlays(t.Context(), spreadPlays(items).all); err != nil {
		t.Fatal(err)
	}
	if err := c.checkTrending(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	page, next, err := c.readTrending(t.Context(), nil, trendingPageSize)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) != trendingPageSize || next == nil {
		t.Fatalf("first page: got %d items and the cursor %v, want %d items and a cursor", len(page), next, trendingPageSize)
	}

	// The check must notice that an item is missing.
	const want = "3000 items, not 3001"
	if err := c.checkTrending(t.Context(), items+1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("checkTrending: got error %v, want one with %q", err, want)
	}
}
