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

// Cmd has the commands that import: one for each kind of file, and one for Redis.
type Cmd struct {
	Follows followsCmd `cmd:"" help:"Import follows: a follower and a user a row, perhaps with a time."`
	Boards  boardsCmd  `cmd:"" help:"Import boards: an owner and a board a row, perhaps with title, time, and a follower of it."`
	Pins    pinsCmd    `cmd:"" help:"Import pins: an owner and a pin a row, perhaps with board, item, re-pinned pin, attributes, time."`
	Plays   playsCmd   `cmd:"" help:"Import plays: a user and an item a row, perhaps with a time."`

	Reactions reactionsCmd `cmd:"" help:"Import likes and other reactions: a user and an item a row, perhaps with kind, pin and time."`

	Unfollows      unfollowsCmd      `cmd:"" help:"Import ends of follows: a follower and a user a row, perhaps with a time."`
	BoardUnfollows boardUnfollowsCmd `cmd:"" help:"Import ends of board follows: a follower, an owner and a board a row, perhaps with a time."`
	Blocks         blocksCmd         `cmd:"" help:"Import blocks: a user and a blocked user a row, perhaps with a time."`
	Mutes          mutesCmd          `cmd:"" help:"Import mutes: a user and a muted user a row, perhaps with a time."`
	FollowSettings followSettingsCmd `cmd:"" help:"Import settings of follows: a follower, a user and the settings that are on a row, perhaps with a time."`
	HiddenItems    hiddenItemsCmd    `cmd:"" help:"Import hidden items: a user and an item that it hides a row, perhaps with a time."`

	Redis redisCmd `cmd:"" help:"Import from a live Redis, by a mapping of what its keys mean."`
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

const importHelp = `Columns are found by their names, or given by --columns. Files may be
packed with gzip or zstd. The whole file is read before anything is published, and nothing is published if it can be read in two
ways or has more bad rows than --max-rejects allows. Everything is history: it never undoes what happened live. An import can
be interrupted and run again at any time: it continues where it was, and the log ignores what it has. Bad rows are written
beside the file with the reason.`

// importLimits are the limits of all imports.
type importLimits struct {
	MaxLag     time.Duration       `help:"Wait while the slowest projection is further behind the log; 0 disables it." default:"5s"`
	MaxRejects importer.MaxRejects `help:"Rejects allowed, a number or 0.5%; beyond it the exit code is 1." default:"0" placeholder:"N"`
}

// serviceCalls has the calls that an import makes.
func (l *importLimits) serviceCalls(api *command.Client) (importer.PublishFunc, importer.LagFunc) {
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
			switch p.GetState() {
			case skeinv1.ProjectionState_PROJECTION_STATE_FAILED, skeinv1.ProjectionState_PROJECTION_STATE_STOPPED,
				skeinv1.ProjectionState_PROJECTION_STATE_OUTDATED: // such a projection does not catch up by waiting
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

// printPosition prints a position, and its use.
func printPosition(std *command.Streams, position string) {
	if position == "" {
		return
	}
	std.Sayf("the position that contains the import, for the --at-least of queries:")
	fmt.Fprintln(std.Out, position)
}

// printReasons prints the reasons for rejects, the most frequent one first.
func printReasons(std *command.Streams, reasons importer.Reasons) {
	slices.SortStableFunc(reasons, func(a, b importer.Reason) int { return cmp.Compare(b.Count, a.Count) })
	for i := range reasons {
		std.Sayf("%s", &reasons[i])
	}
}

type importFlags struct {
	command.ClientFlags `embed:""`
	importLimits        `embed:""`

	File      string        `arg:"" help:"The file; - is standard input." type:"existingfile"`
	Columns   []string      `help:"The roles of the columns: follower,user,-,time by position, or follower=who,user=whom." placeholder:"ROLE"`
	Delimiter string        `help:"comma, tab, semicolon, space, or one character; by default found out." placeholder:"NAME"`
	Header    *bool         `help:"The first line names the columns, or is a row (--no-header); by default found out." negatable:""`
	Quotes    *bool         `help:"Double quotes enclose fields, or not (--no-quotes); by default found out." negatable:""`
	Null      []string      `help:"Text of an absent value, such as NULL, or empty for none; by default found out." placeholder:"TEXT" sep:"none"`
	TimeUnit  string        `help:"Unit of times that are numbers: s, ms or us; by default found out." placeholder:"UNIT"`
	First     bool          `help:"Take only the first row of each follower and user (or board), owner and pin, or user and item."`
	Source    string        `help:"Name of the import in the log; by default the file's name and a hash of it." placeholder:"NAME"`
	State     string        `help:"Where the import keeps how far it is; by default FILE.skein-import.json." type:"path" placeholder:"PATH"`
	Rejects   string        `help:"Where rows that cannot be taken are written; by default FILE.rejects.tsv." type:"path" placeholder:"PATH"`
	Restart   bool          `help:"Forget how far an earlier import was."`
	DryRun    bool          `help:"Read everything, show the first events and rejects, and publish and write nothing."`
	RetryFor  time.Duration `help:"How long a call is tried again while the service does not answer." default:"5m"`

	Compare       bool `help:"Afterwards compare every list and count of the users or items in the file with the service."`
	CompareChecks int  `help:"How many random pairs --compare checks besides, for follows and boards." default:"100000"`

	Constant map[string]string `help:"A role with the same value in all rows, such as follower=ann." placeholder:"ROLE=VALUE" mapsep:"none"`

	JSON bool `help:"Print the report as JSON."`
}

func (c *importFlags) options(kind importer.Kind) (importer.Options, error) {
	o := importer.Options{
		Kind: kind, First: c.First, Source: c.Source, MaxRejects: c.MaxRejects,
		Restart: c.Restart, DryRun: c.DryRun, PublishOptions: importer.PublishOptions{Patience: c.RetryFor, CallTimeout: c.Timeout, MaxLag: c.MaxLag},
		Format: importer.Format{
			Columns: c.Columns, Constants: c.Constant, Header: importer.HeaderAuto, Quotes: c.Quotes, Null: c.Null,
		},
	}
	if c.Header != nil {
		o.Format.Header = importer.HeaderNo
		if *c.Header {
			o.Format.Header = importer.HeaderYes
		}
	}
	if c.Delimiter != "" {
		var err error
		if o.Format.Delimiter, err = importer.ParseDelimiter(c.Delimiter); err != nil {
			return o, command.Usagef("--delimiter: %w", err)
		}
	}
	if c.TimeUnit != "" {
		var err error
		if o.Format.TimeUnit, err = importer.ParseTimeUnit(c.TimeUnit); err != nil {
			return o, command.Usagef("--time-unit: %w", err)
		}
	}
	return o, nil
}

func (c *importFlags) runImport(ctx context.Context, std *command.Streams, kind importer.Kind) error {
	if c.Compare && !kind.IsComparable() {
		return command.Usagef("--compare: the service does not list %s", kind)
	}
	o, err := c.options(kind)
	if err != nil {
		return err
	}
	api := c.Client()
	if !c.DryRun {
		status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		o.LogID = status.GetLog().GetLogId()
	}
	o.Publish, o.Lag = c.serviceCalls(api)
	from, err := openInput(ctx, c.File, std.In)
	if err != nil {
		return err
	}
	defer from.remove()
	o.Path = from.path
	if from.isCopy {
		o.Name = from.name
	}
	o.State, o.Rejects = cmp.Or(c.State, from.outputPrefix+".skein-import.json"), cmp.Or(c.Rejects, from.outputPrefix+".rejects.tsv")

	bar := command.NewProgress(std.Err, "import "+string(kind))
	o.Notice = func(text string) { bar.Note(events.EscapeControls(text)) }
	o.Observe = showImportProgress(bar)
	began := time.Now()
	report, err := importer.Run(ctx, o)
	bar.End()
	if errors.Is(err, importer.ErrRejected) {
		return errors.Join(c.printReport(std, report, time.Since(began)), err)
	}
	if err != nil {
		if ctx.Err() != nil && report != nil {
			std.Sayf("the same command continues from row %d", report.Record)
		}
		return err
	}
	if err := c.printReport(std, report, time.Since(began)); err != nil {
		return err
	}
	rejects := c.MaxRejects.Check(report.Rejected, report.Events+report.Ignored, report.Records)
	if rejects == nil && report.Ignored > 0 && !report.OwnSource {
		rejects = fmt.Errorf("the log ignored %d events: another import has used the source %q, so import with another --source",
			report.Ignored, report.Source)
	}
	if !c.Compare || c.DryRun {
		return rejects
	}
	err = c.compare(ctx, std, o, api, report)
	if rejects != nil && (err == nil || errors.Is(err, command.ErrSilent)) {
		return rejects
	}
	return err
}

// FileReport is the report for programs.
type FileReport struct {
	Rows uint64 `json:"rows"`
	importer.Totals
	Reasons   importer.Reasons `json:"reasons,omitempty"`
	Sent      uint64           `json:"sent"`
	Seconds   float64          `json:"seconds"`
	Waited    float64          `json:"waited_seconds"`
	Source    string           `json:"source"`
	StartedAt time.Time        `json:"started_at"`
	Rejects   string           `json:"rejects,omitempty"`
	Position  string           `json:"position"`
}

func (c *importFlags) printReport(std *command.Streams, r *importer.Report, took time.Duration) error {
	for _, ev := range r.Sample {
		if err := command.PrintJSON(std.Out, ev); err != nil {
			return err
		}
	}
	if c.JSON {
		return json.NewEncoder(std.Out).Encode(FileReport{
			Rows: r.Records, Totals: r.Totals, Reasons: r.Reasons, Sent: r.Sent, Seconds: took.Seconds(), Waited: r.Waited.Seconds(),
			Source: r.Source, StartedAt: r.StartedAt, Rejects: r.Rejects, Position: r.Position,
		})
	}
	verb := "imported"
	if r.Unpublished {
		verb = "would be imported"
	}
	std.Sayf("%d rows: %d events %s as %s, %d rows rejected (%s), %d skipped as repeats, %d with a time in the future",
		r.Records, r.Events, verb, r.Source, r.Rejected, importer.Percent(r.Rejected, r.Records), r.Skipped, r.Clamped)
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
		std.Sayf("%d events sent in %v: %.0f a second", r.Sent, took.Round(time.Millisecond), float64(r.Sent)/took.Seconds())
	}
	if r.Waited > 0 {
		std.Sayf("for %v of that it waited for the slowest projection (--max-lag %v)", r.Waited.Round(time.Millisecond), c.MaxLag)
	}
	printPosition(std, r.Position)
	return nil
}

// compare compares the file with the answers of the service.
func (c *importFlags) compare(
	ctx context.Context, std *command.Streams, o importer.Options, api *command.Client, r *importer.Report,
) error {
	bar := command.NewProgress(std.Err, "compare")
	began := time.Now()
	found, err := importer.Compare(ctx, importer.CompareOptions{
		Kind: o.Kind, Path: o.Path, Format: o.Format, First: o.First, MaxRejects: o.MaxRejects, StartedAt: r.StartedAt, AtLeast: r.Position,
		Graph: api.Graph(), Feed: api.Feed(), Counters: api.Counters(), Pairs: c.CompareChecks, Seed: rand.Uint64(), Patience: c.RetryFor,
		Observe:    showCompareProgress(bar),
		Difference: func(text string) { bar.Clear(); fmt.Fprintln(std.Out, "difference: "+text) },
	})
	bar.End()
	if err != nil {
		return err
	}
	std.Sayf("%s", comparisonText(found, time.Since(began)))
	if found.Differences() > 0 {
		return command.ErrSilent
	}
	return nil
}

// showCompareProgress shows the progress of a comparison.
func showCompareProgress(bar *command.Progress) func(done, total int) {
	return func(done, total int) {
		bar.Show(int64(done), int64(total), fmt.Sprintf("%d of %d lists, counts and checks", done, total))
	}
}

// comparisonText returns the result of a comparison for people.
func comparisonText(found *importer.Comparison, took time.Duration) string {
	return fmt.Sprintf("compared %d lists with %d entries, %d counts of plays and reactions, %d checks in %v: %d differences "+
		"(%d missing, %d extra, %d other times, %d other texts, %d other counts, %d out of order)",
		found.Lists, found.Entries, found.Counts, found.Pairs, took.Round(time.Millisecond), found.Differences(),
		found.Missing, found.Extra, found.OtherTimes, found.OtherTexts, found.OtherCounts, found.Unordered)
}

// showImportProgress shows the progress of an import.
func showImportProgress(bar *command.Progress) func(importer.Progress) {
	began := time.Now()
	// Events that an earlier run has sent do not count for the rate.
	first, begun := uint64(0), false
	return func(at importer.Progress) {
		if bar.Retrying(at.Retrying) {
			return
		}
		show := func(format string, args ...any) {
			bar.Show(int64(at.Done), int64(at.Total), fmt.Sprintf(format, args...))
		}
		switch {
		case at.Phase == replay.Checking:
			show("checking the file, nothing is published yet")
		case at.Phase == replay.Reading:
			show("%d %s, %d elements read", at.Done, at.Unit, at.Elements)
		case at.Unit == "bytes": // the number of rows of a file is unknown
			if !begun {
				begun, first = true, at.Events
			}
			rate := float64(at.Events-first) / max(time.Since(began).Seconds(), 0.001)
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

// lagText returns, for people, for which projection an import waits.
func lagText(by importer.Lag) string {
	if by.Projection == "" {
		return ""
	}
	return fmt.Sprintf(", waiting for %s, %.1fs behind", by.Projection, by.Behind.Seconds())
}
