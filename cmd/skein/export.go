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

// exportFlags say where and in which format an export is written.
type exportFlags struct {
	Format string `help:"The format: ${enum}." enum:"ndjson,parquet" default:"ndjson"`
	Out    string `help:"The file, which appears when it is complete; - is standard output." default:"-" placeholder:"FILE"`
}

// writeFunc writes an export in a format, and returns how much it has written.
type writeFunc func(io.Writer, export.Format) (export.Counts, error)

// writeAndReport writes an export to where the flags say, shows the progress, and reports how much
// was written. what names the exported data for people.
func (f *exportFlags) writeAndReport(std *command.Streams, what string, progress *replay.Progress, write writeFunc) (err error) {
	stopProgress := showExportProgress(std.Err, what, progress)
	defer stopProgress()

	var counts export.Counts
	if f.Out == "-" {
		out := bufio.NewWriterSize(std.Out, 1<<16)
		counts, err = write(out, export.Format(f.Format))
		if err == nil {
			err = out.Flush()
		}
	} else {
		counts, err = f.writeFile(write)
	}
	if err != nil {
		return err
	}

	stopProgress() // before the report, so that the bar is not drawn over it
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(counts.Kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, counts.Kinds[kind]))
	}
	std.Sayf("%s: %d", what, counts.Rows)
	if len(kinds) > 0 {
		std.Sayf("%s", strings.Join(kinds, ", "))
	}
	return nil
}

