package service

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/archiver"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/operation"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
	"github.com/skein-feed/skein/replay/verify"
	"github.com/skein-feed/skein/replay/worker"
)

// MaintenanceOptions say what a process does beside serving. With the zero value it only rebuilds damaged stores.
type MaintenanceOptions struct {
	// Archive is the bucket in which the log is archived; nil means that it is not archived.
	Archive bucket.Bucket
	// ArchiveEvery is the longest time for which an envelope waits until it is archived. Retention is how long the stream keeps archived
	// envelopes; a negative one means for ever.
	ArchiveEvery, Retention time.Duration
	// Snapshots is the bucket of snapshots; nil means that none are taken. All nodes of a cluster share it.
	Snapshots     bucket.Bucket
	SnapshotEvery time.Duration
	SnapshotKeep  int
	// AuditShare is the part of one core's time that the auditor may take; 0 means there is none.
	AuditShare float64
	// Adopt makes the process rebuild stores that another version has built, or other settings.
	AutoRebuild bool
	// Worker starts the process that finishes a build. If it is nil, this process does. Its settings are those of the service.
	Worker *worker.Command
}

// maintenance has the parts of a process that work beside serving.
type maintenance struct {
	options   MaintenanceOptions
	archive   *archive.Archive
	archiver  *archiver.Archiver
	snapshots *snapshot.Scheduler
	// copies is the bucket of the snapshots of this process.
	snapshotBucket bucket.Bucket
	Auditor        *audit.Auditor

	verifiedMu sync.Mutex
	// verified is when each projection was last found equal to the log by an operation.
	verified map[string]time.Time
}

// openArchive connects the log with its archive, and checks that the log continues it.
func (a *Service) openArchive(ctx context.Context) (err error) {
	if a.options.Archive == nil {
		return nil
	}
	if a.archive, err = archive.Open(ctx, a.options.Archive, a.log.ID()); err != nil {
		return err
	}
	a.log.SetArchive(a.archive)
	return explainLostLog(CheckArchiveEnd(ctx, a.log, a.archive, a.logger), a.options.Archive)
}

// examineTime bounds examineLog in a start. While the log elects a leader, each request takes seconds. Damage in the part that was not
// examined is found when that part is read.
const examineTimeout = 10 * time.Second

// examineLog looks for damage in the part of the log that is not archived, before anything is folded or repaired.
func (a *Service) examineLog(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	read, err := a.log.VerifyUnarchived(ctx)
	if err != nil {
		a.logger.Warn("what is not archived of the log could not be examined", "error", err)
		return
	}
	a.logger.Debug("what is not archived of the log was examined", "envelopes", read, "took", time.Since(began))
}

// openMaintenance creates the parts that work beside serving. None of them runs yet.
func (a *Service) openMaintenance(config *node.Config) (err error) {
	if a.archive != nil {
		a.archiver = archiver.New(archiver.Options{
			Log: a.log, Hub: a.hub, Archive: a.archive, SegmentAge: a.options.ArchiveEvery, Retention: a.options.Retention,
			Cursors: a.flushedCursors, Logger: a.logger,
		})
	}
	if a.snapshotBucket = a.options.Snapshots; a.snapshotBucket != nil {
		o := snapshot.Options{
			Stores: a.servingStores, Scratch: filepath.Join(a.dir, StoresDir, "shadow-snapshots"),
			Every: a.options.SnapshotEvery, Keep: a.options.SnapshotKeep, Whole: a.checkNoHole, Logger: a.logger,
		}
		if config != nil {
			if a.snapshotBucket, err = snapshot.OfNode(a.options.Snapshots, config.Name); err != nil {
				return err
			}
			o.Erased = func(ctx context.Context) (*snapshot.ErasureState, error) { return a.erasure.Erased(ctx) }
		}
		o.Bucket = a.snapshotBucket
		a.snapshots = snapshot.New(o)
	}
	if a.options.AuditShare > 0 {
		all := map[string]audit.Store{}
		for _, s := range a.Stores {
			all[s.Name()] = s
		}
		a.Auditor = audit.NewAuditor(audit.Config{
			Graph: a.Store("graph"), Inbox: a.Store("inbox"), Counters: a.Store("counters"), All: all,
			Shadow:    func(projection string) verify.Options { return a.shadowOptions(projection, "shadow-audit") },
			Subscribe: a.subscribe, Share: a.options.AuditShare, Logger: a.logger,
		})
	}
	return nil
}

