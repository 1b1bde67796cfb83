package imports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/importer"
)

// Cmd is the command `skein import`. It has a subcommand for each kind of record in a file, and one
// for Redis.
type Cmd struct {
	Follows followsCmd `cmd:"" help:"Import follows. A row has a follower, a user, and optionally a time."`
	Boards  boardsCmd  `cmd:"" help:"Import boards. A row has an owner, a board, and optionally a title, a follower and a time."`
	Pins    pinsCmd    `cmd:"" help:"Import pins. A row has an owner, a pin, and optionally board, item, re-pinned pin, attributes and time."`
	Plays   playsCmd   `cmd:"" help:"Import plays. A row has a user, an item, and optionally a time."`

	Reactions reactionsCmd `cmd:"" help:"Import likes and other reactions. A row has a user, an item, and optionally kind, pin and time."`

	Unfollows      unfollowsCmd      `cmd:"" help:"Import unfollows. A row has a follower, a user, and optionally a time."`
	BoardUnfollows boardUnfollowsCmd `cmd:"" help:"Import unfollows of boards. A row has a follower, an owner, a board, and optionally a time."`
	Blocks         blocksCmd         `cmd:"" help:"Import blocks. A row has a user, a blocked user, and optionally a time."`
	Mutes          mutesCmd          `cmd:"" help:"Import mutes. A row has a user, a muted user, and optionally a time."`
	FollowSettings followSettingsCmd `cmd:"" help:"Import settings of follows. A row has a follower, a user, and optionally settings and a time."`
	HiddenItems    hiddenItemsCmd    `cmd:"" help:"Import hidden items. A row has a user, an item, and optionally a time."`

	Redis redisCmd `cmd:"" help:"Import from a live Redis. A mapping says what its keys mean."`
}

type followsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*followsCmd) Help() string {
	return `Columns: follower, user [, time]. ` + importHelp
}

// Run imports follows.
func (c *followsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Follows)
}

type boardsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*boardsCmd) Help() string {
	return `Columns: owner, board [, title] [, follower] [, time]. A row with a follower says that this user follows the
board; a row with a title, or without a follower, that the board exists. ` + importHelp
}

// Run imports boards.
func (c *boardsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Boards)
}

type pinsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*pinsCmd) Help() string {
	return `Columns: owner, pin [, board] [, item] [, repin_owner, repin_pin] [, attributes or attributes_base64] [, time].
Without a board a pin is on its owner's default board, without an item it shows an item of its own id. repin_owner and
repin_pin come both or not at all. Attributes are text, or any bytes in base64: at most 256 bytes. --compare asks for the
pins of every owner and board. ` + importHelp
}

// Run imports pins.
func (c *pinsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Pins)
}

type playsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*playsCmd) Help() string {
	return `Columns: user, item [, time]. --compare asks how often every item was played, and every user played. ` + importHelp
}

// Run imports plays.
func (c *playsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Plays)
}

type reactionsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*reactionsCmd) Help() string {
	return `Columns: user, item [, kind] [, pin_owner, pin] [, time]. A kind is 1 to 32 bytes of a-z, 0-9 and _; without one the
row is a like. pin_owner and pin, the pin on which the user reacted, come both or not at all. --compare asks how many users
reacted to every item with each kind; private kinds, which begin with _, have no such count. ` + importHelp
}

// Run imports reactions.
func (c *reactionsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Reactions)
}

type unfollowsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*unfollowsCmd) Help() string {
	return `Columns: follower, user [, time]. An unfollow ends older follows of the user and of the user's boards. ` + importHelp
}

// Run imports unfollows.
func (c *unfollowsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Unfollows)
}

type boardUnfollowsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*boardUnfollowsCmd) Help() string {
	return `Columns: follower, owner, board [, time]. A follower of the owner no longer sees this board. ` + importHelp
}

// Run imports unfollows of boards.
func (c *boardUnfollowsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.BoardUnfollows)
}

type blocksCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*blocksCmd) Help() string {
	return `Columns: user, blocked [, time]. A block ends the follows between the two that are older. ` + importHelp
}

// Run imports blocks.
func (c *blocksCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Blocks)
}

type mutesCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*mutesCmd) Help() string {
	return `Columns: user, muted [, until, time]. ` + importHelp
}

// Run imports mutes.
func (c *mutesCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.Mutes)
}

type followSettingsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*followSettingsCmd) Help() string {
	return `Columns: follower, user [, hide_repins, notify, favorite, time]. A setting is true, false or empty, and a row sets all
three. Settings hold until an unfollow or a block that is later. ` + importHelp
}

// Run imports settings of follows.
func (c *followSettingsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.FollowSettings)
}

type hiddenItemsCmd struct {
	importFlags `embed:""`
}

// Help is shown below the flags.
func (*hiddenItemsCmd) Help() string {
	return `Columns: user, item [, time]. The user no longer sees the item. ` + importHelp
}

// Run imports hidden items.
func (c *hiddenItemsCmd) Run(ctx context.Context, std *command.Streams) error {
	return c.runImport(ctx, std, importer.HiddenItems)
}

// importHelp is the part of the help that the commands for all kinds of files share.
const importHelp = `The first line may name the columns; --columns names them otherwise. Files may be compressed with gzip or
zstd. The command reads the whole file before it publishes anything. It publishes nothing if the file can be read in two ways, or has
more bad rows than --max-rejects allows. Imported events are history: they never undo what happened live. You can interrupt an import
and run the same command again at any time: it continues where it stopped, and the log ignores events that it already has. Bad rows are
written to a file next to the input, with the reason.`

// importLimits are the flags that limit an import. They are the same for files and for Redis.
type importLimits struct {
	MaxLag     time.Duration       `help:"Pause publishing while the slowest projection is further behind the log; 0 never pauses." default:"5s"`
	MaxRejects importer.MaxRejects `help:"How many records may be rejected, such as 10 or 0.5%. With more, the exit code is 1." default:"0" placeholder:"N"`
}

// serviceCalls returns two functions that call the service: one publishes events, the other asks
// how far the slowest projection is behind the log. A projection is a store that the service
// computes from the log.
func (*importLimits) serviceCalls(api *command.Client) (importer.PublishFunc, importer.LagFunc) {
	publish := func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		res, err := api.Events().Publish(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}

	lag := func(ctx context.Context) (slowest importer.Lag, err error) {
		res, err := api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{PageSize: 1}))
		if err != nil {
			return slowest, err
		}

		for _, p := range res.Msg.GetProjections() {
			// A projection in one of these states does not catch up, however long the import waits.
			switch p.GetState() {
			case skeinv1.ProjectionState_PROJECTION_STATE_FAILED, skeinv1.ProjectionState_PROJECTION_STATE_STOPPED,
				skeinv1.ProjectionState_PROJECTION_STATE_OUTDATED:
				continue
			}

			behind := time.Duration(p.GetLagSeconds() * float64(time.Second))
			if behind > slowest.Behind {
				slowest = importer.Lag{Projection: p.GetName(), Behind: behind}
			}
		}
		return slowest, nil
	}

	return publish, lag
}

// printPosition prints the position of the log after the import, and what it is for. The position
// is empty if nothing was published.
func printPosition(std *command.Streams, position string) {
	if position == "" {
		return
	}
	std.Sayf("queries with --at-least and this position contain the import:")
	fmt.Fprintln(std.Out, position)
}

// printReasons prints the reasons for rejects, the most frequent one first.
func printReasons(std *command.Streams, reasons importer.ReasonCounts) {
	slices.SortStableFunc(reasons, func(a, b importer.ReasonCount) int { return cmp.Compare(b.Count, a.Count) })
	for _, count := range reasons {
		std.Sayf("%s", count)
	}
}

