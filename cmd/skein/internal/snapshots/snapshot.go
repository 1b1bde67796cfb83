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

// Cmd has the commands that take, list, prune and check snapshots.
type Cmd struct {
	Take  snapshotTakeCmd  `cmd:"" default:"withargs" help:"Have a running service write a copy of its stores to its target now."`
	List  snapshotListCmd  `cmd:"" help:"List the snapshots at a target, the latest last."`
	Check snapshotCheckCmd `cmd:"" help:"Read everything at a target and compare it with its checksums."`
	Prune snapshotPruneCmd `cmd:"" help:"Remove snapshots at a target, and what an interrupted one has left there."`
}

// TargetFlag names the target of snapshots.
type TargetFlag struct {
	Target string `help:"A directory, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION." required:"" placeholder:"TARGET"`
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

	Projections []string `arg:"" optional:"" name:"projection" help:"Which; without any: all."`
	Name        string   `help:"Name of the snapshot; without it one of the time. A named one is never pruned by number."`
}

// Help is shown below the flags.
func (*snapshotTakeCmd) Help() string {
	return `The service continues meanwhile. Only tables that are not at its target yet are written.`
}

// Run orders a snapshot and waits for its end.
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

	Target string `help:"A directory, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION; else that of the service." placeholder:"TARGET"`

	JSON bool `help:"Print one JSON object for each snapshot of a projection."`
}

// listedSnapshot is a line of JSON.
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

// Run lists the snapshots. It returns an error if one cannot be read, for the sake of scripts.
func (c *snapshotListCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Target == "" {
		res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
		if err != nil {
			return fmt.Errorf("ask the service where its snapshots are, as --target is not given: %w", err)
		}
		if c.Target = res.GetSnapshots().GetLocation(); c.Target == "" {
			return errors.New("the service has no place for snapshots (serve --snapshots); --target names another")
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
	t := command.NewTable(std.Out, "SNAPSHOT", "PROJECTION", "TIME", "SEQUENCE", "SIZE", "SCHEDULED")
	damaged := false
	for _, l := range list {
		line := listedSnapshot{Snapshot: l.Snapshot, Projection: l.Projection, Time: l.Time.UTC().Format(time.RFC3339)}
		if m := l.Manifest; m != nil {
			line.Scheduled, line.Seq, line.Epoch, line.Log = m.Scheduled, m.Cursor.Seq, m.Cursor.Epoch, m.Cursor.Log
			line.Bytes, line.Files, line.Fingerprint = m.Bytes(), len(m.Files), m.Fingerprint.String()
			t.Row(l.Snapshot, l.Projection, line.Time, fmt.Sprint(line.Seq), events.FormatSize(uint64(line.Bytes)), command.YesNo(m.Scheduled))
		} else {
			damaged = true
			line.Error = l.Err.Error()
			std.Sayf("%s", line.Error)
			t.Row(l.Snapshot, l.Projection, line.Time, "?", "?", "?")
		}
		if !c.JSON {
			continue
		}
		if err := command.PrintPlainJSON(std.Out, line); err != nil {
			return err
		}
	}
	if !c.JSON {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if damaged {
		return command.ErrSilent
	}
	return nil
}

type snapshotPruneCmd struct {
	TargetFlag `embed:""`

	Names     []string `arg:"" optional:"" name:"snapshot" help:"Remove these; without any: scheduled ones beyond --keep-count."`
	KeepCount int      `help:"How many scheduled snapshots of each projection are kept. 0 keeps all." default:"0"`
}

// Run removes snapshots.
func (c *snapshotPruneCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.KeepCount < 0 {
		return command.Usagef("--keep-count is %d, must be at least 0", c.KeepCount)
	}
	if len(c.Names) > 0 && c.KeepCount > 0 {
		return command.Usagef("either snapshots by name, or --keep-count")
	}
	b, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}
	var done snapshot.PruneReport
	if len(c.Names) > 0 {
		done, err = snapshot.Remove(ctx, b, c.Names...)
	} else {
		done, err = snapshot.Prune(ctx, b, c.KeepCount)
	}
	if len(done.Snapshots) > 0 {
		fmt.Fprintln(std.Out, strings.Join(done.Snapshots, "\n"))
	}
	if err != nil {
		return err
	}
	std.Sayf("%s", done)
	if len(done.Unreadable) > 0 {
		return command.ErrSilent
	}
	return nil
}

type snapshotCheckCmd struct {
	TargetFlag `embed:""`

	RemoveDamaged bool    `help:"Remove damaged files, so that the next snapshot writes them anew if the stores still have them."`
	Share         float64 `help:"Part of one core's time that the work may take, up to 1." default:"1"`
}

// Run reads all files of the target. It returns an error if a snapshot cannot be restored.
func (c *snapshotCheckCmd) Run(ctx context.Context, std *command.Streams) error {
	if c.Share <= 0 || c.Share > 1 {
		return command.Usagef("--share is above 0 and at most 1")
	}
	b, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}
	var at replay.Progress
	shown := command.ShowProgress(std.Err, "check", &at)
	defer shown()
	done, err := snapshot.Check(ctx, b, c.RemoveDamaged, replay.Pace{Share: c.Share}, &at)
	shown()
	for _, name := range done.Damaged {
		fmt.Fprintln(std.Out, "damaged:", name)
	}
	for _, name := range done.Broken {
		fmt.Fprintln(std.Out, "cannot be restored:", name)
	}
	if err != nil {
		return err
	}
	std.Sayf("%s", done)
	if len(done.Damaged)+len(done.Broken) > 0 {
		return command.ErrSilent
	}
	return nil
}
