package imports

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
	"github.com/skein-feed/skein/replay/importer/redis"
)

// redisCmd is the command `skein import redis`. An element is a member of a set, a field of a hash,
// or an element of a list in Redis; each element becomes a fact (follow, pin, play …) that is
// published as an event.
type redisCmd struct {
	command.ClientFlags `embed:""`
	importLimits        `embed:""`

	Mapping  string        `arg:"" help:"File that says what the keys of Redis mean." type:"existingfile"`
	Redis    string        `help:"Address of Redis." default:"redis://127.0.0.1:6379/0" placeholder:"URL"`
	State    string        `help:"Directory for what was read and published, to continue from; by default MAPPING.skein-redis." type:"path" placeholder:"DIR"`
	Commands float64       `help:"Largest number of commands per second that Redis gets; 0 means no limit." default:"2000"`
	Page     int           `help:"Number of members that one command asks for." default:"1000"`
	Restart  bool          `help:"Start from the beginning. Everything is published again, so plays count twice."`
	DryRun   bool          `help:"Read everything and print the first events and rejects, but publish and write nothing."`
	RetryFor time.Duration `help:"How long to retry calls while the service, or a Redis that answered before, does not answer." default:"5m"`

	Compare          bool          `help:"After the import, compare everything in Redis with the service."`
	CompareOnly      bool          `help:"Only compare, and publish nothing."`
	CompareTolerance time.Duration `help:"Largest difference of times that does not count. If your application writes to both, their clocks differ." default:"0s"`

	JSON bool `help:"Print the report as JSON."`
}

// Help is shown below the flags.
func (*redisCmd) Help() string {
	return `The mapping is a YAML file. Each rule has a pattern of keys, and says what their members, fields or elements mean:
  rules:
    - {means: follows, key: "followers:{user}", member: "{follower}", score: s}
--redis has the form redis://user:password@host:port/database, or rediss:// for TLS. Imported events are history: they never undo what
happened live. The command only reads from Redis, with SCAN. You can interrupt it and run it again at any time. If you run it again after it
has finished, it publishes what Redis has got since. Elements that cannot be imported are written to rejects.tsv in the state directory.`
}

// options reads the mapping and returns the options of the import that follow from it and from the
// flags. Run adds those that need the service.
func (c *redisCmd) options() (redis.Options, error) {
	data, err := os.ReadFile(c.Mapping)
	if err != nil {
		return redis.Options{}, err
	}
	mapping, err := redis.ParseMapping(data)
	if err != nil {
		return redis.Options{}, command.Usagef("%s: %w", c.Mapping, err)
	}

	if c.State == "" {
		c.State = c.Mapping + ".skein-redis"
	}
	return redis.Options{
		URL:            c.Redis,
		Mapping:        mapping,
		Name:           filepath.Base(c.Mapping),
		State:          c.State,
		Commands:       c.Commands,
		PageSize:       c.Page,
		Restart:        c.Restart,
		PublishOptions: importer.PublishOptions{Patience: c.RetryFor, CallTimeout: c.Timeout, MaxLag: c.MaxLag},
	}, nil
}

// Run imports from Redis. With --compare it then compares the service with Redis, and with
// --compare-only it does nothing else.
func (c *redisCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.CompareOnly && (c.DryRun || c.Restart) {
		return command.Usagef("--compare-only publishes nothing, so it excludes --dry-run and --restart")
	}
	o, err := c.options()
	if err != nil {
		return err
	}

	// Messages of the Redis client would mix with the progress. The import reports errors itself.
	logging.Disable()
	bar := command.NewProgress(std.Err, "import redis")
	o.Notice = bar.Note
	o.Observe = showImportProgress(bar)
	startTime := time.Now()

	// A dry run must not need a service.
	if c.DryRun {
		report, err := redis.DryRun(ctx, o)
		bar.End()
		if err != nil {
			return asUsageError(err)
		}
		return c.printDryRun(std, report, time.Since(startTime))
	}

	api := c.Client()
	status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	o.LogID = status.GetLog().GetLogId()
	o.Publish, o.Lag = c.serviceCalls(api)

	// A comparison alone waits for no position, and has no rejects of an import.
	position := ""
	var rejectsErr error
	if !c.CompareOnly {
		report, err := redis.Run(ctx, o)
		bar.End()
		if err != nil {
			if ctx.Err() != nil {
				std.Sayf("the same command continues where this one was")
			}
			return asUsageError(err)
		}
		err = c.printReport(std, report, time.Since(startTime))
		if err != nil {
			return err
		}
		position = report.Position
		rejectsErr = c.checkRejects(report)
	}

	if !c.Compare && !c.CompareOnly {
		return rejectsErr
	}
	return joinRejects(rejectsErr, c.compare(ctx, std, o, api, position))
}

// checkRejects returns an error if too many elements were rejected, or if none were found. The
// import rejects elements that do not fit the mapping; the service refuses facts. Both count as
// rejects.
func (c *redisCmd) checkRejects(r *redis.Report) error {
	rejected := r.Rejected + r.Refused
	if r.Found+rejected == 0 {
		return errNothingFound
	}
	return c.MaxRejects.Check(rejected, r.Found+r.Rejected, r.Found > r.Refused)
}

// errNothingFound means that no key in Redis matches the mapping.
var errNothingFound = errors.New("no keys of the mapping were found: is this the right database?")

// asUsageError turns the error that --redis is not a valid address into a usage error, and returns
// any other error as it is.
func asUsageError(err error) error {
	if errors.Is(err, redis.ErrURL) {
		return command.Usagef("%w", err)
	}
	return err
}

