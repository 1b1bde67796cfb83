package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/bench"
)

// benchCmd measures skein against what it is held against. See docs/performance.md.
type benchCmd struct {
	Measure benchMeasureCmd      `cmd:"" name:"run" default:"withargs" help:"Measure, and print the table (needs Redis and wrk)."`
	Service benchRedisServiceCmd `cmd:"" name:"redis-service" hidden:"" help:"Run the service in front of Redis that the bench measures."`
	Job     benchReplayJobCmd    `cmd:"" name:"replay-job" hidden:"" help:"Do one measurement of a replay, in a process of its own."`
}

type benchMeasureCmd struct {
	Quick   bool          `help:"A smoke test of about a minute: everything is cut short, the figures mean nothing." env:"-"`
	Only    []string      `help:"These groups of: ${benchGroups}; the last are measured only when named." placeholder:"NAME" env:"-"`
	Edges   int           `help:"Follows of the graph." default:"1000000" env:"-"`
	Users   int           `help:"Users of the graph; 0: a tenth of its follows." default:"0" env:"-"`
	Runs    int           `help:"How often everything is measured." default:"5" env:"-"`
	Time    time.Duration `help:"How long one measurement of reads takes." default:"3s" env:"-"`
	Follows int           `help:"How many follows one measurement of ingest takes." default:"300000" env:"-"`
	Big     int           `help:"Followers of the user whose cost is held against that of one with 10." default:"1000000" env:"-"`
	Posts   string        `help:"Posts of home feeds: CSV, plain or zstd. Default: made up." placeholder:"FILE" type:"existingfile" env:"-"`
	Readers int           `help:"Readers of home feeds, and users who play." default:"100000" env:"-"`
	Plays   int           `help:"How many plays one measurement of the projection seen takes." default:"2000000" env:"-"`
	Items   int           `help:"Items of the lists by heat." default:"1000000" env:"-"`
	Replay  int           `help:"Events of each log that is replayed." default:"1000000" env:"-"`
	Of      []string      `help:"Of the projections that are replayed, these only." name:"replay-of" placeholder:"NAME" env:"-"`
	Growth  []int         `help:"Numbers of follows whose costs are compared." default:"100000,1000000,10000000" env:"-"`
	Alone   bool          `help:"Of growth, the graph alone: no service is started." name:"growth-alone" env:"-"`
	Memory  byteSize      `help:"Memory of the rebuilds of growth, as of skein serve; 0: its default." name:"rebuild-memory" env:"-"`
	Limit   time.Duration `help:"Give up after this time." default:"40m" env:"-"`
	Dir     string        `help:"Where temporary files are: the disk that is measured." placeholder:"DIR" type:"existingdir" env:"-"`
	JSON    string        `help:"Write the report, with every single measurement, to this file." placeholder:"FILE" type:"path" env:"-"`
	MD      string        `help:"Write the table to this file, too." placeholder:"FILE" type:"path" env:"-"`
}

// Run measures.
func (c *benchMeasureCmd) Run(ctx context.Context, std *streams) error {
	if c.Edges < 1000 || c.Users < 0 || c.Runs < 1 || c.Follows < 1000 || c.Big < 1000 || c.Readers < 1000 ||
		c.Plays < 1000 || c.Items < 10_000 || c.Replay < 10_000 ||
		len(c.Growth) == 0 || slices.Min(c.Growth) < 10_000 {
		return usage("bench: less than 1000 follows, followers, readers or plays, less than 10000 items, replayed events or follows of " +
			"growth, or less than one run, says nothing")
	}
	if c.Users == 0 {
		c.Users = c.Edges / 10
	}
	if c.Edges/50 > c.Users {
		return usage("bench: at most 50 follows a user")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts := bench.Options{
		Skein: self, Dir: c.Dir, Users: c.Users, Edges: c.Edges, Runs: c.Runs, Time: c.Time, Follows: c.Follows,
		BigUser: c.Big, Posts: c.Posts, Readers: c.Readers, Plays: c.Plays, Items: c.Items,
		Replayed: c.Replay, ReplayOf: c.Of, Growth: c.Growth, GrowthAlone: c.Alone, RebuildMemory: int(c.Memory), Limit: c.Limit,
		Only: c.Only, Progress: std.err,
	}
	switch {
	case c.Quick:
		opts = opts.Quickly()
	case !version().Static:
		return usage("bench: this program was built with cgo, which changes what is measured; released ones are not: " +
			"CGO_ENABLED=0 go run ./cmd/skein bench, or task bench")
	}
	report, err := bench.Run(ctx, opts)
	if err != nil {
		return err
	}
	return errors.Join(
		report.WriteMarkdown(std.out), writeTo(c.MD, report.WriteMarkdown), writeTo(c.JSON, report.WriteJSON))
}

// writeTo writes a file, if there is a name for it.
func writeTo(file string, write func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

type benchRedisServiceCmd struct {
	Redis    string `help:"Address of the Redis server." required:"" env:"-"`
	PortFile string `help:"File for the port." required:"" env:"-"`
	Batch    bool   `help:"Send the commands of concurrent calls together." env:"-"`
}

// Run serves until the context ends.
func (c *benchRedisServiceCmd) Run(ctx context.Context) error {
	return bench.ServeRedis(ctx, c.Redis, c.PortFile, c.Batch)
}

type benchReplayJobCmd struct {
	Job string `help:"What is to be done." required:"" env:"-"`
}

// Run does the job and prints what it found.
func (c *benchReplayJobCmd) Run(ctx context.Context, std *streams) error {
	return bench.RunReplayJob(ctx, c.Job, std.out)
}
