package snapshots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// Cmd is the command `skein snapshot`.
type Cmd struct {
	Take  snapshotTakeCmd  `cmd:"" default:"withargs" help:"Make a running service take a snapshot of its stores now."`
	List  snapshotListCmd  `cmd:"" help:"List the snapshots at a target, the latest last."`
	Check snapshotCheckCmd `cmd:"" help:"Read all files at a target and compare them with their checksums."`
	Prune snapshotPruneCmd `cmd:"" help:"Remove snapshots from a target, and files that an interrupted snapshot has left there."`
}

// TargetFlag names the target of snapshots, for commands that read or change it without a service.
type TargetFlag struct {
	Target string `help:"Where the snapshots are: a directory, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION." required:"" placeholder:"TARGET"`
}

// OpenTarget opens the bucket of the target.
func (f *TargetFlag) OpenTarget(ctx context.Context) (bucket.Bucket, error) {
	b, err := bucket.Open(ctx, f.Target)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	return b, nil
}

type snapshotTakeCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	Projections []string `arg:"" optional:"" name:"projection" help:"Projections to copy; by default all."`
	Name        string   `help:"Name of the snapshot; by default the time. Snapshots with a name are not removed when newer ones are taken."`
}

// Help is shown below the flags.
func (*snapshotTakeCmd) Help() string {
	return `The service continues to serve meanwhile. It writes only those files that its target does not have yet.`
}

// Run starts a snapshot and waits for its end.
func (c *snapshotTakeCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().TakeSnapshot, &skeinv1.TakeSnapshotRequest{
		Projections: c.Projections, Name: c.Name,
	})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}

type snapshotListCmd struct {
	command.ClientFlags `embed:""`

	Target string `help:"As for snapshot check; by default the target of the service." placeholder:"TARGET"`
	JSON   bool   `help:"Print one JSON object for each snapshot of a projection."`
}

// listedSnapshot is what --json prints for each snapshot of a projection.
type listedSnapshot struct {
	Snapshot    string `json:"snapshot"`
	Projection  string `json:"projection"`
	Time        string `json:"time"`
	Scheduled   bool   `json:"scheduled"`
	Seq         uint64 `json:"seq"`
	Epoch       uint32 `json:"epoch"`
	Log         string `json:"log"`
	Bytes       int64  `json:"bytes"`
	Files       int    `json:"files"`
	Fingerprint string `json:"fingerprint"`
	Error       string `json:"error,omitempty"`
}

// newListedSnapshot returns the output for an entry of a list of snapshots.
func newListedSnapshot(l *snapshot.ListedSnapshot) listedSnapshot {
	out := listedSnapshot{Snapshot: l.Snapshot, Projection: l.Projection, Time: l.Time.UTC().Format(time.RFC3339)}
	m := l.Manifest
	if m == nil {
		out.Error = l.Err.Error()
		return out
	}
	out.Scheduled = m.Scheduled
	out.Seq = m.Cursor.Seq
	out.Epoch = m.Cursor.Epoch
	out.Log = m.Cursor.Log
	out.Bytes = m.Bytes()
	out.Files = len(m.Files)
	out.Fingerprint = m.Fingerprint.String()
	return out
}

// Run lists the snapshots. It returns an error, for scripts, if the description of a snapshot
// cannot be read.
func (c *snapshotListCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Target == "" {
		res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
		if err != nil {
			return fmt.Errorf("--target is not given, so the service must say where its snapshots are: %w", err)
		}
		c.Target = res.GetSnapshots().GetLocation()
		if c.Target == "" {
			return errors.New("the service takes no snapshots (serve --snapshots), so --target must say where to look")
		}
	}
	b, err := (&TargetFlag{Target: c.Target}).OpenTarget(ctx)
	if err != nil {
		return err
	}
	list, err := snapshot.List(ctx, b)
	if err != nil {
		return err
	}

	isDamaged := false
	t := command.NewTable(std.Out, "SNAPSHOT", "PROJECTION", "TIME", "SEQUENCE", "SIZE", "SCHEDULED")
	for i := range list {
		s := newListedSnapshot(&list[i])
		if s.Error != "" {
			isDamaged = true
			std.Sayf("%s", s.Error)
		}
		switch {
		case c.JSON:
			if err := command.PrintPlainJSON(std.Out, s); err != nil {
				return err
			}
		case s.Error != "":
			t.Row(s.Snapshot, s.Projection, s.Time, "?", "?", "?")
		default:
			t.Row(s.Snapshot, s.Projection, s.Time, fmt.Sprint(s.Seq), events.FormatSize(uint64(s.Bytes)), command.YesNo(s.Scheduled))
		}
	}
	if !c.JSON {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if isDamaged {
		return command.ErrSilent
	}
	return nil
}

type snapshotPruneCmd struct {
	TargetFlag `embed:""`

	Names     []string `arg:"" optional:"" name:"snapshot" help:"Snapshots to remove; by default the scheduled ones beyond --keep-count."`
	KeepCount int      `help:"Number of scheduled snapshots of each projection to keep; 0 keeps all." default:"0"`
}

// Run removes snapshots.
func (c *snapshotPruneCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.KeepCount < 0 {
		return command.Usagef("--keep-count must be at least 0, is %d", c.KeepCount)
	}
	if len(c.Names) > 0 && c.KeepCount > 0 {
		return command.Usagef("give either names of snapshots or --keep-count, not both")
	}
	b, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}

	var pruned snapshot.PruneReport
	if len(c.Names) > 0 {
		pruned, err = snapshot.Remove(ctx, b, c.Names...)
	} else {
		pruned, err = snapshot.Prune(ctx, b, c.KeepCount)
	}
	// After an error, too, print what was removed before it.
	if len(pruned.Snapshots) > 0 {
		fmt.Fprintln(std.Out, strings.Join(pruned.Snapshots, "\n"))
	}
	if err != nil {
		return err
	}
	std.Sayf("%s", pruned)
	if len(pruned.Unreadable) > 0 {
		return command.ErrSilent
	}
	return nil
}

type snapshotCheckCmd struct {
	TargetFlag `embed:""`

	RemoveDamaged bool    `help:"Remove damaged files, so that the next snapshot writes those again that the stores still have."`
	Share         float64 `help:"Share of one CPU core that the command may use, above 0 and at most 1." default:"1"`
}

// Run reads all files at the target. It returns an error, for scripts, if a file is damaged or a
// snapshot cannot be restored.
func (c *snapshotCheckCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Share <= 0 || c.Share > 1 {
		return command.Usagef("--share must be above 0 and at most 1, is %v", c.Share)
	}
	b, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}

	var progress replay.Progress
	stopProgress := command.ShowProgress(std.Err, "check", &progress)
	defer stopProgress()
	checked, err := snapshot.Check(ctx, b, c.RemoveDamaged, replay.Pace{Share: c.Share}, &progress)
	stopProgress()
	for _, name := range checked.Damaged {
		fmt.Fprintln(std.Out, "damaged:", name)
	}
	for _, name := range checked.Broken {
		fmt.Fprintln(std.Out, "cannot be restored:", name)
	}
	if err != nil {
		return err
	}
	std.Sayf("%s", checked)
	if len(checked.Damaged)+len(checked.Broken) > 0 {
		return command.ErrSilent
	}
	return nil
}
