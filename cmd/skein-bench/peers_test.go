//go:build peers

package main

import (
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// TestQuick runs the smoke test of the bench with the real programs. It is behind a tag because it needs redis-server,
// redis-benchmark and wrk, which go test ./... must not: go test -C cmd/skein-bench -tags peers .
func TestQuick(t *testing.T) {
	report := runBench(t, measure.Options{}.Quickly())
	measured := make(map[string]bool)
	for _, r := range report.Rows {
		measured[r.ID] = true
		for _, s := range r.Series {
			want := 1
			if r.ID == "seen-expiry-written" || r.ID == "seen-expiry-fold" {
				want = 7 // days
			}
			if len(s.Values) != want || s.Median <= 0 {
				t.Errorf("%s: %s: %v", r.ID, s.Name, s.Values)
			}
		}
		if len(r.Comparisons) == 0 {
			t.Errorf("%s is held against nothing", r.ID)
		}
		for _, c := range r.Comparisons {
			if !(c.Ratio > 0) {
				t.Errorf("%s: %s against %s: %v", r.ID, c.Of, c.To, c.Ratio)
			}
		}
	}
	for _, id := range []string{
		"check", "check-json", "filter", "filter-json", "newest", "newest-json", "ingest", "constant-follow",
		"constant-unfollow", "constant-exclusion", "constant-count", "constant-page", "inprocess-check", "inprocess-filter", "disk-dense", "disk-wide",
		"disk-wide-175", "feed-fanout", "feed-fanout-core", "feed-bytes", "feed-load", "feed-page-light", "feed-page-heavy",
		"feed-page-returning", "feed-delay", "seen-fold", "seen-fold-core", "seen-fold-sealing", "seen-fold-sealing-core",
		"seen-written", "seen-bytes-200", "seen-bytes-3300", "seen-filter", "seen-filter-page", "seen-false-10",
		"seen-false-1000", "seen-false-10000", "seen-false-100000", "seen-expiry-written", "seen-expiry-fold",
		"seen-expiry-disk", "counters-load", "counters-hot", "counters-hot-100", "counters-hot-rows", "counters-batch", "counters-play",
		"counters-pin", "counters-unpin",
		"replay-graph", "replay-graph-folded", "replay-graph-core", "replay-graph-memory", "replay-graph-read",
		"replay-graph-read-memory", "replay-graph-verify", "replay-bytes-graph", "replay-inbox", "replay-inbox-read",
		"replay-inbox-verify", "replay-bytes-inbox", "replay-seen", "replay-seen-read", "replay-seen-verify", "replay-bytes-seen",
		"replay-counters", "replay-counters-read", "replay-counters-verify", "replay-bytes-counters", "replay-skip",
		"replay-round", "replay-cutover", "replay-cutover-reads", "replay-cutover-writes",
	} {
		if !measured[id] {
			t.Errorf("row %s is missing", id)
		}
	}
	if m := report.Machine; m.CPU == "" || m.Redis == "unknown" || m.Wrk == "unknown" {
		t.Errorf("machine: %+v", m)
	}
}