// flushed returns the cursors from which the stores would continue after a crash. The stream must not be trimmed beyond them.
func (a *Service) flushedCursors() (cursors []events.Cursor) {
	for _, serving := range a.Stores {
		cursors = append(cursors, serving.Status().Flushed)
	}
	return cursors
}

// runMaintenance runs the maintenance until ctx ends. An error is logged, and does not end the process, which continues to serve. Snapshots
// and audits wait until caughtUp is closed, that is, until the projections have caught up. Those of a node wait for its partitions.
func (a *Service) runMaintenance(ctx context.Context, g *errgroup.Group, caughtUp <-chan struct{}) {
	later := func(name string, run func(context.Context) error) {
		g.Go(func() error {
			select {
			case <-caughtUp:
			case <-ctx.Done():
				return nil
			}
			if err := run(ctx); err != nil {
				a.logger.Error(name+" has ended", "error", err)
			}
			return nil
		})
	}
	if a.archiver != nil {
		g.Go(func() error {
			if err := a.archiver.Run(ctx); err != nil {
				a.logger.Error("the log is no longer archived, and not trimmed", "error", err)
			}
			return nil
		})
	}
	for _, serving := range a.Stores {
		k := rebuild.Supervisor{Live: serving, Heal: true, Adopt: a.options.AutoRebuild, Logger: a.logger}
		k.Rebuild = func(ctx context.Context, _ error) error { return a.rebuildAsOperation(ctx, serving) }
		g.Go(func() error { return k.Run(ctx) })
		g.Go(func() error { return a.recoverFromFullDisk(ctx, serving) })
	}
	if a.snapshots != nil {
		later("taking snapshots", func(ctx context.Context) error {
			if a.node != nil && !a.node.AwaitComplete(ctx) {
				return nil
			}
			return a.snapshots.Run(ctx)
		})
	}
	if a.Auditor != nil {
		later("the auditor", a.Auditor.Run)
	}
}

// rebuildUnasked rebuilds a projection as an operation, so that operators see it, and waits for its end. If a rebuild of the projection is
// under way already, it waits for that one. If another operation is in the way, such as a verification, it waits for its end and
// returns nil; the caller then looks again whether a rebuild is needed.
func (a *Service) rebuildAsOperation(ctx context.Context, serving *live.Live) error {
	run, err := a.prepareRebuild(operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: serving.Name(),
	})
	if err != nil {
		return err
	}
	i, err := a.Operations.Start(operation.Rebuild, serving.Name(), requestArgs{}, run)
	id, another := i.ID, false
	if conflict, ok := errors.AsType[*operation.ConflictError](err); ok {
		id, another, err = conflict.With.ID, conflict.With.Kind != operation.Rebuild, nil
	}
	if err != nil {
		return err
	}
	var end operation.Info
	if err := a.Operations.Watch(ctx, id, func(i operation.Info) error { end = i; return nil }); err != nil {
		return err
	}
	if end.State != operation.Succeeded && !another {
		return errors.New(end.Error)
	}
	return nil
}

func (a *Service) recordVerified(r *verify.Report) {
	if !r.Equal || r.Damaged() {
		return
	}
	a.verifiedMu.Lock()
	defer a.verifiedMu.Unlock()
	if a.verified == nil {
		a.verified = map[string]time.Time{}
	}
	a.verified[r.Projection] = time.Now()
}
