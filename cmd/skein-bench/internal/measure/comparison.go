package measure

import (
	"fmt"
	"io"
	"strings"
)

// WriteComparison writes the report of two programs for people. It has a line for each row: the
// medians of both, the ratio of the medians, and the least and the greatest ratio of a single
// round. A ratio is marked if no round had it on the other side of 1.
func (r *Report) WriteComparison(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s/%s, %s; append and fsync of 4 KiB: %s µs.\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS,
		r.Machine.Arch, r.Machine.Go, FormatFigure(r.Machine.FsyncMicros))
	fmt.Fprintf(&b, "base: %s; head: %s; %d users, %d follows; medians of %d rounds", r.Settings.Base, r.Settings.Head,
		r.Settings.Users, r.Settings.Edges, r.Settings.Runs)
	if r.Settings.Quick {
		b.WriteString("; a smoke test: the figures mean nothing")
	}
	b.WriteString(".\n\n")

	b.WriteString("| row | unit | base | head | ratio | least – greatest of a round | |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, row := range r.Rows {
		for _, c := range row.Comparisons {
			verdict := c.verdict()
			if r.Settings.Quick {
				verdict = "" // a smoke test has one round, which is always on one side of 1
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | **%.3f** | %.3f – %.3f | %s |\n", row.Title, row.Unit,
				FormatFigure(row.SeriesOf(c.To).Median), FormatFigure(row.SeriesOf(c.Of).Median), c.Ratio, c.Min, c.Max, verdict)
		}
	}

	b.WriteString("\nRatios are head to base. \"better\" and \"worse\" mark those that were on the same side of 1 in every round.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict returns "better" or "worse" if the ratio is outside the noise, and nothing otherwise.
func (c *Comparison) verdict() string {
	switch {
	case c.Min <= 1 && c.Max >= 1:
		return ""
	case (c.Max < 1) == c.AtMost:
		return "better"
	default:
		return "worse"
	}
}