// importFlags are the flags of an import from a file.
type importFlags struct {
	command.ClientFlags `embed:""`
	importLimits        `embed:""`

	File      string        `arg:"" help:"File to import; - is standard input." type:"existingfile"`
	Columns   []string      `help:"Meaning of the columns, by position as in follower,user,-,time or by name as in follower=who,user=whom." placeholder:"ROLE"`
	Delimiter string        `help:"Delimiter: comma, tab, semicolon, space, or one character; by default detected." placeholder:"NAME"`
	Header    *bool         `help:"The first line names the columns; with --no-header, it is a row. By default detected." negatable:""`
	Quotes    *bool         `help:"Double quotes can enclose fields; with --no-quotes, they are ordinary characters. By default detected." negatable:""`
	Null      []string      `help:"Text that stands for a missing value, such as NULL; empty for none. By default detected." placeholder:"TEXT" sep:"none"`
	TimeUnit  string        `help:"Unit of times that are numbers: s, ms or us; by default detected." placeholder:"UNIT"`
	First     bool          `help:"Import only the first row of each follower and user (or board), owner and pin, or user and item."`
	Source    string        `help:"Name of the import in the log; by default the name and a hash of the file." placeholder:"NAME"`
	State     string        `help:"File for the progress of the import, to continue from; by default FILE.skein-import.json." type:"path" placeholder:"PATH"`
	Rejects   string        `help:"File for rows that cannot be imported; by default FILE.rejects.tsv." type:"path" placeholder:"PATH"`
	Restart   bool          `help:"Start from the beginning, and not where an earlier import stopped."`
	DryRun    bool          `help:"Read everything and print the first events and rejects, but publish and write nothing."`
	RetryFor  time.Duration `help:"How long to retry a call while the service does not answer." default:"5m"`

	Compare       bool `help:"After the import, compare every list and count of the users or items in the file with the service."`
	CompareChecks int  `help:"Number of random pairs that --compare also checks, for follows and boards." default:"100000"`

	Constant map[string]string `help:"A column that has the same value in all rows, such as follower=ann." placeholder:"ROLE=VALUE" mapsep:"none"`

	JSON bool `help:"Print the report as JSON."`
}

// options returns the options of an import that follow from the flags. runImport adds those that
// need the file or the service.
func (c *importFlags) options(kind importer.Kind) (importer.Options, error) {
	o := importer.Options{
		Kind:           kind,
		First:          c.First,
		Source:         c.Source,
		MaxRejects:     c.MaxRejects,
		Restart:        c.Restart,
		DryRun:         c.DryRun,
		PublishOptions: importer.PublishOptions{Patience: c.RetryFor, CallTimeout: c.Timeout, MaxLag: c.MaxLag},
		Format: importer.Format{
			Columns:   c.Columns,
			Constants: c.Constant,
			Header:    importer.HeaderAuto,
			Quotes:    c.Quotes,
			Null:      c.Null,
		},
	}

	if c.Header != nil {
		o.Format.Header = importer.HeaderNo
		if *c.Header {
			o.Format.Header = importer.HeaderYes
		}
	}

	var err error
	if c.Delimiter != "" {
		o.Format.Delimiter, err = importer.ParseDelimiter(c.Delimiter)
		if err != nil {
			return o, command.Usagef("--delimiter: %w", err)
		}
	}
	if c.TimeUnit != "" {
		o.Format.TimeUnit, err = importer.ParseTimeUnit(c.TimeUnit)
		if err != nil {
			return o, command.Usagef("--time-unit: %w", err)
		}
	}
	return o, nil
}

// runImport imports a file with records of a kind. With --compare it then compares the service with
// the file.
func (c *importFlags) runImport(ctx context.Context, std *command.Streams, kind importer.Kind) error {
	if c.Compare && !kind.IsComparable() {
		return command.Usagef("--compare: the service does not list %s", kind)
	}
	o, err := c.options(kind)
	if err != nil {
		return err
	}

	// The state of an import is valid for one log only. A dry run has no state, and must not need a
	// service.
	api := c.Client()
	if !c.DryRun {
		status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		o.LogID = status.GetLog().GetLogId()
	}
	o.Publish, o.Lag = c.serviceCalls(api)

	input, err := openInput(ctx, c.File, std.In)
	if err != nil {
		return err
	}
	defer input.remove()
	o.Path = input.path
	if input.isCopy {
		// The path of a temporary file means nothing to the user, and is another one in every run.
		o.Name = input.name
	}
	o.State = cmp.Or(c.State, input.outputPrefix+".skein-import.json")
	o.Rejects = cmp.Or(c.Rejects, input.outputPrefix+".rejects.tsv")

	bar := command.NewProgress(std.Err, "import "+string(kind))
	o.Notice = func(text string) { bar.Note(events.EscapeControls(text)) }
	o.Observe = showImportProgress(bar)
	startTime := time.Now()
	report, err := importer.Run(ctx, o)
	bar.End()
	if errors.Is(err, importer.ErrRejected) {
		// Nothing was published, but the report says why rows were rejected.
		return errors.Join(c.printReport(std, report, time.Since(startTime)), err)
	}
	if err != nil {
		if ctx.Err() != nil && report != nil {
			std.Sayf("the same command continues from row %d", report.Record)
		}
		return err
	}
	err = c.printReport(std, report, time.Since(startTime))
	if err != nil {
		return err
	}

	// An ignored event counts as accepted here, because the log may have it from an earlier run of
	// the same import. If another import uses the source, the log ignores events that it does not
	// have.
	rejectsErr := c.MaxRejects.Check(report.Rejected, report.Records, report.Events+report.Ignored > 0)
	if rejectsErr == nil && report.Ignored > 0 && !report.OwnSource {
		rejectsErr = fmt.Errorf("the log ignored %d events, because another import has used the source %q: import with another --source",
			report.Ignored, report.Source)
	}
	if !c.Compare || c.DryRun {
		return rejectsErr
	}
	return joinRejects(rejectsErr, c.compare(ctx, std, o, api, report))
}

