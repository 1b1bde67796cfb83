package replays

import (
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// TestPlaysAreBuiltFromArchive generates an archive of plays and builds stores from it, in this
// process.
func TestPlaysAreBuiltFromArchive(t *testing.T) {
	report := &measure.Report{}
	b := &measure.Bench{Opts: measure.Options{Replayed: 10_050, Runs: 1, Quick: true}, Dir: t.TempDir(), Report: report}
	if err := MeasurePlays(t.Context(), b); err != nil {
		t.Fatal(err)
	}

	if len(report.Rows) != 5 {
		t.Errorf("rows: got %d, want 5", len(report.Rows))
	}
	for _, row := range report.Rows {
		// One comparison is for the counters, the other one for seen.
		if len(row.Comparisons) != 2 {
			t.Errorf("comparisons of %s: got %d, want 2", row.ID, len(row.Comparisons))
		}
		for _, s := range row.Series {
			if s.Median <= 0 {
				t.Errorf("%s of %s: got %v, want more than 0", row.ID, s.Name, s.Median)
			}
		}
	}
}
