package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
	"github.com/skein-feed/skein/replay/importer/redis"
)

// redisCmd imports from a live Redis.
type redisCmd struct {
	command.ClientFlags `embed:""`
	importLimits        `embed:""`

	Mapping  string        `arg:"" help:"File that says what the keys mean." type:"existingfile"`
	Redis    string        `help:"Address of the Redis." default:"redis://127.0.0.1:6379/0" placeholder:"URL"`
	State    string        `help:"Directory for what was read and published; by default MAPPING.skein-redis." type:"path" placeholder:"DIR"`
	Commands float64       `help:"How many commands a second Redis gets at most; 0 means as many as it answers." default:"2000"`
	Page     int           `help:"How many members one command asks for." default:"1000"`
	Restart  bool          `help:"Forget what earlier runs read and published: everything is sent again, and plays count twice."`
	DryRun   bool          `help:"Read everything, show the first events and rejects, and publish and write nothing."`
	RetryFor time.Duration `help:"How long calls are tried again while the service, or a Redis that once answered, is away." default:"5m"`

	Compare          bool          `help:"Afterwards compare everything that Redis says with the service."`
	CompareOnly      bool          `help:"Publish nothing: only compare."`
	CompareTolerance time.Duration `help:"By how much times may differ: what is written to both has two clocks." default:"0s"`

	JSON bool `help:"Print the report as JSON."`
}

// Help is shown below the flags.
func (*redisCmd) Help() string {
	return `The mapping is YAML: rules with a pattern of keys and what their members, fields or elements mean, such as
  rules:
    - {means: follows, key: "followers:{user}", member: "{follower}", score: s}
--redis is redis://user:password@host:port/database, or rediss:// for TLS. Everything is history: it never undoes what
happened live. The import only reads Redis, by SCAN. It can be interrupted and run again at any time; run again when it is
done, it publishes what Redis has beside what was published. Elements that cannot be imported are in rejects.tsv in the state directory.`
}

func (c *redisCmd) options() (redis.Options, error) {
	data, err := os.ReadFile(c.Mapping)
	if err != nil {
		return redis.Options{}, err
	}
	m, err := redis.ParseMapping(data)
	if err != nil {
		return redis.Options{}, command.Usagef("%s: %w", c.Mapping, err)
	}
	if c.State == "" {
		c.State = c.Mapping + ".skein-redis"
	}
	return redis.Options{
		URL: c.Redis, Mapping: m, Name: filepath.Base(c.Mapping), State: c.State, Commands: c.Commands, PageSize: c.Page,
		Restart: c.Restart, PublishOptions: importer.PublishOptions{Patience: c.RetryFor, CallTimeout: c.Timeout, MaxLag: c.MaxLag},
	}, nil
}

// Run imports from a Redis.
func (c *redisCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.CompareOnly && (c.DryRun || c.Restart) {
		return command.Usagef("--compare-only publishes nothing: --dry-run and --restart have no meaning beside it")
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	logging.Disable() // its messages would disturb the progress, and the import reports errors itself
	bar := command.NewProgress(std.Err, "import redis")
	o.Notice, o.Observe = bar.Note, showImportProgress(bar)
	if c.DryRun {
		began := time.Now()
		report, err := redis.DryRun(ctx, o)
		bar.End()
		if err != nil {
			return asUsageError(err)
		}
		return c.printDryRun(std, report, time.Since(began))
	}
	api := c.Client()
	status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	o.LogID = status.GetLog().GetLogId()
	o.Publish, o.Lag = c.serviceCalls(api)
	position, rejects := "", error(nil)
	if !c.CompareOnly {
		began := time.Now()
		report, err := redis.Run(ctx, o)
		bar.End()
		if err != nil {
			if ctx.Err() != nil {
				std.Sayf("the same command continues where this one was")
			}
			return asUsageError(err)
		}
		if err := c.printReport(std, report, time.Since(began)); err != nil {
			return err
		}
		position, rejects = report.Position, c.checkRejects(report)
	}
	if !c.Compare && !c.CompareOnly {
		return rejects
	}
	err = c.compare(ctx, std, o, api, position)
	if rejects != nil && (err == nil || errors.Is(err, command.ErrSilent)) {
		return rejects
	}
	return err
}

// checkRejects returns an error if too many elements were rejected, or none was found.
func (c *redisCmd) checkRejects(r *redis.Report) error {
	rejected := r.Rejected + r.Refused
	if r.Found+rejected == 0 {
		return errNothingFound
	}
	return c.MaxRejects.Check(rejected, r.Found-r.Refused, r.Found+r.Rejected)
}

var errNothingFound = errors.New("nothing was found in the keys of the mapping: is it the right database?")

// asUsageError turns errors that the command line has caused into errors of usage.
func asUsageError(err error) error {
	if errors.Is(err, redis.ErrURL) {
		return command.Usagef("%w", err)
	}
	return err
}

// redisReport is the report for programs.
type redisReport struct {
	redis.KeyCounts
	Found     uint64           `json:"found"`
	New       uint64           `json:"new"`
	Published uint64           `json:"published"`
	Clamped   uint64           `json:"clamped"`
	Gone      uint64           `json:"gone"`
	Rejected  uint64           `json:"rejected"`
	Reasons   importer.Reasons `json:"reasons,omitempty"`
	Rejects   string           `json:"rejects,omitempty"`
	Refused   uint64           `json:"refused"`
	Seconds   float64          `json:"seconds"`
	Held      float64          `json:"held_seconds"`
	Waited    float64          `json:"waited_seconds"`
	Source    string           `json:"source"`
	Run       int              `json:"run"`
	StartedAt time.Time        `json:"started_at"`
	Position  string           `json:"position"`
}

func (c *redisCmd) printReport(std *command.Streams, r *redis.Report, took time.Duration) error {
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(redisReport{
			KeyCounts: r.KeyCounts, Found: r.Found, New: r.New, Published: r.Published, Clamped: r.Clamped, Gone: r.Gone,
			Rejected: r.Rejected, Reasons: r.Reasons, Rejects: r.Rejects, Refused: r.Refused, Seconds: took.Seconds(),
			Held: r.Held.Seconds(), Waited: r.Waited.Seconds(), Source: r.Source, Run: r.Run, StartedAt: r.StartedAt, Position: r.Position,
		})
	}
	printKeyCounts(std, &r.KeyCounts)
	std.Sayf("%d facts found, %d of them new: %d published as %s (run %d), %d with a time in the future, in %v",
		r.Found, r.New, r.Published, r.Source, r.Run, r.Clamped, took.Round(time.Millisecond))
	if r.Gone > 0 {
		std.Sayf("%d facts that were published before are no longer in Redis: the log keeps them", r.Gone)
	}
	c.printThrottleTime(std, r.Held)
	if r.Waited > 0 {
		std.Sayf("publishing waited for %v for the slowest projection (--max-lag %v)", r.Waited.Round(time.Millisecond), c.MaxLag)
	}
	printReasons(std, r.Reasons)
	if r.Rejected > 0 {
		std.Sayf("%d elements or keys rejected: %s", r.Rejected, r.Rejects)
	}
	if r.Refused > 0 {
		std.Sayf("%d facts refused by the service: %s", r.Refused, r.RefusedFile)
	}
	printPosition(std, r.Position)
	return nil
}

