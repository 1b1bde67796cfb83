package measure

import (
	"fmt"
	"io"
	"strings"
)

// WriteComparison writes the report of `task compare` as Markdown: a table that compares two
// programs, head and base. Each line of the table is for one benchmark. It has the medians of both
// programs, the ratio of the medians (head / base), the range of the ratios of the single rounds,
// and the verdict ([Comparison.verdict]).
func (r *Report) WriteComparison(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores, %s/%s, %s; append and fsync of 4 KiB: %s µs.\n", r.Machine.CPU, r.Machine.Cores, r.Machine.OS,
		r.Machine.Arch, r.Machine.Go, FormatFigure(r.Machine.FsyncMicros))
	fmt.Fprintf(&b, "base: %s; head: %s; %d users, %d follow relations; medians of %d rounds", r.Settings.Base, r.Settings.Head,
		r.Settings.Users, r.Settings.Edges, r.Settings.Runs)
	if r.Settings.Quick {
		b.WriteString("; a quick run: the figures mean nothing")
	}
	b.WriteString(".\n\n")

	b.WriteString("| benchmark | unit | base | head | ratio | ratios of the rounds | verdict |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, row := range r.Rows {
		for _, c := range row.Comparisons {
			verdict := c.verdict()
			if r.Settings.Quick {
				verdict = "" // a quick run has a single round, which says nothing about noise
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | **%.3f** | %.3f – %.3f | %s |\n", row.Title, row.Unit,
				FormatFigure(row.SeriesOf(c.To).Median), FormatFigure(row.SeriesOf(c.Of).Median), c.Ratio, c.Min, c.Max, verdict)
		}
	}

	b.WriteString("\nA ratio is head / base. A verdict is there only if the ratios of all rounds are on the same side of 1: " +
		"head is then better or worse than base.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict says whether the series Of is "better" or "worse" than the series To. It is empty unless
// the ratios of all rounds are below 1, or all are above 1. Where the target is a limit that the
// ratio must not exceed (AtMost), lower ratios are better; otherwise higher ones are.
func (c *Comparison) verdict() string {
	switch {
	case c.Max < 1 && c.AtMost, c.Min > 1 && !c.AtMost:
		return "better"
	case c.Max < 1, c.Min > 1:
		return "worse"
	default:
		return ""
	}
}