// writeFile writes an export to a temporary file, which gets its name when it is complete.
func (f *exportFlags) writeFile(write writeFunc) (counts export.Counts, err error) {
	out, err := atomicfile.Create(f.Out)
	if err != nil {
		return counts, fmt.Errorf("--out: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	counts, err = write(out, export.Format(f.Format))
	if err != nil {
		return counts, err
	}
	if err := out.Commit(); err != nil {
		return counts, fmt.Errorf("--out: %w", err)
	}
	return counts, nil
}

// showExportProgress shows the progress of an export until stop is called. stop may be called
// again.
func showExportProgress(w io.Writer, what string, progress *replay.Progress) (stop func()) {
	return command.ShowEvery(w, what, func(p *command.Progress) {
		now := progress.Now()
		if now.Total == 0 {
			return // the total is not known yet
		}
		done := int64(now.Done)
		total := int64(now.Total)
		switch now.Unit {
		case export.Bytes:
			p.ShowWithEstimate(done, total, fmt.Sprintf("%s of about %s", events.FormatSize(now.Done), events.FormatSize(now.Total)))
		case export.Envelopes:
			// An envelope may have one event or thousands, so the rate of envelopes says little
			// about the time left.
			p.Show(done, total, fmt.Sprintf("%d of %d %s", done, total, now.Unit))
		default:
			p.ShowWithEstimate(done, total, fmt.Sprintf("%d of %d %s", done, total, now.Unit))
		}
	})
}

type exportRowsCmd struct {
	exportFlags         `embed:""`
	command.ClientFlags `embed:""`

	Projection string   `arg:"" help:"The projection: graph, inbox, seen, counters or notifications."`
	Target     string   `help:"Where the snapshots are: a directory, or s3://BUCKET/PREFIX?endpoint=HOST:PORT&region=REGION." placeholder:"TARGET"`
	Snapshot   string   `help:"Name of the snapshot; by default the latest." placeholder:"NAME"`
	Take       bool     `help:"Let a running service take a snapshot first, which is exported and then deleted. --target must be the service's own."`
	Scratch    string   `help:"Directory for the snapshot during the export; by default the one for temporary files." type:"path" placeholder:"DIR"`
	Data       string   `help:"Data directory of a service that is not running." type:"path" placeholder:"DIR"`
	Tag        []string `help:"Only rows of this kind, as inspect names it; repeat for several." placeholder:"NAME" sep:"none"`
	Partition  int      `help:"Only rows of this partition, from 0 to 255; -1 means all rows." default:"-1" placeholder:"N"`
}

// Help is shown below the flags.
func (*exportRowsCmd) Help() string {
	return `All rows are of one position, and each row names the position. The command cannot read the stores of a service that is running:
export one of its snapshots, or use --take.`
}

// Run writes rows.
func (c *exportRowsCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	list := all.All(all.Settings{})
	i := slices.IndexFunc(list, func(p projections.Projection) bool { return p.Name() == c.Projection })
	switch {
	case i < 0:
		return command.Usagef("there is no projection %q: the projections are graph, inbox, seen, counters and notifications", c.Projection)
	case (c.Target == "") == (c.Data == ""):
		return command.Usagef("give either --target, where the snapshots are, or --data, the directory of a service that is not running")
	case c.Target == "" && (c.Snapshot != "" || c.Take):
		return command.Usagef("--snapshot and --take need --target")
	case c.Take && c.Snapshot != "":
		return command.Usagef("give either --take or --snapshot: the snapshot that --take takes has a name of its own")
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
		// After a signal, too, the snapshot is removed, and also if taking it has failed half-way.
		defer func() { err = errors.Join(err, c.removeSnapshot(context.WithoutCancel(ctx))) }()
		if err := c.takeSnapshot(ctx, std); err != nil {
			return err
		}
	}
	return c.exportSnapshot(ctx, std, list[i])
}

// takeSnapshot lets the service take a snapshot, and waits for its end.
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
	_, err = snapshot.Remove(ctx, b, c.Snapshot)
	if errors.Is(err, snapshot.ErrNone) { // taking the snapshot has failed
		return nil
	}
	return err
}

// exportSnapshot restores a snapshot into a temporary directory, exports it, and removes the
// directory.
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

	var progress replay.Progress
	stopProgress := command.ShowProgress(std.Err, "restore of "+p.Name(), &progress)
	restored, err := snapshot.Restore(ctx, snapshot.RestoreOptions{
		Bucket: b, Snapshot: c.Snapshot, Projection: p, Dir: dir, Progress: &progress, AnySettings: true,
	})
	stopProgress()
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
	std.Sayf("%s of snapshot %s, at sequence %d", p.Name(), restored.Manifest.Snapshot, restored.Manifest.Cursor.Seq)
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

	var progress replay.Progress
	err = c.writeAndReport(std, "rows of "+p.Name(), &progress, func(w io.Writer, f export.Format) (export.Counts, error) {
		return export.Rows(ctx, w, view, export.RowsOptions{
			Format: f, Projection: p, Fingerprint: store.Fingerprint(), Kinds: c.Tag, Partition: c.Partition, Progress: &progress,
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

	User  string   `help:"Only events by this user or about this user, as for a person who asks for their data." placeholder:"USER"`
	Kind  []string `help:"Only events of this kind, such as user_followed; repeat for several." placeholder:"KIND" sep:"none"`
	After string   `help:"Only events after this position." default:"earliest" placeholder:"POSITION"`
	Until string   `help:"Only events up to this position; by default those that the log has when the export begins." placeholder:"POSITION"`
	Data  string   `help:"Read the data directory of a service that is not running instead of asking a service." type:"path" placeholder:"DIR"`
}

// Help is shown below the flags.
func (*exportEventsCmd) Help() string {
	return `NDJSON has the lines that skein watch --json prints, except checkpoints. With --user the export is what the log has about a
person: all events by the user, and all events by others that name the user.`
}

// Run writes events.
func (c *exportEventsCmd) Run(ctx context.Context, std *command.Streams) error {
	var kinds events.KindSet
	for _, name := range c.Kind {
		k, ok := events.ParseKind(name)
		if !ok {
			return command.Usagef("--kind: there is no kind %q: a kind has the name of its field in the message Event, such as user_followed", name)
		}
		kinds |= events.Kinds(k)
	}

	if c.User != "" {
		if err := events.ValidateID(c.User); err != nil {
			return command.Usagef("--user %w", err)
		}
	}

	for _, position := range []struct{ flag, text string }{{"--after", c.After}, {"--until", c.Until}} {
		if position.text == "" || position.flag == "--after" && strings.EqualFold(position.text, export.Earliest) {
			continue
		}
		if _, err := events.ParseEventPosition(position.text); err != nil {
			return command.Usagef("%s: %q is not a position: copy one that a command or an answer of the service has, unchanged",
				position.flag, position.text)
		}
	}

	var progress replay.Progress
	r := export.Range{After: c.After, Until: c.Until, Kinds: kinds, Progress: &progress}
	exportFrom := func(scan export.ScanFunc) error {
		return c.writeAndReport(std, "events", &progress, func(w io.Writer, f export.Format) (export.Counts, error) {
			return export.Events(ctx, w, scan, export.EventsOptions{Format: f, Kinds: kinds, User: c.User})
		})
	}

	if c.Data != "" {
		return c.withOfflineLog(ctx, func(log *eventlog.Log, hub *eventlog.Hub, archived uint64) error {
			if head, err := log.Head(ctx); err == nil { // the size serves only to estimate the time left
				r.LogBytes = completeLogBytes(head.First, uint64(max(0, head.Bytes)))
			}
			r.LogEvents = archived
			return exportFrom(export.FromLog(log, hub, r))
		})
	}

	api := c.Client()
	// A caller who may not read the status gets no estimate of the time left.
	if status, err := command.Call(ctx, &c.ClientFlags, api.Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1}); err == nil {
		r.LogBytes = completeLogBytes(status.GetLog().GetFirstSequence(), status.GetLog().GetBytes())
		r.LogEvents = status.GetArchive().GetEvents() // without those of the last minute, which are not archived yet
	}
	return exportFrom(export.FromService(api.Events(), r))
}

// completeLogBytes returns the size of a stream if its first envelope is that of the log. Otherwise
// a part of the log is only in the archive; then it returns 0, which means that the size of the log
// is not known.
func completeLogBytes(firstSequence, streamBytes uint64) uint64 {
	if firstSequence > 1 {
		return 0
	}
	return streamBytes
}