// printThrottleTime prints how long --commands has slowed down the import.
func (c *redisCmd) printThrottleTime(std *command.Streams, held time.Duration) {
	if held >= time.Second {
		std.Sayf("for %v of that commands waited, for Redis gets at most %.6g a second (--commands)", held.Round(time.Millisecond), c.Commands)
	}
}

// printKeyCounts prints the counts of each rule. They include the range of times, which reveals a wrong unit.
func printKeyCounts(std *command.Streams, k *redis.KeyCounts) {
	for i := range k.Rules {
		r := &k.Rules[i]
		times := "without times"
		if r.Latest > 0 {
			times = "from " + r.Earliest.Time().Format(time.DateTime) + " to " + r.Latest.Time().Format(time.DateTime)
		}
		std.Sayf("%s: %d keys, %d elements, %d rejected, %s", r.Rule, r.Keys, r.Elements, r.Rejected, times)
		switch {
		case r.Keys == 0:
			std.Sayf("  no key matches it, or an earlier rule reads them: is the pattern right?")
		case r.Latest > 0 && r.Latest.Time().Year() < 1990:
			std.Sayf("  all its times are before 1990: is the unit right?")
		}
	}
	std.Sayf("%d keys scanned: %d are of no rule, %d went before they were read", k.Scanned, k.Unmatched, k.Vanished)
}

func (c *redisCmd) printDryRun(std *command.Streams, r *redis.Report, took time.Duration) error {
	for _, ev := range r.Sample {
		if err := command.PrintJSON(std.Out, ev); err != nil {
			return err
		}
	}
	printKeyCounts(std, &r.KeyCounts)
	printReasons(std, r.Reasons)
	for _, rej := range r.SampleRejects {
		std.Sayf("rule %s", rej)
	}
	std.Sayf("%d events would be published but for those that were before, %d elements or keys rejected, in %v",
		r.Found, r.Rejected, took.Round(time.Millisecond))
	c.printThrottleTime(std, r.Held)
	return c.checkRejects(r)
}

// compare compares Redis with the answers of the service.
func (c *redisCmd) compare(ctx context.Context, std *command.Streams, o redis.Options, api *command.Client, position string) error {
	bar := command.NewProgress(std.Err, "compare")
	o.Observe = showImportProgress(bar)
	began := time.Now()
	found, err := redis.Compare(ctx, redis.CompareOptions{
		Options: o, AtLeast: position, Graph: api.Graph(), Feed: api.Feed(), Seen: api.Seen(), Counters: api.Counters(),
		Tolerance:  c.CompareTolerance,
		Asked:      showCompareProgress(bar),
		Difference: func(text string) { bar.Clear(); fmt.Fprintln(std.Out, "difference: "+text) },
	})
	bar.End()
	if err != nil {
		return asUsageError(err)
	}
	std.Sayf("%s; %d elements or keys of Redis rejected", comparisonText(&found.Comparison, time.Since(began)), found.Rejected)
	c.printThrottleTime(std, found.Held)
	if found.Differences() > 0 {
		return command.ErrSilent
	}
	if found.Entries+found.Rejected == 0 {
		return errNothingFound
	}
	return c.MaxRejects.Check(found.Rejected, found.Entries, found.Entries+found.Rejected)
}
