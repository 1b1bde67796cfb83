package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Report is the result of one run of the bench: everything that its table shows, and every single
// measurement.
type Report struct {
	Machine  Machine  `json:"machine"`
	Settings Settings `json:"settings"`
	Rows     []*Row   `json:"rows"`
	// Growth is what each number of follows costs.
	Growth []*Growth `json:"growth,omitempty"`
}

// Settings are what the figures depend on besides the machine.
type Settings struct {
	Users           int     `json:"users"`
	Edges           int     `json:"edges"`
	Runs            int     `json:"runs"`
	Seconds         float64 `json:"seconds_per_measurement"`
	IngestedFollows int     `json:"ingested_follows"`
	BigUser         int     `json:"followers_of_the_big_user"`
	Readers         int     `json:"readers_of_feeds,omitempty"`
	Plays           int     `json:"plays_of_one_measurement,omitempty"`
	Items           int     `json:"items_with_heat,omitempty"`
	Replayed        int     `json:"replayed_events,omitempty"`
	Posts           string  `json:"posts,omitempty"`
	Quick           bool    `json:"quick"`
	// Base and Head name the programs of a comparison.
	Base string `json:"base,omitempty"`
	Head string `json:"head,omitempty"`
}

// Row is one thing that was measured, of skein and of what skein is compared with.
type Row struct {
	// ID is the name of the row for programs, and for pages that quote its figures.
	ID    string `json:"id"`
	Title string `json:"title"`
	// Unit is the unit of all values.
	Unit        string       `json:"unit"`
	Series      []*Series    `json:"series"`
	Comparisons []Comparison `json:"comparisons"`
	// Note says what a reader must know to judge the figures.
	Note string `json:"note,omitempty"`
	// Load is set in a row of latencies under load. These rows have a table of their own.
	Load *Load `json:"load,omitempty"`
}

// Load is the load under which latencies were measured. Each series of the row has other
// circumstances, such as writes at the same time.
type Load struct {
	// Saturated is how many calls per second the service answers beside writes if each connection
	// sends the next call after the answer.
	Saturated float64 `json:"saturated_per_s"`
	// Rate is how many calls per second were made.
	Rate float64 `json:"rate_per_s"`
	// Entries is how many entries an answer has.
	Entries float64 `json:"entries_of_an_answer"`
}

// Series holds the measurements of one contender, in the order in which they were taken.
type Series struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	// P50, P99 and P999 have percentiles of the latencies in milliseconds, one for each value, if
	// the driver reports them.
	P50  []float64 `json:"p50_ms,omitempty"`
	P99  []float64 `json:"p99_ms,omitempty"`
	P999 []float64 `json:"p999_ms,omitempty"`
	// WorstSecond has the greatest p99 of one second.
	WorstSecond []float64 `json:"p99_of_the_worst_second_ms,omitempty"`
	// Void is how many measurements do not count because the client itself was late.
	Void int `json:"void,omitempty"`
}

// Comparison compares the median of one series with that of another, or with a target.
type Comparison struct {
	// Of is the name of the series.
	Of string `json:"of"`
	// To is the name of the other series. If it is empty, Ratio is the median of the series Of.
	To    string  `json:"to,omitempty"`
	Ratio float64 `json:"ratio"`
	// Min and Max are the least and the greatest ratio of a single run.
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	// Target is the value that Ratio should reach, or with AtMost not exceed; 0 means that there is
	// none.
	Target float64 `json:"target,omitempty"`
	AtMost bool    `json:"at_most,omitempty"`
	Met    bool    `json:"met"`
}

// SeriesOf returns the series of a contender. If there is none, it adds one.
func (r *Row) SeriesOf(name string) *Series {
	for _, s := range r.Series {
		if s.Name == name {
			return s
		}
	}
	s := &Series{Name: name}
	r.Series = append(r.Series, s)
	return s
}

