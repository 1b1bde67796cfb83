package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/cmd/skein/internal/snapshots"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/export"
	"github.com/skein-feed/skein/replay/snapshot"
)

// exportCmd exports rows or events, for analysis or for a user who requests their data.
type exportCmd struct {
	Rows   exportRowsCmd   `cmd:"" help:"Write the rows of a projection: of a snapshot, or of a service that is not running."`
	Events exportEventsCmd `cmd:"" default:"withargs" help:"Write the events of the log: of a running service, or of a data directory."`
}

// exportFlags say how an export is written.
type exportFlags struct {
	Format string `help:"How it is written: ${enum}." enum:"ndjson,parquet" default:"ndjson"`
	Out    string `help:"File, which appears when it is whole; - is standard output." default:"-" placeholder:"FILE"`
}

// writeAndReport runs an export, shows its progress, and reports how much was written.
func (f *exportFlags) writeAndReport(
	std *command.Streams, what string, at *replay.Progress, do func(io.Writer, export.Format) (export.Counts, error),
) (err error) {
	shown := showExportProgress(std.Err, what, at)
	defer shown()
	var n export.Counts
	if f.Out == "-" {
		out := bufio.NewWriterSize(std.Out, 1<<16)
		if n, err = do(out, export.Format(f.Format)); err == nil {
			err = out.Flush()
		}
	} else {
		n, err = f.writeFile(do)
	}
	shown()
	if err != nil {
		return err
	}
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(n.Kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, n.Kinds[k]))
	}
	std.Sayf("%s: %d", what, n.Rows)
	if len(kinds) > 0 {
		std.Sayf("%s", strings.Join(kinds, ", "))
	}
	return nil
}

func (f *exportFlags) writeFile(do func(io.Writer, export.Format) (export.Counts, error)) (n export.Counts, err error) {
	out, err := atomicfile.Create(f.Out)
	if err != nil {
		return n, fmt.Errorf("--out: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if n, err = do(out, export.Format(f.Format)); err != nil {
		return n, err
	}
	if err := out.Commit(); err != nil {
		return n, fmt.Errorf("--out: %w", err)
	}
	return n, nil
}

// showExportProgress shows the progress of an export until stop is called. stop may be called again.
func showExportProgress(w io.Writer, what string, at *replay.Progress) (stop func()) {
	return command.ShowEvery(w, what, func(p *command.Progress) {
		now := at.Now()
		if now.Total == 0 {
			return
		}
		done, total, unit := now.Done, now.Total, now.Unit
		switch unit {
		case export.Bytes:
			p.Show(int64(done), int64(total), fmt.Sprintf("%s of about %s", events.FormatSize(done), events.FormatSize(total)))
		case export.Envelopes:
			p.Draw(int64(done), int64(total), fmt.Sprintf("%d of %d %s", done, total, unit))
		default:
			p.Show(int64(done), int64(total), fmt.Sprintf("%d of %d %s", done, total, unit))
		}
	})
}

type exportRowsCmd struct {
	exportFlags         `embed:""`
	command.ClientFlags `embed:""`

	Projection string   `arg:"" help:"Whose: graph, inbox, seen or counters."`
	Target     string   `help:"Where snapshots are: a directory, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION." placeholder:"TARGET"`
	Snapshot   string   `help:"Name of the snapshot; without it the latest." placeholder:"NAME"`
	Take       bool     `help:"Have a running service take the snapshot first, at its own target."`
	Scratch    string   `help:"Where a snapshot is restored meanwhile; by default as temporary files." type:"path" placeholder:"DIR"`
	Data       string   `help:"Data directory of a service that is not running." type:"path" placeholder:"DIR"`
	Tag        []string `help:"Only rows of this kind, as inspect names it; more than once for several." placeholder:"NAME" sep:"none"`
	Partition  int      `help:"Only this one of the 256 partitions; -1 means all rows." default:"-1" placeholder:"N"`
}

// Help is shown below the flags.
func (*exportRowsCmd) Help() string {
	return `All rows are of one position, which each of them names. A service that runs is not read from: export a snapshot of it,
or let --take have it write one.`
}

// Run writes rows.
func (c *exportRowsCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	list := all.All(all.Settings{})
	i := slices.IndexFunc(list, func(p projections.Projection) bool { return p.Name() == c.Projection })
	switch {
	case i < 0:
		return command.Usagef("there is no projection %q", c.Projection)
	case (c.Target == "") == (c.Data == ""):
		return command.Usagef("either --target, where the snapshots are, or --data, the directory of a service that is not running")
	case c.Target == "" && (c.Snapshot != "" || c.Take):
		return command.Usagef("--snapshot and --take go with --target")
	case c.Take && c.Snapshot != "":
		return command.Usagef("either --take or --snapshot: the one that is taken has a name of its own")
	}
	if c.Data != "" {
		store, err := store.Open(store.Options{
			Dir: filepath.Join(c.Data, service.StoresDir), Projection: list[i], Partitioned: true, ReadOnly: true,
		})
		if err != nil {
			return fmt.Errorf("--data: %w (the service must not be running; --target exports a snapshot)", err)
		}
		return c.exportStore(ctx, std, list[i], store)
	}
	if c.Take {
		c.Snapshot = "export-" + strings.ToLower(time.Now().UTC().Format("20060102-150405.000000"))
		defer func() { err = errors.Join(err, c.removeSnapshot(context.WithoutCancel(ctx))) }()
		if err := c.takeSnapshot(ctx, std); err != nil {
			return err
		}
	}
	return c.exportSnapshot(ctx, std, list[i])
}

// takeSnapshot makes the service take a snapshot.
func (c *exportRowsCmd) takeSnapshot(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().TakeSnapshot, &skeinv1.TakeSnapshotRequest{
		Projections: []string{c.Projection}, Name: c.Snapshot,
	})
	if err != nil {
		return fmt.Errorf("--take: %w", err)
	}
	// The report goes to standard error, because standard output may be the export.
	return (&command.WaitFlags{}).Follow(ctx, &c.ClientFlags, &command.Streams{In: std.In, Out: std.Err, Err: std.Err}, res.GetOperation())
}