// joinRejects returns the error of an import that was compared with the service. rejectsErr says
// that too many records were rejected. That explains the differences that compare has printed, so
// rejectsErr takes the place of [command.ErrSilent]. Any other error of the comparison is more
// important.
func joinRejects(rejectsErr, compareErr error) error {
	if rejectsErr != nil && (compareErr == nil || errors.Is(compareErr, command.ErrSilent)) {
		return rejectsErr
	}
	return compareErr
}

// FileReport is what an import from a file prints with --json.
type FileReport struct {
	Rows uint64 `json:"rows"`
	importer.Totals
	Reasons importer.ReasonCounts `json:"reasons,omitempty"`
	Sent    uint64                `json:"sent"`
	Seconds float64               `json:"seconds"`
	// Waited is how many seconds the import waited for the slowest projection (--max-lag).
	Waited    float64   `json:"waited_seconds"`
	Source    string    `json:"source"`
	StartedAt time.Time `json:"started_at"`
	// Rejects is the path of the file with the rejected rows.
	Rejects string `json:"rejects,omitempty"`
	// Position is the position of the log after the import.
	Position string `json:"position"`
}

// printReport prints the report of an import that took some time. A dry run has sample events in
// its report, which are printed first.
func (c *importFlags) printReport(std *command.Streams, r *importer.Report, took time.Duration) error {
	for _, ev := range r.Sample {
		if err := command.PrintJSON(std.Out, ev); err != nil {
			return err
		}
	}
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(FileReport{
			Rows:      r.Records,
			Totals:    r.Totals,
			Reasons:   r.Reasons,
			Sent:      r.Sent,
			Seconds:   took.Seconds(),
			Waited:    r.Waited.Seconds(),
			Source:    r.Source,
			StartedAt: r.StartedAt,
			Rejects:   r.Rejects,
			Position:  r.Position,
		})
	}

	verb := "imported"
	if r.Unpublished {
		verb = "would be imported"
	}
	std.Sayf("%d rows: %d events %s as %s, %d rows rejected%s, %d skipped as repeats, %d with a time in the future",
		r.Records, r.Events, verb, r.Source, r.Rejected, percentText(r.Rejected, r.Records), r.Skipped, r.Clamped)
	if r.Ignored > 0 {
		std.Sayf("%d more events changed nothing: the log had them, or later ones of the same source", r.Ignored)
	}

	printReasons(std, r.Reasons)
	for _, rej := range r.SampleRejects {
		std.Sayf("row %d: %s: %s", rej.Record, rej.Reason, events.EscapeControls(rej.Line))
	}
	if r.Rejects != "" {
		std.Sayf("rejected rows: %s", r.Rejects)
	}

	if !r.Unpublished {
		std.Sayf("%d events sent in %v: %.0f per second", r.Sent, took.Round(time.Millisecond), float64(r.Sent)/took.Seconds())
	}
	if r.Waited > 0 {
		std.Sayf("for %v of that time the import waited for the slowest projection (--max-lag %v)", r.Waited.Round(time.Millisecond), c.MaxLag)
	}
	printPosition(std, r.Position)
	return nil
}

// percentText returns the percentage of a part for people, as in " (0.57%)". It is empty if the
// part is 0.
func percentText(part, all uint64) string {
	if part == 0 || all == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.3g%%)", 100*float64(part)/float64(all))
}