// Add adds a measurement.
func (s *Series) Add(m Measurement) {
	s.Values = append(s.Values, m.Value)
	if m.P99 > 0 {
		s.P50 = append(s.P50, m.P50)
		s.P99 = append(s.P99, m.P99)
	}
	if m.P999 > 0 {
		s.P999 = append(s.P999, m.P999)
	}
	if m.WorstSecond > 0 {
		s.WorstSecond = append(s.WorstSecond, m.WorstSecond)
	}
	s.Median = Median(s.Values)
	s.Min, s.Max = minAndMax(s.Values)
}

// Compare adds a comparison of the series of with the series to, or with only a target if to is
// empty. Call it after the last measurement.
func (r *Row) Compare(of, to string, target float64, atMost bool) {
	a := r.SeriesOf(of)
	c := Comparison{Of: of, To: to, Target: target, AtMost: atMost, Ratio: a.Median, Min: a.Min, Max: a.Max}
	if to != "" {
		b := r.SeriesOf(to)
		c.Ratio = a.Median / b.Median
		// Measurements with the same index were taken one after the other, so a slow phase of the
		// machine changes their ratio less than it changes either of them.
		var runRatios []float64
		for i := range min(len(a.Values), len(b.Values)) {
			runRatios = append(runRatios, a.Values[i]/b.Values[i])
		}
		c.Min, c.Max = minAndMax(runRatios)
	}
	c.Met = target == 0 || (atMost && c.Ratio <= target) || (!atMost && c.Ratio >= target)
	r.Comparisons = append(r.Comparisons, c)
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // titles and notes stay readable: the file is not part of a web page
	return enc.Encode(r)
}

