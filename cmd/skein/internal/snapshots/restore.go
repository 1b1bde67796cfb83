package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/snapshot"
)

// Restore is the command `skein restore`.
type Restore struct {
	TargetFlag         `embed:""`
	flags.ArchiveFlags `embed:""`

	Projections []string `arg:"" optional:"" name:"projection" help:"Projections to restore; by default all that have a snapshot."`
	Data        string   `help:"Data directory of the service, which must be stopped." default:"./skein-data" type:"path" placeholder:"DIR"`
	Snapshot    string   `help:"Name of the snapshot; by default the latest one of each projection." placeholder:"NAME"`
	Drill       bool     `help:"Practice: restore into a temporary directory, print how long that took, and remove the directory."`

	flags.FoldFlags `embed:""`
}

// Help is shown below the flags.
func (*Restore) Help() string {
	return `Each restored store then folds only the events that the log has after the snapshot. The data directory must not have a store of a
projection that is restored. Every file is checked before the store appears. If DATA has a log, the snapshot must be of that log.

A cluster keeps the snapshots of each node below TARGET/nodes/NAME. A restored store holds the partitions that it had at the time of the
snapshot; when the node starts, it copies and drops partitions as the cluster requires.

A snapshot that this version of the program cannot read is skipped, unless you name its projection: the service can build that store from
the log (--auto-rebuild).

The flags --feed-…, --heat-… and --seen-… must have the same values as for the service (a configuration file gives them to both). A snapshot
that was taken with other values is refused, and the error names the values that differ.`
}

