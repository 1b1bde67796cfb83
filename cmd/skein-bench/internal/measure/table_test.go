package measure

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableIsWrittenFromItsReport compares docs/performance/table.md with what its report gives, so
// that no figure in it is changed by hand.
func TestTableIsWrittenFromItsReport(t *testing.T) {
	// A link to docs/performance: go test repeats a cached test only if a file has changed that it
	// reads by a path inside its module.
	const folder = "testdata/performance/"

	data, err := os.ReadFile(folder + "table.json")
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(folder + "table.md")
	if err != nil {
		t.Fatal(err)
	}

	var want strings.Builder
	if err := report.WriteMarkdown(&want); err != nil {
		t.Fatal(err)
	}

	// Title and introduction are written by hand. What the report gives begins with the processor.
	start := bytes.Index(table, []byte(report.Machine.CPU))
	if start < 0 {
		t.Fatalf("table.md: got no processor, want that of its report, %s", report.Machine.CPU)
	}
	got := string(table[start:])
	if diff := cmp.Diff(strings.Split(want.String(), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("table.md (-want as of table.json +got):\n%s", diff)
	}
}