// WriteMarkdown writes the report for people: the machine, the tables of ratios, latencies and
// latencies under load, and the notes of the rows.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	r.Machine.writeMarkdown(&b)
	r.Settings.writeMarkdown(&b)

	b.WriteString("| what | | held against | | ratio | target | |\n|---|--:|---|--:|--:|--:|---|\n")
	for _, row := range r.Rows {
		if row.Load != nil {
			continue
		}
		for i, c := range row.Comparisons {
			title := ""
			if i == 0 {
				title = fmt.Sprintf("**%s**, %s", row.Title, row.Unit)
			}
			row.writeComparison(&b, title, c)
		}
	}

	r.writeLatencies(&b)
	r.writeLoads(&b)
	for _, row := range r.Rows {
		if row.Note != "" {
			fmt.Fprintf(&b, "\n*%s*: %s\n", row.Title, row.Note)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeComparison writes a line of the table of ratios. Only the first line of a row has its title.
func (r *Row) writeComparison(b *strings.Builder, title string, c Comparison) {
	target := "–"
	verdict := ""
	if c.Target != 0 {
		sign := "≥"
		if c.AtMost {
			sign = "≤"
		}
		target = sign + " " + FormatFigure(c.Target)
		verdict = "missed"
		if c.Met {
			verdict = "met"
		}
	}

	to := "–"
	toValues := ""
	ratio := ""
	if c.To != "" {
		to = c.To
		toValues = formatMedianAndSpread(r.SeriesOf(c.To).Values)
		ratio = fmt.Sprintf("**%s** (%s – %s)", FormatFigure(c.Ratio), FormatFigure(c.Min), FormatFigure(c.Max))
	}
	fmt.Fprintf(b, "| %s | %s: %s | %s | %s | %s | %s | %s |\n",
		title, c.Of, formatMedianAndSpread(r.SeriesOf(c.Of).Values), to, toValues, ratio, target, verdict)
}

// writeLatencies writes the table of latencies, unless no row has any.
func (r *Report) writeLatencies(b *strings.Builder) {
	header := "\n| latency | | p50 ms | p99 ms |\n|---|---|--:|--:|\n"
	for _, row := range r.Rows {
		for _, s := range row.Series {
			if len(s.P99) == 0 || row.Load != nil {
				continue
			}
			fmt.Fprintf(b, "%s| %s | %s | %s | %s |\n", header, row.Title, s.Name, formatMedianAndSpread(s.P50), formatMedianAndSpread(s.P99))
			header = ""
		}
	}
}

// writeLoads writes the table of latencies under load, unless no row has any: a line for each
// method, and a column for each of the circumstances.
func (r *Report) writeLoads(b *strings.Builder) {
	hasHeader := false
	for _, row := range r.Rows {
		if row.Load == nil {
			continue
		}
		if !hasHeader {
			b.WriteString("\n| calls under load: p50 / p99 / p99.9 / p99 of the worst second, ms | entries | saturated, calls/s | made |")
			for _, s := range row.Series {
				fmt.Fprintf(b, " %s |", s.Name)
			}
			b.WriteString("\n|---|--:|--:|--:|" + strings.Repeat("--:|", len(row.Series)) + "\n")
			hasHeader = true
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |", row.Title, FormatFigure(row.Load.Entries), FormatFigure(row.Load.Saturated), FormatFigure(row.Load.Rate))
		for _, s := range row.Series {
			s.writeLoad(b)
		}
		b.WriteString("\n")
	}
}

// writeLoad writes a cell of that table: the medians of all runs, and the worst second of all runs.
func (s *Series) writeLoad(b *strings.Builder) {
	if len(s.P99) == 0 {
		b.WriteString(" void |")
		return
	}
	worst := "–"
	if len(s.WorstSecond) > 0 {
		worst = FormatFigure(slices.Max(s.WorstSecond))
	}
	fmt.Fprintf(b, " %s / %s / %s / %s", FormatFigure(Median(s.P50)), FormatFigure(Median(s.P99)), FormatFigure(Median(s.P999)), worst)
	if s.Void > 0 {
		fmt.Fprintf(b, " (%d void)", s.Void)
	}
	b.WriteString(" |")
}

// writeMarkdown writes the line about the machine and the line of versions.
func (m *Machine) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d cores, %s/%s; append and fsync of 4 KiB: %s µs.\n", m.CPU, m.Cores, m.OS, m.Arch,
		FormatFigure(m.FsyncMicros))
	fmt.Fprintf(b, "skein %s, %s, pebble %s, nats-server %s; redis-server %s, go-redis %s, connect %s, wrk %s.\n\n",
		m.Skein, m.Go, m.Pebble, m.NATSServer, m.Redis, m.GoRedis, m.Connect, m.Wrk)
}

// writeMarkdown writes the line about the sizes and the number of runs.
func (s *Settings) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "%d users, %d follows; medians of %d alternated runs (least – greatest)", s.Users, s.Edges, s.Runs)
	if s.Quick {
		b.WriteString("; a smoke test: the figures mean nothing")
	}
	b.WriteString(".\n\n")
}

// Growth has the costs of a service with a number of follows.
type Growth struct {
	Follows int `json:"follows"`
	Users   int `json:"users"`
	// Micros has the median time of each operation in microseconds, by its name.
	Micros                map[string]float64 `json:"us,omitempty"`
	ArchiveBytesPerFollow float64            `json:"archive_bytes_per_follow"`
	// Stores has the stores that were built from the archive, by projection.
	Stores map[string]GrownStore `json:"stores"`
	// StartSeconds is the time from the start of the service until it is ready.
	StartSeconds float64 `json:"start_s,omitempty"`
	// ReadyBytes is the resident memory of the service when it is ready, and IdleBytes after some
	// time without calls. UnauditedBytes is the latter for a service without an auditor.
	ReadyBytes     float64 `json:"ready_bytes,omitempty"`
	IdleBytes      float64 `json:"idle_bytes,omitempty"`
	UnauditedBytes float64 `json:"idle_bytes_without_auditor,omitempty"`
}

// GrownStore has the costs of a store that was built in a process of its own.
type GrownStore struct {
	// BytesPerFollow is the size on disk.
	BytesPerFollow   float64 `json:"bytes_per_follow"`
	FollowsPerSecond float64 `json:"follows_per_s"`
	// Memory is the greatest resident memory of the process, in bytes.
	Memory float64 `json:"memory"`
}