// compare compares the file with the answers of the service, and prints the differences. compare
// returns [command.ErrSilent] if there are any.
func (c *importFlags) compare(
	ctx context.Context, std *command.Streams, o importer.Options, api *command.Client, imported *importer.Report,
) error {
	bar := command.NewProgress(std.Err, "compare")
	startTime := time.Now()
	found, err := importer.Compare(ctx, importer.CompareOptions{
		Kind:       o.Kind,
		Path:       o.Path,
		Format:     o.Format,
		First:      o.First,
		MaxRejects: o.MaxRejects,
		StartedAt:  imported.StartedAt,
		// The answers must contain the whole import.
		AtLeast:    imported.Position,
		Graph:      api.Graph(),
		Feed:       api.Feed(),
		Seen:       api.Seen(),
		Counters:   api.Counters(),
		Pairs:      c.CompareChecks,
		Seed:       rand.Uint64(),
		Patience:   c.RetryFor,
		Observe:    showCompareProgress(bar),
		Difference: printDifference(std, bar),
	})
	bar.End()
	if err != nil {
		return err
	}

	std.Sayf("%s", comparisonText(found, time.Since(startTime)))
	if found.Differences() > 0 {
		return command.ErrSilent
	}
	return nil
}

// printDifference returns a function that prints a difference on a line of its own. The function
// clears the progress bar first.
func printDifference(std *command.Streams, bar *command.Progress) func(text string) {
	return func(text string) {
		bar.Clear()
		fmt.Fprintln(std.Out, "difference: "+text)
	}
}

// showCompareProgress returns a function that shows how much of a comparison is done.
func showCompareProgress(bar *command.Progress) func(done, total int) {
	return func(done, total int) {
		bar.ShowWithEstimate(int64(done), int64(total), fmt.Sprintf("%d of %d lists, counts and checks", done, total))
	}
}

// comparisonText describes the result of a comparison in one sentence.
func comparisonText(found *importer.Comparison, took time.Duration) string {
	return fmt.Sprintf("compared %d lists with %d entries, %d counts of plays and reactions, %d checks in %v: %d differences "+
		"(%d missing, %d extra, %d other times, %d other texts, %d other counts, %d out of order)",
		found.Lists, found.Entries, found.Counts, found.Pairs, took.Round(time.Millisecond), found.Differences(),
		found.Missing, found.Extra, found.OtherTimes, found.OtherTexts, found.OtherCounts, found.Unordered)
}

// showImportProgress returns a function that shows the progress of an import, from a file or from
// Redis.
func showImportProgress(bar *command.Progress) func(importer.Progress) {
	startTime := time.Now()
	// The first progress of publishing has the number of events that earlier runs of the same
	// import have sent. They do not count for the rate.
	earlierEvents := uint64(0)
	knowsEarlierEvents := false

	return func(at importer.Progress) {
		isRetrying := bar.RecordAttempt(at.Retrying)
		if isRetrying {
			return // Retrying has printed the error of the call
		}
		show := func(format string, args ...any) {
			bar.ShowWithEstimate(int64(at.Done), int64(at.Total), fmt.Sprintf(format, args...))
		}

		switch {
		case at.Phase == replay.Checking:
			show("checking the file, nothing is published yet")
		case at.Phase == replay.Reading:
			show("%d %s, %d elements read", at.Done, at.Unit, at.Elements)
		case at.Unit == "bytes":
			// A file is published. Done and Total are bytes, because the number of rows is not
			// known before the end.
			if !knowsEarlierEvents {
				knowsEarlierEvents = true
				earlierEvents = at.Events
			}
			rate := float64(at.Events-earlierEvents) / max(time.Since(startTime).Seconds(), 0.001)
			rejected := ""
			if at.Rejected > 0 {
				rejected = fmt.Sprintf(", %d rejected", at.Rejected)
			}
			show("row %d, %.0f events/s%s%s", at.Record, rate, rejected, lagText(at.Slowed))
		default:
			show("%d of %d %s published%s", at.Done, at.Total, at.Unit, lagText(at.Slowed))
		}
	}
}

// lagText returns ", waiting for" and the projection for which an import waits, or an empty string
// if the import does not wait.
func lagText(lag importer.Lag) string {
	if lag.Projection == "" {
		return ""
	}
	return fmt.Sprintf(", waiting for %s, %.1fs behind", lag.Projection, lag.Behind.Seconds())
}
