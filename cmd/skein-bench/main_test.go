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
	opts.Self, opts.Dir, opts.Limit, opts.Quick, opts.Progress = self, t.TempDir(), 10*time.Minute, true, t.Output()
	report, err := bench.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestLatency times the calls of all methods in all circumstances.
func TestLatency(t *testing.T) {
	report := runBench(t, measure.Options{
		Only: []string{"latency"}, Users: 5000, Edges: 25_000, Follows: 10_000, Runs: 1, Time: 500 * time.Millisecond,
	})
	timed := 0
	for _, row := range report.Rows {
		if row.Load == nil {
			continue
		}
		if row.Load.Saturated <= 0 || row.Load.Rate <= 0 || row.Load.Entries <= 0 || len(row.Series) != 5 {
			t.Errorf("%s: %+v, %d series", row.ID, *row.Load, len(row.Series))
		}
		with := 0
		for _, s := range row.Series {
			if s.Void == 1 && len(s.P50) == 0 {
				continue // on a busy machine, the calls of a slow method are so few that there may be none
			}
			with++
			if len(s.P50) != 1 || s.P50[0] <= 0 || s.P99[0] < s.P50[0] || s.P999[0] < s.P99[0] {
				t.Errorf("%s: %s: %v, %v, %v", row.ID, s.Name, s.P50, s.P99, s.P999)
			}
		}
		timed += with
		compared := with - 1 // each is held against the quiet one
		if len(row.Series[0].P50) == 0 {
			compared = 0
		}
		if len(row.Comparisons) != compared {
			t.Errorf("%s: %d comparisons of %d series with times", row.ID, len(row.Comparisons), with)
		}
	}
	if timed < 5*20 {
		t.Errorf("%d times were taken", timed)
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
	err := run(t.Context(), []string{"compare", "--runs", "4"}, &streams{io.Discard, io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--runs must be at least 5") {
		t.Errorf("--runs 4: %v", err)
	}
}

// TestGrowthOfServices starts the service with all stores of a few sizes.
func TestGrowthOfServices(t *testing.T) {
	report := runBench(t, measure.Options{Only: []string{"growth"}, Growth: []int{10_000, 20_000}, Runs: 2})
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

// TestRefusesCgo demands that only programs that are built as released ones measure, and that each
// build says which it is.
func TestRefusesCgo(t *testing.T) {
	err := run(t.Context(), []string{"--only", "nothing"}, &streams{io.Discard, io.Discard})
	if err == nil || strings.Contains(err.Error(), "built with cgo") == isStatic() {
		t.Errorf("without cgo: %v: %v", isStatic(), err)
	}
}

func TestByteSize(t *testing.T) {
	var b byteSize
	if err := b.UnmarshalText([]byte("3GiB")); err != nil || b != 3<<30 {
		t.Errorf("%d, %v", b, err)
	}
	if err := b.UnmarshalText([]byte("much")); err == nil {
		t.Errorf("much is %d", b)
	}
}
