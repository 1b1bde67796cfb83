package measure

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// An operation that is too short to be timed alone is timed in groups.
const (
	// OperationsPerGroup is how many operations a group has, which are timed together.
	OperationsPerGroup = 10
	// GroupsPerRun is how many groups a run times.
	GroupsPerRun = 200
)

// Skein is the name of skein among the contenders of a row.
const Skein = "skein"

// Options say what is measured, and how long.
type Options struct {
	// Self is the path of this program. The bench starts it again as the service in front of Redis,
	// and for each measurement of a replay. If it is empty, these measurements are made in this
	// process.
	Self string
	// Dir is the directory in which the temporary directory is made, and so the disk that is
	// measured; empty means the system's default.
	Dir string
	// Users and Edges are the numbers of users and follows of the graph.
	Users, Edges int
	// Runs is how often everything is measured.
	Runs int
	// Time is how long one measurement of reads takes.
	Time time.Duration
	// Follows is how many follows one measurement of ingest publishes.
	Follows int
	// BigUser is how many followers the user has whose costs are compared with those of a user with
	// 10.
	BigUser int
	// Posts is a file of posts for the rows of the home feed (see feedworld.go of package stores);
	// if it is empty, posts are made up.
	Posts string
	// Readers is how many readers the home feed has.
	Readers int
	// Plays is how many plays one measurement of the projection seen folds.
	Plays int
	// Items is how many items the lists by heat have.
	Items int
	// Replayed is about how many events each replayed log has.
	Replayed int
	// ReplayOf names the projections that are replayed; if it is empty, all are.
	ReplayOf []string
	// Growth has the numbers of follows whose costs are compared.
	Growth []int
	// GrowthAlone says that growth builds only the store of the graph, and starts no service.
	GrowthAlone bool
	// RebuildMemory is the memory for a rebuild of growth or plays, in bytes; 0 means the default.
	RebuildMemory int
	// LogEvents is how many events the log of a large product has that a node reads.
	LogEvents int
	// Base and Head are the programs of a comparison. If Head has no path, it is built from the
	// clone in which the bench runs. If Base has no path, it is the head, and the ratios show the
	// noise.
	Base, Head ComparedProgram
	// Limit is how long the whole run may take; 0 means any time.
	Limit time.Duration
	// Only names the groups of rows to measure; if it is empty, all but those that take long are
	// measured.
	Only []string
	// Quick says that the run is a smoke test, whose figures mean nothing.
	Quick bool
	// Progress gets a line whenever a step begins or has a result; it may be nil.
	Progress io.Writer
}

// ComparedProgram is one of the two programs of a comparison: the path of its file, and its name in
// the report.
type ComparedProgram struct{ Name, Path string }

// SmokeTest returns the options of a run of about a minute, whose figures mean nothing.
func (o Options) SmokeTest() Options {
	o.Quick = true
	o.Runs = 1
	o.Time = time.Second
	o.Users = 2000
	o.Edges = 20_000
	o.Follows = 2000
	o.BigUser = 10_000
	o.Readers = 2000
	o.Plays = 20_000
	o.Items = 10_000
	o.Replayed = 20_000
	o.Growth = []int{10_000, 30_000}
	o.LogEvents = 100_000
	return o
}

// Bench is one run of the bench.
type Bench struct {
	Opts  Options
	Tools Tools
	// Dir is a temporary directory, on the disk that is measured.
	Dir    string
	Report *Report
	// Program is the path of the measured program; empty until it is built.
	Program string
	// ServeOn has the cores on which the program serves, in the form of taskset(1); empty means
	// all.
	ServeOn string
}

// Logf writes a line of progress.
func (b *Bench) Logf(format string, args ...any) {
	if b.Opts.Progress != nil {
		fmt.Fprintf(b.Opts.Progress, format+"\n", args...)
	}
}

// AddRow adds a row to the report. The note says what a reader must know to judge the figures.
func (b *Bench) AddRow(id, title, unit, note string) *Row {
	r := &Row{ID: id, Title: title, Unit: unit, Note: note}
	b.Report.Rows = append(b.Report.Rows, r)
	return r
}

// Measurement is one figure in the unit of its row, with latencies in milliseconds if they are
// known.
type Measurement struct {
	Value, P50, P99, P999 float64
	// WorstSecond is the greatest p99 of one second.
	WorstSecond float64
}

// Contender is one of the programs, or ways to use them, that a row compares.
type Contender struct {
	Name    string
	Measure func(ctx context.Context) (Measurement, error)
}

// MeasureInTurn measures each contender as often as the options say, in turn.
func (b *Bench) MeasureInTurn(ctx context.Context, row *Row, contenders ...Contender) error {
	return b.MeasureRunsInTurn(ctx, b.Opts.Runs, row, contenders...)
}

// MeasureRunsInTurn measures each contender as often as runs says, in turn. Every other run has the
// opposite order, so that what changes on the machine in the meantime affects all contenders alike.
func (b *Bench) MeasureRunsInTurn(ctx context.Context, runs int, row *Row, contenders ...Contender) error {
	for _, c := range contenders {
		row.SeriesOf(c.Name) // adds the series in the order of the table
	}

	for run := range runs {
		for _, c := range RunOrder(run, contenders) {
			m, err := c.Measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", row.ID, c.Name, err)
			}
			row.SeriesOf(c.Name).Add(m)
			b.Logf("  %-18s run %d  %-44s %s %s", row.ID, run+1, c.Name, FormatFigure(m.Value), row.Unit)
		}
	}
	return nil
}

// RunOrder returns the order in which contenders are measured in a run. Every other run has the
// opposite order.
func RunOrder[T any](run int, all []T) []T {
	order := slices.Clone(all)
	if run%2 == 1 {
		slices.Reverse(order)
	}
	return order
}
