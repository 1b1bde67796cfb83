package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options say what is measured, and how long.
type Options struct {
	// Self is the path of the program that the bench is: it runs the service in front of Redis, and each measurement of a replay in a
	// process of its own. If it is empty, these measurements are made in this process.
	Self string
	// Dir is where the temporary directory is made: the disk that is measured; empty: the system's.
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
	// Posts is a file of posts for the rows of the home feed (see feedworld.go); empty: they are made.
	Posts string
	// Readers is how many readers the home feed has.
	Readers int
	// Plays are those of one measurement of what users have seen.
	Plays int
	// Items is how many items the lists by heat have.
	Items int
	// Replayed is about how many events each log has that is replayed.
	Replayed int
	// ReplayOf names the projections that are replayed; none given: all, and the cut-over.
	ReplayOf []string
	// Growth are the numbers of follows whose costs are compared; GrowthAlone: of the graph alone, without starting a service.
	Growth      []int
	GrowthAlone bool
	// RebuildMemory is what a rebuild of growth may take; 0: the default.
	RebuildMemory int
	// Limit bounds the whole run; 0: nothing does.
	Limit time.Duration
	// Only names the groups of rows to measure; none given: all but those that take long.
	Only []string
	// Quick marks a smoke test in the report.
	Quick bool
	// Progress gets a line whenever something begins.
	Progress io.Writer
}

// Quickly returns the options with everything cut to a smoke test of about a minute.
func (o Options) Quickly() Options {
	o.Users, o.Edges, o.Runs, o.Time, o.Follows, o.BigUser, o.Quick = 2000, 20_000, 1, time.Second, 2000, 10_000, true
	o.Readers, o.Plays, o.Items, o.Replayed = 2000, 20_000, 10_000, 20_000
	o.Growth = []int{10_000, 30_000}
	return o
}

// rowGroup is a family of rows that are measured together.
type rowGroup struct {
	name string
	// peers tells that the group needs the programs of others, apart that it is only measured when it is named: it takes long.
	peers, apart bool
	run          func(b *bench, ctx context.Context) error
}

var rows = []rowGroup{
	{name: "reads", peers: true, run: (*bench).reads},
	{name: "ingest", peers: true, run: (*bench).ingest},
	{name: "constant", run: (*bench).constant},
	{name: "inprocess", run: (*bench).inProcess},
	{name: "disk", peers: true, run: (*bench).disk},
	{name: "feed", peers: true, run: (*bench).feed},
	{name: "seen", peers: true, run: (*bench).seen},
	{name: "counters", peers: true, run: (*bench).counters},
	{name: "replay", peers: true, run: (*bench).replay},
	{name: "latency", apart: true, run: (*bench).underLoad},
	{name: "growth", apart: true, run: (*bench).growth},
}

// RowNames returns the names that Only may hold.
func RowNames() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// bench is one run.
type bench struct {
	opts   Options
	tools  tools
	dir    string
	report *Report
	// program is the path of the measured program, once it is built.
	program string
}

// Run measures and returns what it found.
func Run(ctx context.Context, opts Options) (_ *Report, err error) {
	if opts.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opts.Limit, fmt.Errorf("it took longer than %v", opts.Limit))
		defer cancel()
	}
	wanted, err := pick(opts.Only)
	if err != nil {
		return nil, err
	}
	b := &bench{opts: opts}
	b.tools, err = findTools()
	if err != nil && slices.ContainsFunc(wanted, func(r rowGroup) bool { return r.peers }) {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp(opts.Dir, "skein-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.report = &Report{Settings: Settings{
		Users: opts.Users, Edges: opts.Edges, Runs: opts.Runs, Seconds: opts.Time.Seconds(),
		IngestedFollows: opts.Follows, BigUser: opts.BigUser, Readers: opts.Readers, Plays: opts.Plays, Items: opts.Items,
		Replayed: opts.Replayed, Quick: opts.Quick,
	}}
	if opts.Posts != "" {
		b.report.Settings.Posts = filepath.Base(opts.Posts)
	}
	if b.report.Machine, err = describeMachine(ctx, b.tools, b.dir); err != nil {
		return nil, err
	}
	for _, r := range wanted {
		if err := r.run(b, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, explain(ctx, err))
		}
	}
	return b.report, nil
}

// explain says why the context ended, if it did: what failed then is of no interest.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func pick(only []string) ([]rowGroup, error) {
	if len(only) == 0 {
		return slices.DeleteFunc(slices.Clone(rows), func(r rowGroup) bool { return r.apart }), nil
	}
	var wanted []rowGroup
	for _, name := range only {
		i := slices.IndexFunc(rows, func(r rowGroup) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no row is named %q; there are %s", name, strings.Join(RowNames(), ", "))
		}
		wanted = append(wanted, rows[i])
	}
	return wanted, nil
}

func (b *bench) say(format string, args ...any) {
	if b.opts.Progress != nil {
		fmt.Fprintf(b.opts.Progress, format+"\n", args...)
	}
}

// row begins a row of the report.
func (b *bench) row(id, title, unit, note string) *Row {
	r := &Row{ID: id, Title: title, Unit: unit, Note: note}
	b.report.Rows = append(b.report.Rows, r)
	return r
}

// measurement is one figure, and the latencies in milliseconds where they are known.
type measurement struct{ value, p50, p99, p999 float64 }

// contender is one of those that a row measures.
type contender struct {
	name    string
	measure func(ctx context.Context) (measurement, error)
}

// alternate measures each contender as often as the options say, in turn.
func (b *bench) alternate(ctx context.Context, row *Row, contenders ...contender) error {
	return b.alternateTimes(ctx, b.opts.Runs, row, contenders...)
}

// alternateTimes measures each contender so often, in turn, every other time in the opposite order, so that what drifts
// on the machine meets all alike.
func (b *bench) alternateTimes(ctx context.Context, runs int, row *Row, contenders ...contender) error {
	for _, c := range contenders {
		row.series(c.name) // the order of the table
	}
	for run := range runs {
		order := slices.Clone(contenders)
		if run%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			m, err := c.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", row.ID, c.name, err)
			}
			row.series(c.name).add(m)
			b.say("  %-18s run %d  %-44s %s %s", row.ID, run+1, c.name, figure(m.value), row.Unit)
		}
	}
	return nil
}
