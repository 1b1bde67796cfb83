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

// Restore is the command restore.
type Restore struct {
	TargetFlag         `embed:""`
	flags.ArchiveFlags `embed:""`

	Projections []string `arg:"" optional:"" name:"projection" help:"Which; without any: all that have a snapshot."`
	Data        string   `help:"Data directory of a service that is not running." default:"./skein-data" type:"path" placeholder:"DIR"`
	Snapshot    string   `help:"Name of the snapshot; without it the latest of each projection." placeholder:"NAME"`
	Drill       bool     `help:"For practice: restore into a directory that is removed again, and print how long it took."`

	flags.FoldFlags `embed:""`
}

// Help is shown below the flags.
func (*Restore) Help() string {
	return `A new node restores and then folds only what the log has after the snapshot. There must be no store where one is
restored; every file is checked before it takes its place. Where DATA holds a log, the snapshot must be of that log.

The snapshots of a node of a cluster are below TARGET/nodes/NAME. A store has the partitions that it had then; the node builds and
drops what the cluster gives it otherwise.

A snapshot of a store whose rows this program does not read is left out, unless it is asked for: the service builds that store from
the log (--auto-rebuild).

The flags --feed-…, --heat-… and --seen-… must be those of the service (a configuration file gives them to both): a snapshot of
a store that was built with others is refused, by name of what differs.`
}

// Run restores stores.
func (c *Restore) Run(ctx context.Context, std *command.Streams) (err error) {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	list, err := c.selectProjections(all.All(settings))
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
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.CloseTimeout)
			defer cancel()
			err = errors.Join(err, log.Close(last))
		}()
	}
	restored := 0
	for _, p := range list {
		err := c.restoreProjection(ctx, std, b, log, p)
		switch all := len(c.Projections) == 0; {
		case all && c.Snapshot == "" && errors.Is(err, snapshot.ErrNone):
			std.Sayf("%s: no snapshot", p.Name())
			continue
		case all && errors.Is(err, snapshot.ErrVersion):
			std.Sayf("%s: not restored: %v", p.Name(), err)
			continue
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

// selectProjections returns the projections that the command line names.
func (c *Restore) selectProjections(list []projections.Projection) ([]projections.Projection, error) {
	if len(c.Projections) == 0 {
		return list, nil
	}
	var chosen []projections.Projection
	for _, name := range c.Projections {
		i := slices.IndexFunc(list, func(p projections.Projection) bool { return p.Name() == name })
		if i < 0 {
			return nil, command.Usagef("there is no projection %q", name)
		}
		if !slices.Contains(chosen, list[i]) {
			chosen = append(chosen, list[i])
		}
	}
	return chosen, nil
}

// openLog opens the log in the data directory, which also locks the directory against a service; nil means there is no log. A drill
// works without the log if a service has it open.
func (c *Restore) openLog(ctx context.Context, std *command.Streams) (*eventlog.Log, error) {
	dir := filepath.Join(c.Data, service.LogDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil && c.Drill && errors.Is(err, events.ErrLocked) {
		std.Sayf("a service has the log in %s open: what comes after the snapshot is not folded", dir)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A log that was just restored has all its events in the archive.
	if _, err := c.Attach(ctx, c.Data, log); err != nil {
		return nil, errors.Join(err, log.Close(context.WithoutCancel(ctx)))
	}
	return log, nil
}

// restoreProjection restores the store of one projection.
func (c *Restore) restoreProjection(
	ctx context.Context, std *command.Streams, b bucket.Bucket, log *eventlog.Log, p projections.Projection,
) (err error) {
	var at replay.Progress
	o := snapshot.RestoreOptions{
		Bucket: b, Snapshot: c.Snapshot, Projection: p, Dir: filepath.Join(c.Data, service.StoresDir), Progress: &at,
	}
	if log != nil {
		o.Accept = log.CheckCursor
	}
	shown := command.ShowProgress(std.Err, p.Name(), &at)
	defer shown()
	if c.Drill {
		return c.runDrill(ctx, std, o, log)
	}
	o.Place = func(m *snapshot.Manifest) error { return erase.Restored(c.Data, service.StoresDir, m.Erased) }
	done, err := c.restoreLatest(ctx, std, o)
	if err != nil {
		return err
	}
	shown()
	std.Sayf("%s: restored from snapshot %s at sequence %d, %s in %s", p.Name(), done.Manifest.Snapshot,
		done.Manifest.Cursor.Seq, events.FormatSize(uint64(done.Manifest.Bytes())), (done.Download + done.Open).Round(time.Millisecond))
	return nil
}

// restoreLatest restores the named snapshot, or else the latest one whose position the log has: a log that was restored from its archive may end
// before the positions of the last snapshots.
func (c *Restore) restoreLatest(ctx context.Context, std *command.Streams, o snapshot.RestoreOptions) (snapshot.RestoreReport, error) {
	done, err := snapshot.Restore(ctx, o)
	if o.Snapshot != "" || !isAheadOfLog(err) {
		return done, err
	}
	list, err := snapshot.List(ctx, o.Bucket)
	if err != nil {
		return done, err
	}
	for _, l := range slices.Backward(list) {
		if l.Projection != o.Projection.Name() || l.Manifest == nil {
			continue
		}
		o.Snapshot = l.Snapshot
		if done, err = snapshot.Restore(ctx, o); !isAheadOfLog(err) {
			return done, err
		}
		std.Sayf("%s: snapshot %s is ahead of the log, which ends earlier than it did", l.Projection, l.Snapshot)
	}
	return done, fmt.Errorf("%w that is not ahead of the log", snapshot.ErrNone)
}

// isAheadOfLog reports whether an error says that the snapshot's position is after the end of the log.
func isAheadOfLog(err error) bool {
	return errors.Is(err, events.ErrLogShorter) || errors.Is(err, events.ErrOtherEpoch)
}

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
	d := snapshot.DrillOptions{RestoreOptions: o}
	if log != nil {
		d.Tail = func(ctx context.Context, s *store.Store) error { return foldToHead(ctx, log, s) }
	}
	done, err := snapshot.Drill(ctx, d)
	if err != nil {
		return err
	}
	fmt.Fprintln(std.Out, done)
	return nil
}

// foldToHead folds the log up to its present end.
func foldToHead(ctx context.Context, log *eventlog.Log, s *store.Store) error {
	head, err := log.Head(ctx)
	if err != nil {
		return err
	}
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	defer hub.Close()
	g, within := errgroup.WithContext(ctx)
	within, stop := context.WithCancel(within)
	g.Go(func() error { return hub.Run(within) })
	g.Go(func() error {
		return s.Run(within, func(from events.Cursor) (store.Subscription, error) {
			sub, err := hub.Subscribe(from)
			if err != nil {
				return nil, err
			}
			return service.NewSubscription(sub, hub), nil
		})
	})
	g.Go(func() error {
		defer stop()
		return s.WaitFor(within, head.Last)
	})
	return g.Wait()
}
