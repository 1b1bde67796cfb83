package measure

import (
	"fmt"
	"io"
	"strings"
)

// WriteComparison writes a report that compares two programs as Markdown. The table has a line for
// each comparison of each row: the medians of both programs, the ratio of the medians, and the
// lowest and the highest ratio of all rounds. A line says "better" or "worse" only if the ratios of
// all rounds are below 1, or all are above 1.
func (r *Report) WriteComparison(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s/%s, %s; append and fsync of 4 KiB: %s µs.\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS,
		r.Machine.Arch, r.Machine.Go, FormatFigure(r.Machine.FsyncMicros))
	fmt.Fprintf(&b, "base: %s; head: %s; %d users, %d follows; medians of %d rounds", r.Settings.Base, r.Settings.Head,
		r.Settings.Users, r.Settings.Edges, r.Settings.Runs)
	if r.Settings.Quick {
		b.WriteString("; a smoke test: the measurements mean nothing")
	}
	b.WriteString(".\n\n")

	b.WriteString("| row | unit | base | head | ratio | lowest – highest round | verdict |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, row := range r.Rows {
		for _, c := range row.Comparisons {
			verdict := c.verdict()
			if r.Settings.Quick {
				verdict = "" // a smoke test has a single round, which says nothing about noise
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | **%.3f** | %.3f – %.3f | %s |\n", row.Title, row.Unit,
				FormatFigure(row.SeriesOf(c.To).Median), FormatFigure(row.SeriesOf(c.Of).Median), c.Ratio, c.Min, c.Max, verdict)
		}
	}

	b.WriteString("\nRatios are head to base. \"better\" and \"worse\" mean that all rounds had a ratio on the same side of 1.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict returns "better" or "worse" if the ratios of all rounds are on the same side of 1, and
// the empty string otherwise.
func (c *Comparison) verdict() string {
	allBelow := c.Max < 1
	allAbove := c.Min > 1
	lowerIsBetter := c.AtMost
	switch {
	case !allBelow && !allAbove:
		return ""
	case allBelow == lowerIsBetter:
		return "better"
	default:
		return "worse"
	}
}
