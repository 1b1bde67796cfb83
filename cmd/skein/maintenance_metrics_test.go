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

	// Check the names and units.
	var own []*dto.MetricFamily
	for name, f := range families {
		if strings.HasPrefix(name, "skein_") { // the Go client library chooses the other names
			own = append(own, f)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(own).Lint()
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) > 0 {
		t.Errorf("got the problems %v, want none", problems)
	}

	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "skein_block_cache_max_bytes"} {
		if families[name] == nil {
			t.Errorf("the metric %s is missing", name)
		}
	}

	// Both events were appended in one envelope.
	appended := families["skein_log_append_events"].GetMetric()[0].GetHistogram()
	if appended.GetSampleCount() != 1 || appended.GetSampleSum() != 2 {
		t.Errorf("skein_log_append_events: got %v, want 1 envelope with 2 events", appended)
	}

	// Each projection has made the envelope visible once.
	visible := families["skein_publish_visible_seconds"].GetMetric()
	if len(visible) == 0 {
		t.Error("skein_publish_visible_seconds has no metric, want some")
	}
	for _, m := range visible {
		h := m.GetHistogram()
		if h.GetSampleCount() != 1 || h.GetSampleSum() > waitLimit.Seconds() {
			t.Errorf("skein_publish_visible_seconds: got %v, want 1 envelope within %v", m, waitLimit)
		}
	}
}

// waitUntilFolded waits until each projection has counted n envelopes, which may be shortly after
// the envelopes are visible.
func waitUntilFolded(t *testing.T, api *command.Client, n float64) {
	t.Helper()
	const projections = 5
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		scraped, err := statuscmd.Scrape(ctx, api)
		if err != nil {
			return err
		}

		folded := scraped.Families["skein_fold_envelopes_total"].GetMetric()
		for _, m := range folded {
			if got := m.GetCounter().GetValue(); got != n {
				return fmt.Errorf("%v: %v envelopes folded, want %v", m.GetLabel(), got, n)
			}
		}
		if len(folded) != projections {
			return fmt.Errorf("%d projections count envelopes, want %d", len(folded), projections)
		}
		return nil
	})
}

// scrapeMetrics returns the metrics of a service by name.
func scrapeMetrics(ctx context.Context, t *testing.T, api *command.Client) map[string]*dto.MetricFamily {
	t.Helper()
	scraped, err := statuscmd.Scrape(ctx, api)
	if err != nil {
		t.Fatal(err)
	}
	return scraped.Families
}
