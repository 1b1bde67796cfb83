package measure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// How operations are timed of which one alone is too short.
const (
	// Group is how many operations of a kind are timed at once.
	Group = 10
	// Rounds is how often each group is timed in a run.
	Rounds = 200
)

// MySelf is the name of skein among the contenders of a row.
const MySelf = "skein"

// Options say what is measured, and how long.
type Options struct {
	// Self is the path of the program that the bench is: it runs the service in front of Redis, and each measurement of a replay in a
	// process of its own. If it is empty, these measurements are made in this process.
	Self string
	// Dir is where the temporary directory is made: the disk that is measured; empty means the system's.
	Dir string
	// Users and Edges are the size of the graph.
	Users, Edges int
	// Runs is how often everything is measured.
	Runs int
	// Time is how long a reading measurement takes.
	Time time.Duration
	// Follows is how many follows an ingest measurement takes.
	Follows int
	// BigUser is how many followers the big user has.
	BigUser int
	// Posts is a file of posts for the rows of the home feed (see feedworld.go of package stores); empty means they are made.
	Posts string
	// Readers is how many readers the home feed has.
	Readers int
	// Plays are those of one measurement of what users have seen.
	Plays int
	// Items is how many items the lists by heat have.
	Items int
	// Replayed is about how many events each log has that is replayed.
	Replayed int
	// ReplayOf names the projections that are replayed; none given: all.
	ReplayOf []string
	// Growth are the numbers of follows whose costs are compared; GrowthAlone: of the graph alone, without starting a service.
	Growth      []int
	GrowthAlone bool
	// RebuildMemory is what a rebuild of growth may take; 0 means the default.
	RebuildMemory int
	// LogEvents is how many events of a large product one of its nodes reads.
	LogEvents int
	// Base and Head are the programs of a comparison. Without a path the head is built from the clone around, and the base is the head:
	// then the ratios show the noise.
	Base, Head ComparedProgram
	// Limit bounds the whole run; 0 means nothing does.
	Limit time.Duration
	// Only names the groups of rows to measure; none given: all but those that take long.
	Only []string
	// Quick marks a smoke test in the report.
	Quick bool
	// Progress gets a line whenever something begins.
	Progress io.Writer
}

// ComparedProgram is one of the two programs of a comparison: a file, and the name that the report has for it.
type ComparedProgram struct{ Name, Path string }

// Quickly returns the options with everything cut to a smoke test of about a minute.
func (o Options) Quickly() Options {
	o.Users, o.Edges, o.Runs, o.Time, o.Follows, o.BigUser, o.Quick = 2000, 20_000, 1, time.Second, 2000, 10_000, true
	o.Readers, o.Plays, o.Items, o.Replayed = 2000, 20_000, 10_000, 20_000
	o.Growth, o.LogEvents = []int{10_000, 30_000}, 100_000
	return o
}

// Bench is one run.
type Bench struct {
	Opts   Options
	Tools  Tools
	Dir    string
	Report *Report
	// Program is the path of the measured program, once it is built.
	Program string
	// ServeOn are the cores on which it serves, as taskset(1) takes them; empty means all.
	ServeOn string
}

// Say writes a line of progress.
func (b *Bench) Say(format string, args ...any) {
	if b.Opts.Progress != nil {
		fmt.Fprintf(b.Opts.Progress, format+"\n", args...)
	}
}

// Row begins a row of the report.
func (b *Bench) Row(id, title, unit, note string) *Row {
	r := &Row{ID: id, Title: title, Unit: unit, Note: note}
	b.Report.Rows = append(b.Report.Rows, r)
	return r
}

// Measurement is one figure, and the latencies in milliseconds where they are known.
type Measurement struct {
	Value, P50, P99, P999 float64
	// WorstSecond is the greatest P99 of one second.
	WorstSecond float64
}

// Contender is one of those that a row measures.
type Contender struct {
	Name    string
	Measure func(ctx context.Context) (Measurement, error)
}

// Alternate measures each contender as often as the options say, in turn.
func (b *Bench) Alternate(ctx context.Context, row *Row, contenders ...Contender) error {
	return b.AlternateTimes(ctx, b.Opts.Runs, row, contenders...)
}

// AlternateTimes measures each contender so often, in turn, every other time in the opposite order, so that what drifts
// on the machine meets all alike.
func (b *Bench) AlternateTimes(ctx context.Context, runs int, row *Row, contenders ...Contender) error {
	for _, c := range contenders {
		row.SeriesOf(c.Name) // the order of the table
	}
	for run := range runs {
		for _, c := range InTurn(run, contenders) {
			m, err := c.Measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", row.ID, c.Name, err)
			}
			row.SeriesOf(c.Name).Add(m)
			b.Say("  %-18s run %d  %-44s %s %s", row.ID, run+1, c.Name, Figure(m.Value), row.Unit)
		}
	}
	return nil
}

// InTurn returns in which order all are measured in a run: every other run has the opposite order.
func InTurn[T any](run int, all []T) []T {
	order := slices.Clone(all)
	if run%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
