//go:build peers

package main

import (
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// TestQuick runs the smoke test of the bench with the real programs. It is behind a tag because it
// needs redis-server, redis-benchmark and wrk, which go test ./... must not: go test -C
// cmd/skein-bench -tags peers .
func TestQuick(t *testing.T) {
	report := runBench(t, measure.Options{}.SmokeTest())
	measured := make(map[string]bool)
	for _, r := range report.Rows {
		measured[r.ID] = true
		for _, s := range r.Series {
			if len(s.Values) != 1 || s.Median <= 0 {
				t.Errorf("values of %s, %s: got %v, want one above 0", r.ID, s.Name, s.Values)
			}
		}
		if len(r.Comparisons) == 0 {
			t.Errorf("comparisons of %s: got none, want some", r.ID)
		}
		for _, c := range r.Comparisons {
			// This form also finds a ratio that is not a number.
			if !(c.Ratio > 0) {
				t.Errorf("ratio of %s to %s in %s: got %v, want more than 0", c.Of, c.To, r.ID, c.Ratio)
			}
		}
	}
	for _, id := range []string{
		"check", "check-json", "filter", "filter-json", "newest", "newest-json", "ingest", "ingest-plays", "constant-follow",
		"inprocess-check", "disk-dense", "disk-wide", "disk-wide-175", "feed-fanout", "feed-fanout-core", "feed-bytes", "feed-page-light",
		"feed-page-heavy", "feed-page-returning", "seen-fold", "seen-fold-core", "seen-fold-sealing", "seen-fold-sealing-core",
		"seen-bytes-200", "seen-filter", "seen-filter-page", "counters-load", "counters-hot", "counters-batch",
		"notifications-fold", "notifications-fold-core", "notifications-bytes", "notifications-badge", "notifications-page",
		"notifications-page-day",
		"replay-graph", "replay-graph-core", "replay-bytes-graph", "replay-inbox", "replay-bytes-inbox", "replay-seen",
		"replay-bytes-seen", "replay-counters", "replay-counters-core", "replay-bytes-counters", "replay-round",
	} {
		if !measured[id] {
			t.Errorf("row %s: got none, want one", id)
		}
	}
	if m := report.Machine; m.CPU == "" || m.Redis == "unknown" || m.Wrk == "unknown" {
		t.Errorf("machine: got %+v, want it with its processor, and the versions of Redis and wrk", m)
	}
}
