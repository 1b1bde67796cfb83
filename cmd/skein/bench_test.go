package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/bench"
)

// benchQuickly measures some groups, for which nothing but skein itself is needed, with real processes.
func benchQuickly(t *testing.T, opts bench.Options) *bench.Report {
	t.Helper()
	skein, err := exec.LookPath("skein")
	if err != nil {
		t.Fatal(err)
	}
	opts.Skein, opts.Dir, opts.Limit, opts.Quick, opts.Progress = skein, t.TempDir(), patience, true, t.Output()
	report, err := bench.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestBenchLatency times the calls of all methods in all circumstances.
func TestBenchLatency(t *testing.T) {
	report := benchQuickly(t, bench.Options{
		Only: []string{"latency"}, Users: 5000, Edges: 25_000, Follows: 10_000, Time: 500 * time.Millisecond,
	})
	timed := 0
	for _, row := range report.Rows {
		if row.Load == nil {
			continue
		}
		timed++
		if row.Load.Saturated <= 0 || row.Load.Rate <= 0 || row.Load.Entries <= 0 || len(row.Series) != 5 || len(row.Comparisons) != 4 {
			t.Errorf("%s: %+v, %d series", row.ID, *row.Load, len(row.Series))
		}
		for _, s := range row.Series {
			if len(s.P50) != 1 || s.P50[0] <= 0 || s.P99[0] < s.P50[0] || s.P999[0] < s.P99[0] {
				t.Errorf("%s: %s: %v, %v, %v", row.ID, s.Name, s.P50, s.P99, s.P999)
			}
		}
	}
	if timed < 20 {
		t.Errorf("%d methods were timed", timed)
	}
}

// TestBenchGrowth starts the service with all stores of a few sizes.
func TestBenchGrowth(t *testing.T) {
	report := benchQuickly(t, bench.Options{Only: []string{"growth"}, Growth: []int{10_000, 20_000}, Runs: 2})
	last := report.Growth[len(report.Growth)-1]
	if len(report.Growth) != 2 || last.StartSeconds <= 0 || last.ReadyBytes < 1<<20 || last.IdleBytes < 1<<20 || last.UnauditedBytes < 1<<20 {
		t.Errorf("%+v", last)
	}
	for _, row := range report.Rows {
		if len(row.Comparisons) == 0 {
			t.Errorf("%s is held against nothing", row.ID)
		}
	}
}
