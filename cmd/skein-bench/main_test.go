package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skein-feed/skein/cmd/skein-bench/bench"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// TestMain makes the test binary be skein-bench itself when a test runs it: the processes that the
// bench starts are real.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"skein-bench": main}) }

// runBench measures some groups with real processes.
func runBench(t *testing.T, opts measure.Options) *measure.Report {
	t.Helper()
	self, err := exec.LookPath("skein-bench")
	if err != nil {
		t.Fatal(err)
	}
	opts.Self = self
	opts.Dir = t.TempDir()
	opts.Limit = 10 * time.Minute
	opts.Quick = true
	opts.Progress = t.Output()
	report, err := bench.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestLatencyTimesEveryMethod times the calls of all methods in all circumstances.
func TestLatencyTimesEveryMethod(t *testing.T) {
	report := runBench(t, measure.Options{
		Only: []string{"latency"}, Users: 5000, Edges: 25_000, Follows: 10_000, Runs: 1, Time: 500 * time.Millisecond,
	})
	seriesWithTimes := 0
	for _, row := range report.Rows {
		if row.Load == nil {
			continue
		}
		if row.Load.Saturated <= 0 || row.Load.Rate <= 0 || row.Load.Entries <= 0 {
			t.Errorf("load of %s: got %+v, want every part above 0", row.ID, *row.Load)
		}
		if len(row.Series) != 5 {
			t.Errorf("series of %s: got %d, want 5", row.ID, len(row.Series))
		}

		// On a busy machine, the calls of a slow method are so few that there may be no times.
		rowSeriesWithTimes := 0
		for _, s := range row.Series {
			if s.Void == 1 && len(s.P50) == 0 {
				continue
			}
			rowSeriesWithTimes++
			if len(s.P50) != 1 || s.P50[0] <= 0 || s.P99[0] < s.P50[0] || s.P999[0] < s.P99[0] {
				t.Errorf("percentiles of %s, %s: got p50 %v, p99 %v and p99.9 %v, want one of each above 0, in this order",
					row.ID, s.Name, s.P50, s.P99, s.P999)
			}
		}
		seriesWithTimes += rowSeriesWithTimes

		// Each series is compared with the first one, which is of a quiet service.
		wantComparisons := rowSeriesWithTimes - 1
		if len(row.Series[0].P50) == 0 {
			wantComparisons = 0
		}
		if got := len(row.Comparisons); got != wantComparisons {
			t.Errorf("comparisons of %s with times in %d series: got %d, want %d", row.ID, rowSeriesWithTimes, got, wantComparisons)
		}
	}
	if want := 5 * 20; seriesWithTimes < want {
		t.Errorf("series with times: got %d, want at least %d", seriesWithTimes, want)
	}
}

// TestComparisonMeasuresEveryRow compares a build of this clone with itself.
func TestComparisonMeasuresEveryRow(t *testing.T) {
	report, err := bench.Compare(t.Context(), measure.Options{
		Dir: t.TempDir(), Users: 100, Edges: 1000, Runs: 1, Time: 20 * time.Millisecond, Follows: 1000, Plays: 1000, Items: 1000,
		Base: measure.ComparedProgram{Name: "one"}, Head: measure.ComparedProgram{Name: "the same"},
		Quick: true, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}

	var ids []string
	for _, row := range report.Rows {
		ids = append(ids, row.ID)
		for _, side := range []string{"base", "head"} {
			if values := row.SeriesOf(side).Values; len(values) != 1 || values[0] <= 0 {
				t.Errorf("%s: %s has the values %v, want one above 0", row.ID, side, values)
			}
		}
		if len(row.Series) != 2 || len(row.Comparisons) != 1 {
			t.Errorf("%s: %d series, %d comparisons, want 2 and 1", row.ID, len(row.Series), len(row.Comparisons))
		}
	}
	want := []string{
		"compare-idle-memory", "compare-rebuild-graph", "compare-rebuild-inbox", "compare-rebuild-seen", "compare-rebuild-counters",
		"compare-check-protobuf", "compare-check-JSON", "compare-filter-protobuf", "compare-filter-JSON", "compare-followers-protobuf",
		"compare-followers-JSON", "compare-feed-newest-protobuf", "compare-fan-out", "compare-publish-protobuf", "compare-publish-JSON",
		"compare-follows", "compare-plays",
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestComparisonRefusesTooFewRounds demands that the error names the flag and the limit.
func TestComparisonRefusesTooFewRounds(t *testing.T) {
	const want = "--runs must be at least 5"
	err := run(t.Context(), []string{"compare", "--runs", "4"}, &streams{io.Discard, io.Discard})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("compare --runs 4: got error %v, want one with %q", err, want)
	}
}

// TestGrowthMeasuresServices starts the service with all stores of two sizes.
func TestGrowthMeasuresServices(t *testing.T) {
	report := runBench(t, measure.Options{Only: []string{"growth"}, Growth: []int{10_000, 20_000}, Runs: 2})
	if len(report.Growth) != 2 {
		t.Fatalf("sizes: got %d, want 2", len(report.Growth))
	}
	last := report.Growth[1]
	if last.StartSeconds <= 0 {
		t.Errorf("seconds of a start: got %v, want more than 0", last.StartSeconds)
	}
	if last.ReadyBytes < 1<<20 || last.IdleBytes < 1<<20 || last.UnauditedBytes < 1<<20 {
		t.Errorf("memory: got %.0f bytes when ready, %.0f when idle and %.0f without the auditor, want at least 1 MiB each",
			last.ReadyBytes, last.IdleBytes, last.UnauditedBytes)
	}
	for _, row := range report.Rows {
		if len(row.Comparisons) == 0 {
			t.Errorf("comparisons of %s: got none, want some", row.ID)
		}
	}
}

// TestOnlyBuildsWithoutCgoMeasure demands that a program that is built with cgo refuses to measure,
// because released programs are built without it. "nothing" is no group, so every build fails.
func TestOnlyBuildsWithoutCgoMeasure(t *testing.T) {
	err := run(t.Context(), []string{"--only", "nothing"}, &streams{io.Discard, io.Discard})
	if err == nil {
		t.Fatal("run: got no error, want one")
	}
	const cgoError = "built with cgo"
	if got, want := strings.Contains(err.Error(), cgoError), !isStatic(); got != want {
		t.Errorf("run: got error %v, want %q in it: %v", err, cgoError, want)
	}
}

func TestByteSizeMayHaveUnit(t *testing.T) {
	var size byteSize
	if err := size.UnmarshalText([]byte("3GiB")); err != nil {
		t.Fatal(err)
	}
	if want := byteSize(3 << 30); size != want {
		t.Errorf("3GiB: got %d, want %d", size, want)
	}
	if err := size.UnmarshalText([]byte("much")); err == nil {
		t.Errorf("much: got %d, want an error", size)
	}
}
