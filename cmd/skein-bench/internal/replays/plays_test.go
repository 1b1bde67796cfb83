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
		t.Errorf("expected 5 rows, got %d", len(report.Rows))
	}
	for _, row := range report.Rows {
		if len(row.Comparisons) != 2 {
			t.Errorf("%s: expected a line for counters and one for seen, got %d", row.ID, len(row.Comparisons))
		}
		for _, s := range row.Series {
			if s.Median <= 0 {
				t.Errorf("%s of %s: expected more than 0, got %v", row.ID, s.Name, s.Median)
			}
		}
	}
}
