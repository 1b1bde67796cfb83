package measure

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRatiosOutsideTheNoiseAreMarked checks that the table has medians, ratios and their spread
// over rounds, and that it marks a ratio only if all rounds are on the same side of 1.
func TestRatiosOutsideTheNoiseAreMarked(t *testing.T) {
	report := &Report{Settings: Settings{Base: "aaa", Head: "bbb", Users: 10, Edges: 100, Runs: 3}}
	b := &Bench{Report: report}
	addRow := func(title, unit string, lessIsBetter bool, base, head []float64) {
		row := b.AddRow(title, title, unit, "")
		for _, v := range base {
			row.SeriesOf("base").Add(Measurement{Value: v})
		}
		for _, v := range head {
			row.SeriesOf("head").Add(Measurement{Value: v})
		}
		row.Compare("head", "base", 0, lessIsBetter)
	}
	addRow("more in every round", "calls/s", false, []float64{100, 200, 400}, []float64{110, 250, 404})
	addRow("more in most rounds", "calls/s", false, []float64{100, 200, 400}, []float64{110, 250, 399})
	addRow("less in every round", "calls/s", false, []float64{100, 100, 100}, []float64{90, 80, 99})
	addRow("less time", "s", true, []float64{2, 2, 2}, []float64{1, 1.5, 1.9})
	addRow("more time", "s", true, []float64{1, 2, 4}, []float64{2, 3, 5})
	addRow("the same", "bytes", true, []float64{7, 7, 7}, []float64{7, 7, 7})

	var out bytes.Buffer
	if err := report.WriteComparison(&out); err != nil {
		t.Fatal(err)
	}

	// Compare only the rows of the table, without its head and the text around it.
	var got []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| benchmark") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"| more in every round | calls/s | 200 | 250 | **1.250** | 1.010 – 1.250 | better |",
		"| more in most rounds | calls/s | 200 | 250 | **1.250** | 0.998 – 1.250 |  |",
		"| less in every round | calls/s | 100 | 90.0 | **0.900** | 0.800 – 0.990 | worse |",
		"| less time | s | 2.00 | 1.50 | **0.750** | 0.500 – 0.950 | better |",
		"| more time | s | 2.00 | 3.00 | **1.500** | 1.250 – 2.000 | worse |",
		"| the same | bytes | 7.00 | 7.00 | **1.000** | 1.000 – 1.000 |  |",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestContendersAlternate checks that every other run measures the contenders in the opposite
// order.
func TestContendersAlternate(t *testing.T) {
	var order []string
	contender := func(name string) Contender {
		return Contender{Name: name, Measure: func(context.Context) (Measurement, error) {
			order = append(order, name)
			return Measurement{Value: float64(len(order))}, nil
		}}
	}
	b := &Bench{Report: &Report{}}
	row := b.AddRow("row", "row", "calls/s", "")
	if err := b.MeasureRunsInTurn(t.Context(), 3, row, contender("A"), contender("B")); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"A", "B", "B", "A", "A", "B"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{1, 4, 5}, row.SeriesOf("A").Values); diff != "" {
		t.Errorf("values of A (-want +got):\n%s", diff)
	}
}