// redisReport is what an import from Redis prints with --json. It counts facts, but for KeyCounts
// and Rejected, which count keys and elements.
type redisReport struct {
	redis.KeyCounts
	Found uint64 `json:"found"`
	// New is how many of the found facts no earlier run has published.
	New       uint64 `json:"new"`
	Published uint64 `json:"published"`
	// Clamped is how many new facts had a time after the start of the import. They got that start
	// as their time.
	Clamped uint64 `json:"clamped"`
	// NoLongerInRedis is how many facts an earlier run has published that Redis no longer has.
	NoLongerInRedis uint64                `json:"gone"`
	Rejected        uint64                `json:"rejected"`
	Reasons         importer.ReasonCounts `json:"reasons,omitempty"`
	// Rejects is the path of the file with the rejected elements.
	Rejects string `json:"rejects,omitempty"`
	// Refused is how many facts the service did not accept.
	Refused uint64  `json:"refused"`
	Seconds float64 `json:"seconds"`
	// Throttled is for how many seconds commands to Redis waited because of --commands.
	Throttled float64 `json:"held_seconds"`
	// Waited is for how many seconds publishing waited for the slowest projection (--max-lag).
	Waited float64 `json:"waited_seconds"`
	Source string  `json:"source"`
	// Run is the number of this run of the import; the first one is 1.
	Run       int       `json:"run"`
	StartedAt time.Time `json:"started_at"`
	// Position is the position of the log after the import.
	Position string `json:"position"`
}

// printReport prints the report of an import.
func (c *redisCmd) printReport(std *command.Streams, r *redis.Report, took time.Duration) error {
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(redisReport{
			KeyCounts:       r.KeyCounts,
			Found:           r.Found,
			New:             r.New,
			Published:       r.Published,
			Clamped:         r.Clamped,
			NoLongerInRedis: r.NoLongerInRedis,
			Rejected:        r.Rejected,
			Reasons:         r.Reasons,
			Rejects:         r.Rejects,
			Refused:         r.Refused,
			Seconds:         took.Seconds(),
			Throttled:       r.ThrottleTime.Seconds(),
			Waited:          r.Waited.Seconds(),
			Source:          r.Source,
			Run:             r.Run,
			StartedAt:       r.StartedAt,
			Position:        r.Position,
		})
	}

	printKeyCounts(std, &r.KeyCounts)
	std.Sayf("%d facts found, %d of them new: %d published as %s (run %d), %d with a time in the future, in %v",
		r.Found, r.New, r.Published, r.Source, r.Run, r.Clamped, took.Round(time.Millisecond))
	if r.NoLongerInRedis > 0 {
		std.Sayf("%d facts that were published before are no longer in Redis: the log keeps them", r.NoLongerInRedis)
	}

	c.printThrottleTime(std, r.ThrottleTime)
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

// printThrottleTime prints for how long commands to Redis waited because of --commands, unless that
// was less than a second.
func (c *redisCmd) printThrottleTime(std *command.Streams, throttled time.Duration) {
	if throttled >= time.Second {
		std.Sayf("for %v of that time commands waited, because Redis gets at most %.6g per second (--commands)",
			throttled.Round(time.Millisecond), c.Commands)
	}
}

// printKeyCounts prints what was found for each rule of the mapping. The range of times lets the
// user notice a wrong unit.
func printKeyCounts(std *command.Streams, counts *redis.KeyCounts) {
	for i := range counts.Rules {
		r := &counts.Rules[i]

		times := "without times"
		if r.Latest > 0 {
			times = "from " + r.Earliest.Time().Format(time.DateTime) + " to " + r.Latest.Time().Format(time.DateTime)
		}
		std.Sayf("%s: %d keys, %d elements, %d rejected, %s", r.Rule, r.Keys, r.Elements, r.Rejected, times)

		switch {
		case r.Keys == 0:
			std.Sayf("  no key matches this rule, or an earlier rule takes its keys: is the pattern right?")
		case r.Latest > 0 && r.Latest.Time().Year() < 1990:
			std.Sayf("  all times are before 1990: is the unit right?")
		}
	}
	std.Sayf("%d keys scanned: %d match no rule, %d were deleted before they were read", counts.Scanned, counts.Unmatched, counts.Vanished)
}

// printDryRun prints the report of --dry-run: the first events and rejects, and what was found.
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
	std.Sayf("%d events would be published, except those that were published before; %d elements or keys rejected, in %v",
		r.Found, r.Rejected, took.Round(time.Millisecond))
	c.printThrottleTime(std, r.ThrottleTime)
	return c.checkRejects(r)
}

// compare compares Redis with the answers of the service, which must contain the position, and
// prints the differences. compare returns [command.ErrSilent] if there are any.
func (c *redisCmd) compare(ctx context.Context, std *command.Streams, o redis.Options, api *command.Client, position string) error {
	bar := command.NewProgress(std.Err, "compare")
	o.Observe = showImportProgress(bar)
	startTime := time.Now()
	found, err := redis.Compare(ctx, redis.CompareOptions{
		Options:    o,
		AtLeast:    position,
		Graph:      api.Graph(),
		Feed:       api.Feed(),
		Seen:       api.Seen(),
		Counters:   api.Counters(),
		Tolerance:  c.CompareTolerance,
		Asked:      showCompareProgress(bar),
		Difference: printDifference(std, bar),
	})
	bar.End()
	if err != nil {
		return asUsageError(err)
	}

	std.Sayf("%s; %d elements or keys of Redis rejected", comparisonText(&found.Comparison, time.Since(startTime)), found.Rejected)
	c.printThrottleTime(std, found.ThrottleTime)

	if found.Differences() > 0 {
		return command.ErrSilent
	}
	if found.Entries+found.Rejected == 0 {
		return errNothingFound
	}
	return c.MaxRejects.Check(found.Rejected, found.Entries+found.Rejected, found.Entries > 0)
}