// removeSnapshot removes the snapshot that takeSnapshot has made.
func (c *exportRowsCmd) removeSnapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	b, err := (&snapshots.TargetFlag{Target: c.Target}).OpenTarget(ctx)
	if err != nil {
		return err
	}
	if _, err = snapshot.Remove(ctx, b, c.Snapshot); errors.Is(err, snapshot.ErrNone) {
		return nil
	}
	return err
}

// exportSnapshot restores a snapshot into a temporary directory, exports it, and removes the directory.
func (c *exportRowsCmd) exportSnapshot(ctx context.Context, std *command.Streams, p projections.Projection) (err error) {
	b, err := (&snapshots.TargetFlag{Target: c.Target}).OpenTarget(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.Scratch, "skein-export-*")
	if err != nil {
		return fmt.Errorf("--scratch: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var at replay.Progress
	shown := command.ShowProgress(std.Err, "restore of "+p.Name(), &at)
	defer shown()
	done, err := snapshot.Restore(ctx, snapshot.RestoreOptions{
		Bucket: b, Snapshot: c.Snapshot, Projection: p, Dir: dir, Progress: &at, AnySettings: true,
	})
	shown()
	if errors.Is(err, replay.ErrDisk) {
		return fmt.Errorf("--scratch: %w", err)
	}
	if err != nil {
		return err
	}
	store, err := store.Open(store.Options{Dir: dir, Projection: p, Partitioned: true, ReadOnly: true})
	if err != nil {
		return err
	}
	std.Sayf("%s of snapshot %s, at sequence %d", p.Name(), done.Manifest.Snapshot, done.Manifest.Cursor.Seq)
	return c.exportStore(ctx, std, p, store)
}

// exportStore writes the rows of a store, and closes it.
func (c *exportRowsCmd) exportStore(ctx context.Context, std *command.Streams, p projections.Projection, store *store.Store) (err error) {
	defer func() { err = errors.Join(err, store.Close()) }()
	view, err := store.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	var at replay.Progress
	err = c.writeAndReport(std, "rows of "+p.Name(), &at, func(w io.Writer, f export.Format) (export.Counts, error) {
		return export.Rows(ctx, w, view, export.RowsOptions{
			Format: f, Projection: p, Fingerprint: store.Fingerprint(), Kinds: c.Tag, Partition: c.Partition, Progress: &at,
		})
	})
	switch {
	case errors.Is(err, export.ErrKind):
		return command.Usagef("--tag: %w", err)
	case errors.Is(err, export.ErrPartition):
		return command.Usagef("--partition: %w", err)
	case err != nil:
		return err
	}
	std.Sayf("at position %s", view.Cursor().Position())
	return nil
}

type exportEventsCmd struct {
	exportFlags         `embed:""`
	command.ClientFlags `embed:""`
	flags.ArchiveFlags  `embed:""`

	User  string   `help:"Only events by this user or towards the user: what a person may ask for." placeholder:"USER"`
	Kind  []string `help:"Only events of this kind, as user_followed; more than once for several." placeholder:"KIND" sep:"none"`
	After string   `help:"Only what comes after this position." default:"earliest" placeholder:"POSITION"`
	Until string   `help:"Only what comes up to this position; without it the end of the log at the beginning." placeholder:"POSITION"`
	Data  string   `help:"Data directory of a service that is not running, instead of one that is." type:"path" placeholder:"DIR"`
}

// Help is shown below the flags.
func (*exportEventsCmd) Help() string {
	return `NDJSON is what skein watch --json prints, without what only says how far it is. With --user the export is what the log
holds of a person: everything by the user, and everything towards the user by others.`
}

// Run writes events.
func (c *exportEventsCmd) Run(ctx context.Context, std *command.Streams) error {
	var kinds events.KindSet
	for _, name := range c.Kind {
		k, ok := events.ParseKind(name)
		if !ok {
			return command.Usagef("--kind: there is no kind %q: a kind has the name of its field of Event, as in user_followed", name)
		}
		kinds |= events.Kinds(k)
	}
	if c.User != "" {
		if err := events.ValidateID(c.User); err != nil {
			return command.Usagef("--user %w", err)
		}
	}
	for _, at := range []struct{ flag, text string }{{"--after", c.After}, {"--until", c.Until}} {
		if at.text == "" || at.flag == "--after" && strings.EqualFold(at.text, export.Earliest) {
			continue
		}
		if _, err := events.ParseEventPosition(at.text); err != nil {
			return command.Usagef("%s: %q is no position: hand back what a call has answered, exactly as it came", at.flag, at.text)
		}
	}
	var at replay.Progress
	r := export.Range{After: c.After, Until: c.Until, Kinds: kinds, Progress: &at}
	do := func(from export.ScanFunc) error {
		return c.writeAndReport(std, "events", &at, func(w io.Writer, f export.Format) (export.Counts, error) {
			return export.Events(ctx, w, from, export.EventsOptions{Format: f, Kinds: kinds, User: c.User})
		})
	}
	if c.Data == "" {
		api := c.Client()
		// A caller without the permission gets no estimate of the time left.
		if status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1}); err == nil {
			r.LogBytes = completeLogBytes(status.GetLog().GetFirstSequence(), status.GetLog().GetBytes())
			r.LogEvents = status.GetArchive().GetEvents() // without those of the last minute, which are not archived yet
		}
		return do(export.FromService(api.Events(), r))
	}
	return c.withOfflineLog(ctx, func(log *eventlog.Log, hub *eventlog.Hub, archived uint64) error {
		if head, err := log.Head(ctx); err == nil {
			r.LogBytes = completeLogBytes(head.First, uint64(max(0, head.Bytes)))
		}
		r.LogEvents = archived
		return do(export.FromLog(log, hub, r))
	})
}

// completeLogBytes returns the size of the stream if it has the whole log, else 0.
func completeLogBytes(first, bytes uint64) uint64 {
	if first > 1 {
		return 0
	}
	return bytes
}
