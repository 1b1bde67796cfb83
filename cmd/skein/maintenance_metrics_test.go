package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
)

// TestMetricsPassLintAndCountWork demands that the metrics of a service have names and units as
// Prometheus wants them, and count what was done.
func TestMetricsPassLintAndCountWork(t *testing.T) {
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler))
	defer stop()
	mustPublish(t, api, userFollowed("ann", "bob"), userFollowed("cid", "bob"))
	waitUntilFolded(t, api, 1)

	families := scrapeMetrics(t.Context(), t, api)

	var list []*dto.MetricFamily
	for name, f := range families {
		if strings.HasPrefix(name, "skein_") { // the Go client library chooses the other names
			list = append(list, f)
		}
	}
	if problems, err := promlint.NewWithMetricFamilies(list).Lint(); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}

	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "skein_block_cache_max_bytes"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if n := families["skein_log_append_events"].GetMetric()[0].GetHistogram(); n.GetSampleCount() != 1 || n.GetSampleSum() != 2 {
		t.Errorf("appended: %v", n)
	}
	for _, m := range families["skein_publish_visible_seconds"].GetMetric() {
		if h := m.GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() > waitLimit.Seconds() {
			t.Errorf("publish to visible: %v", m)
		}
	}
}

// waitUntilFolded waits until each projection has counted n envelopes, which may be shortly after
// the envelopes are visible.
func waitUntilFolded(t *testing.T, api *command.Client, n float64) {
	t.Helper()
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		f, err := statuscmd.Scrape(ctx, api)
		if err != nil {
			return err
		}
		folded := f.Families["skein_fold_envelopes_total"].GetMetric()
		for _, m := range folded {
			if got := m.GetCounter().GetValue(); got != n {
				return fmt.Errorf("%v: %v envelopes folded, want %v", m.GetLabel(), got, n)
			}
		}
		if len(folded) != 5 {
			return fmt.Errorf("%d projections count envelopes, want 5", len(folded))
		}
		return nil
	})
}

// scrapeMetrics returns the metrics of a service by name.
func scrapeMetrics(ctx context.Context, t *testing.T, api *command.Client) map[string]*dto.MetricFamily {
	t.Helper()
	f, err := statuscmd.Scrape(ctx, api)
	if err != nil {
		t.Fatal(err)
	}
	return f.Families
}