// Run restores stores.
func (c *Restore) Run(ctx context.Context, std *command.Streams) (err error) {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	selected, err := c.selectProjections(all.All(settings))
	if err != nil {
		return err
	}
	b, err := c.OpenTarget(ctx)
	if err != nil {
		return err
	}
	log, err := c.openLog(ctx, std)
	if err != nil {
		return err
	}
	if log != nil {
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.CloseTimeout)
			defer cancel()
			err = errors.Join(err, log.Close(closing))
		}()
	}

	restored := 0
	for _, p := range selected {
		err := c.restoreProjection(ctx, std, b, log, p)
		// A projection that the user has not named may lack a snapshot, or have one that only
		// another version can read.
		if len(c.Projections) == 0 {
			if c.Snapshot == "" && errors.Is(err, snapshot.ErrNone) {
				std.Sayf("%s: no snapshot", p.Name())
				continue
			}
			if errors.Is(err, snapshot.ErrVersion) {
				std.Sayf("%s: not restored: %v", p.Name(), err)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
		restored++
	}
	if restored == 0 {
		return fmt.Errorf("%w that can be restored in %s", snapshot.ErrNone, b)
	}
	return nil
}

// selectProjections returns the projections that the command line names, each once, or all if it
// names none.
func (c *Restore) selectProjections(all []projections.Projection) ([]projections.Projection, error) {
	if len(c.Projections) == 0 {
		return all, nil
	}
	var selected []projections.Projection
	for _, name := range c.Projections {
		i := slices.IndexFunc(all, func(p projections.Projection) bool { return p.Name() == name })
		if i < 0 {
			return nil, command.Usagef("there is no projection %q", name)
		}
		if !slices.Contains(selected, all[i]) {
			selected = append(selected, all[i])
		}
	}
	return selected, nil
}

// openLog opens the log in the data directory; it returns nil if there is no log. The open log
// keeps a service from starting with the directory. If a service has the log open already, a
// restore fails and a drill works without the log.
func (c *Restore) openLog(ctx context.Context, std *command.Streams) (*eventlog.Log, error) {
	dir := filepath.Join(c.Data, service.LogDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil && c.Drill && errors.Is(err, events.ErrLocked) {
		std.Sayf("a service has the log in %s open, so the drill does not fold the events after the snapshot", dir)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A log that was restored a moment ago may have all of its events in the archive, and none in
	// the stream.
	if _, err := c.Attach(ctx, c.Data, log); err != nil {
		return nil, errors.Join(err, log.Close(context.WithoutCancel(ctx)))
	}
	return log, nil
}

// restoreProjection restores the store of one projection. log may be nil.
func (c *Restore) restoreProjection(
	ctx context.Context, std *command.Streams, b bucket.Bucket, log *eventlog.Log, p projections.Projection,
) (err error) {
	var progress replay.Progress
	o := snapshot.RestoreOptions{
		Bucket:     b,
		Snapshot:   c.Snapshot,
		Projection: p,
		Dir:        filepath.Join(c.Data, service.StoresDir),
		Progress:   &progress,
	}
	if log != nil {
		o.CheckCursor = log.CheckCursor // refuse a snapshot of another log
	}
	stopProgress := command.ShowProgress(std.Err, p.Name(), &progress)
	defer stopProgress()
	if c.Drill {
		return c.runDrill(ctx, std, o, log)
	}

	// Before the store appears in the data directory, record there which erasures it has gone
	// through.
	o.BeforePlacing = func(m *snapshot.Manifest) error {
		return erase.RecordRestoredStore(c.Data, service.StoresDir, m.Erased)
	}
	done, err := c.restoreLatest(ctx, std, o)
	if err != nil {
		return err
	}
	stopProgress()
	std.Sayf("%s: restored from snapshot %s at sequence %d, %s in %s", p.Name(), done.Manifest.Snapshot,
		done.Manifest.Cursor.Seq, events.FormatSize(uint64(done.Manifest.Bytes())), (done.Download + done.Open).Round(time.Millisecond))
	return nil
}

// restoreLatest restores the snapshot that the command line names. If it names none, restoreLatest
// restores the latest snapshot whose position is in the log: a log that was restored from its
// archive may end before the positions of the last snapshots.
func (c *Restore) restoreLatest(ctx context.Context, std *command.Streams, o snapshot.RestoreOptions) (snapshot.RestoreReport, error) {
	done, err := snapshot.Restore(ctx, o)
	if o.Snapshot != "" || !isAheadOfLog(err) {
		return done, err
	}
	list, err := snapshot.List(ctx, o.Bucket)
	if err != nil {
		return done, err
	}
	for _, listed := range slices.Backward(list) { // the latest is the last
		if listed.Projection != o.Projection.Name() || listed.Manifest == nil {
			continue
		}
		o.Snapshot = listed.Snapshot
		done, err = snapshot.Restore(ctx, o)
		if !isAheadOfLog(err) {
			return done, err
		}
		std.Sayf("%s: snapshot %s is ahead of the log, which ends earlier than when it was taken", listed.Projection, listed.Snapshot)
	}
	return done, fmt.Errorf("%w that is not ahead of the log", snapshot.ErrNone)
}

// isAheadOfLog reports whether err says that the position of a snapshot is not in the log.
func isAheadOfLog(err error) bool {
	return errors.Is(err, events.ErrLogShorter) || errors.Is(err, events.ErrOtherEpoch)
}

// runDrill restores a store into a temporary directory, folds the rest of the log into it if log is
// not nil, prints how long both took, and removes the directory.
func (c *Restore) runDrill(ctx context.Context, std *command.Streams, o snapshot.RestoreOptions, log *eventlog.Log) (err error) {
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.Data, "drill-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	o.Dir = filepath.Join(dir, service.StoresDir)
	drill := snapshot.DrillOptions{RestoreOptions: o}
	if log != nil {
		drill.Tail = func(ctx context.Context, s *store.Store) error { return foldToHead(ctx, log, s) }
	}
	done, err := snapshot.Drill(ctx, drill)
	if err != nil {
		return err
	}
	fmt.Fprintln(std.Out, done)
	return nil
}

// foldToHead folds the log into a store, up to where the log ends when foldToHead is called.
func foldToHead(ctx context.Context, log *eventlog.Log, s *store.Store) error {
	head, err := log.Head(ctx)
	if err != nil {
		return err
	}
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	defer hub.Close()

	// The hub and the store run until the store has reached the end of the log, or one of the three
	// fails.
	goroutines, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	goroutines.Go(func() error { return hub.Run(ctx) })
	goroutines.Go(func() error {
		return s.Run(ctx, func(from events.Cursor) (store.Subscription, error) {
			sub, err := hub.Subscribe(from)
			if err != nil {
				return nil, err
			}
			return service.NewSubscription(sub, hub), nil
		})
	})
	goroutines.Go(func() error {
		defer stop()
		return s.WaitFor(ctx, head.Last)
	})
	return goroutines.Wait()
}
