// Skein-bench measures skein and what it is compared with, side by side in one run, and prints a
// table of ratios. It is a module of its own, so that programs that import skein do not depend on
// the modules that only the bench needs. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/skein-feed/skein/cmd/skein-bench/bench"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/replays"
)

// cli is the grammar of the command line.
type cli struct {
	Measure measureCmd      `cmd:"" name:"run" default:"withargs" help:"Measure, and print the table (needs Redis and wrk)."`
	Compare compareCmd      `cmd:"" name:"compare" help:"Measure two builds of skein in turn, and print their ratios (needs neither Redis nor wrk)."`
	Service redisServiceCmd `cmd:"" name:"redis-service" hidden:"" help:"Run the service in front of Redis that the bench measures."`
	Job     replayJobCmd    `cmd:"" name:"replay-job" hidden:"" help:"Make one measurement of a replay, in a process of its own."`
}

// streams are the standard streams: the table goes to out, and progress to err.
type streams struct{ out, err io.Writer }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], &streams{os.Stdout, os.Stderr})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "skein-bench:", err)
		os.Exit(1)
	}
}

// run parses the command line and runs the command that it names.
func run(ctx context.Context, args []string, std *streams) error {
	parser, err := kong.New(&cli{},
		kong.Name("skein-bench"),
		kong.Description("Measure skein against Redis, side by side, and print a table of ratios."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"benchGroups": strings.Join(bench.GroupNames(), ", ")},
		kong.Writers(std.out, std.err),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return parsed.Run(std)
}

// measureCmd is the command `skein-bench run`, which is also the command without a name.
type measureCmd struct {
	Quick   bool          `help:"Make a smoke test of about a minute, whose figures mean nothing."`
	Only    []string      `help:"Measure only these groups of ${benchGroups}. The last four are measured only if they are named." placeholder:"NAME"`
	Edges   int           `help:"Follows of the graph." default:"1000000"`
	Users   int           `help:"Users of the graph; 0 means a tenth of its follows." default:"0"`
	Runs    int           `help:"How often to measure everything." default:"5"`
	Time    time.Duration `help:"How long one measurement of reads takes." default:"3s"`
	Follows int           `help:"Follows that one measurement of ingest publishes." default:"300000"`
	Big     int           `help:"Followers of the user whose costs are compared with those of a user with 10." default:"1000000"`
	Posts   string        `help:"File with the posts of home feeds, CSV, plain or zstd; by default posts are made up." placeholder:"FILE" type:"existingfile"`
	Readers int           `help:"Readers of home feeds, users who play, and users who are notified." default:"100000"`
	Plays   int           `help:"Plays that one measurement of the projection seen folds. Of notifications, one folds a quarter as many." default:"2000000"`
	Items   int           `help:"Items of the lists by heat." default:"1000000"`
	Replay  int           `help:"Events of each log that is replayed." default:"1000000"`
	Of      []string      `help:"Replay only these projections." name:"replay-of" placeholder:"NAME"`
	Growth  []int         `help:"Numbers of follows whose costs are compared." default:"100000,1000000,10000000"`
	Alone   bool          `help:"Measure only the growth of the graph, without starting a service." name:"growth-alone"`
	Memory  byteSize      `help:"Memory for the rebuilds of growth and plays; 0 means 512 MiB." name:"rebuild-memory" default:"0"`
	Events  int           `help:"Events in the log of a large product, of which one node is measured." name:"log-events" default:"20000000"`
	Limit   time.Duration `help:"Give up after this time." default:"40m"`
	Dir     string        `help:"Directory for temporary files, on the disk that is measured." placeholder:"DIR" type:"existingdir"`
	JSON    string        `help:"Write the report, with every single measurement, to this file." placeholder:"FILE" type:"path"`
	MD      string        `help:"Also write the table to this file." placeholder:"FILE" type:"path"`
}

// Run measures, and prints the table.
func (c *measureCmd) Run(ctx context.Context, std *streams) error {
	hasTooFew := min(c.Edges, c.Follows, c.Big, c.Readers, c.Plays) < 1000
	hasTooSmallLog := min(c.Items, c.Replay, c.Events) < 10_000 || len(c.Growth) == 0 || slices.Min(c.Growth) < 10_000
	if hasTooFew || hasTooSmallLog || c.Users < 0 || c.Runs < 1 {
		return errors.New("--edges, --follows, --big, --readers and --plays must be at least 1000, --items, --replay, --log-events and --growth " +
			"at least 10000, --runs at least 1, and --users must not be negative: smaller runs say nothing")
	}
	if c.Users == 0 {
		c.Users = c.Edges / 10
	}
	if c.Edges/50 > c.Users {
		return fmt.Errorf("--users must be at least a fiftieth of --edges, %d, is %d", c.Edges/50, c.Users)
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts := measure.Options{
		Self:          self,
		Dir:           c.Dir,
		Users:         c.Users,
		Edges:         c.Edges,
		Runs:          c.Runs,
		Time:          c.Time,
		Follows:       c.Follows,
		BigUser:       c.Big,
		Posts:         c.Posts,
		Readers:       c.Readers,
		Plays:         c.Plays,
		Items:         c.Items,
		Replayed:      c.Replay,
		ReplayOf:      c.Of,
		Growth:        c.Growth,
		GrowthAlone:   c.Alone,
		RebuildMemory: int(c.Memory),
		LogEvents:     c.Events,
		Limit:         c.Limit,
		Only:          c.Only,
		Progress:      std.err,
	}
	// The figures of a smoke test mean nothing, so it may be built with cgo.
	switch {
	case c.Quick:
		opts = opts.SmokeTest()
	case !isStatic():
		return errCgo
	}

	report, err := bench.Run(ctx, opts)
	if err != nil {
		return err
	}
	return errors.Join(
		report.WriteMarkdown(std.out),
		writeTo(c.MD, report.WriteMarkdown),
		writeTo(c.JSON, report.WriteJSON),
	)
}

// minRounds is the least number of rounds that can show a difference between two programs. Between
// equal programs, all of five rounds are on the same side of 1 by chance in one of 16 rows.
const minRounds = 5

// compareCmd is the command `skein-bench compare`.
type compareCmd struct {
	Base     string        `help:"Program to compare with; by default the head itself, which shows the noise." placeholder:"FILE" type:"existingfile"`
	Head     string        `help:"Program to compare; by default it is built from this clone." placeholder:"FILE" type:"existingfile"`
	BaseName string        `help:"Name of the base in the report." default:"the head"`
	HeadName string        `help:"Name of the head in the report." default:"this clone"`
	Quick    bool          `help:"Make a smoke test of about a minute, whose figures mean nothing."`
	Runs     int           `help:"Rounds: how often to measure everything with each program." default:"8"`
	Time     time.Duration `help:"How long one measurement of reads takes." default:"2s"`
	Edges    int           `help:"Follows of the graph, which has a tenth as many users." default:"300000"`
	Follows  int           `help:"Follows or other events that one measurement publishes." default:"100000"`
	Plays    int           `help:"Plays that one measurement publishes." default:"100000"`
	Limit    time.Duration `help:"Give up after this time." default:"40m"`
	Dir      string        `help:"Directory for temporary files, on the disk that is measured." placeholder:"DIR" type:"existingdir"`
	JSON     string        `help:"Write the report, with every single measurement, to this file." placeholder:"FILE" type:"path"`
}

// Run measures both programs, and prints their ratios. A bad ratio is not an error.
func (c *compareCmd) Run(ctx context.Context, std *streams) error {
	if c.Runs < minRounds || c.Edges < 10_000 || c.Follows < 10_000 || c.Plays < 10_000 {
		return fmt.Errorf("--runs must be at least %d, and --edges, --follows and --plays at least 10000 each: less says nothing", minRounds)
	}
	opts := measure.Options{
		Dir:      c.Dir,
		Users:    c.Edges / 10,
		Edges:    c.Edges,
		Runs:     c.Runs,
		Time:     c.Time,
		Follows:  c.Follows,
		Plays:    c.Plays,
		Items:    c.Plays,
		Base:     measure.ComparedProgram{Name: c.BaseName, Path: c.Base},
		Head:     measure.ComparedProgram{Name: c.HeadName, Path: c.Head},
		Limit:    c.Limit,
		Progress: std.err,
	}
	switch {
	case c.Quick:
		opts = opts.SmokeTest()
	case !isStatic():
		return errCgo
	}

	report, err := bench.Compare(ctx, opts)
	if err != nil {
		return err
	}
	return errors.Join(report.WriteComparison(std.out), writeTo(c.JSON, report.WriteJSON))
}

// errCgo means that the bench was built with cgo. Released programs are built without cgo, and some
// rows measure code in the bench itself.
var errCgo = errors.New("this program was built with cgo, unlike released ones, which changes the figures; run " +
	"CGO_ENABLED=0 go run -C cmd/skein-bench ., or task bench")

// isStatic reports whether this program was built without cgo.
func isStatic() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}

// byteSize is a number of bytes. On the command line it may have a unit, as in 3GiB.
type byteSize int

// UnmarshalText parses a number of bytes, with or without a unit.
func (b *byteSize) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	*b = byteSize(n)
	return err
}

// writeTo calls write with a new file, unless the path is empty.
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

// redisServiceCmd is the hidden command that serves the graph in a Redis server.
type redisServiceCmd struct {
	Redis    string `help:"Address of the Redis server." required:""`
	PortFile string `help:"File for the port." required:""`
	Batch    bool   `help:"Send the commands of concurrent calls together."`
}

// Run serves until the context ends.
func (c *redisServiceCmd) Run(ctx context.Context) error {
	return programs.ServeRedis(ctx, c.Redis, c.PortFile, c.Batch)
}

// replayJobCmd is the hidden command that makes one measurement in a process of its own.
type replayJobCmd struct {
	Job string `help:"The job, as JSON." required:""`
}

// Run does the job and prints its result as JSON.
func (c *replayJobCmd) Run(ctx context.Context, std *streams) error {
	return replays.RunReplayJob(ctx, c.Job, std.out)
}
