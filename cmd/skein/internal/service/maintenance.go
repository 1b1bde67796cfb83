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

// MaintenanceOptions configure what a process does besides serving calls. With the zero value it
// only rebuilds damaged stores.
type MaintenanceOptions struct {
	// Archive is the bucket in which the log is archived; nil means that the log is not archived.
	Archive bucket.Bucket
	// ArchiveEvery is the longest time for which an envelope waits until it is archived.
	ArchiveEvery time.Duration
	// Retention is how long the stream keeps envelopes that are archived; a negative value means
	// for ever.
	Retention time.Duration
	// Snapshots is the bucket in which snapshots of the stores are kept; nil means that none are
	// taken. All nodes of a cluster share it.
	Snapshots bucket.Bucket
	// SnapshotEvery is the time between two scheduled snapshots. SnapshotKeep is how many of them
	// are kept; 0 keeps all.
	SnapshotEvery time.Duration
	SnapshotKeep  int
	// AuditShare is the share of one core that the auditor may use, between 0 and 1; 0 disables the
	// auditor.
	AuditShare float64
	// AutoRebuild makes the process rebuild stores that were built by another version of the
	// program, or with other settings.
	AutoRebuild bool
	// Worker starts the process that finishes a build; nil means that this process does it. The
	// service sets the settings of the folds.
	Worker *worker.Command
}

// maintenance has the parts of a process that work besides serving calls.
type maintenance struct {
	options   MaintenanceOptions
	archive   *archive.Archive
	archiver  *archiver.Archiver
	snapshots *snapshot.Scheduler
	// snapshotBucket is the bucket of this process's snapshots. On a node it is a folder of
	// MaintenanceOptions.Snapshots.
	snapshotBucket bucket.Bucket
	Auditor        *audit.Auditor

	verifiedMu sync.Mutex
	// verified is the time at which an operation last found each projection equal to the log.
	// verifiedMu guards it.
	verified map[string]time.Time
}

// openArchive opens the archive of the log, if there is one, and checks that the log continues
// where the archive ends.
func (s *Service) openArchive(ctx context.Context) (err error) {
	if s.options.Archive == nil {
		return nil
	}
	s.archive, err = archive.Open(ctx, s.options.Archive, s.log.ID())
	if err != nil {
		return err
	}
	s.log.SetArchive(s.archive)
	return explainLostLog(CheckArchiveEnd(ctx, s.log, s.archive, s.logger), s.options.Archive)
}

// examineTimeout limits how long a start examines the log. While the log elects a leader, each
// request takes seconds. If some part is not examined in this time, its damage is found when a
// projection reads it.
const examineTimeout = 10 * time.Second

// examineLog looks for damage in the part of the log that is not archived. It runs before anything
// is folded or repaired, so that holes are known by then.
func (s *Service) examineLog(ctx context.Context) {
	startTime := time.Now()
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	envelopes, err := s.log.VerifyUnarchived(ctx)
	if err != nil {
		s.logger.Warn("the part of the log that is not archived could not be examined", "error", err)
		return
	}
	s.logger.Debug("examined the part of the log that is not archived", "envelopes", envelopes, "took", time.Since(startTime))
}

// openMaintenance creates the archiver, the snapshots and the auditor, as far as the options enable
// them. runMaintenance runs them.
func (s *Service) openMaintenance(config *node.Config) (err error) {
	if s.archive != nil {
		s.archiver = archiver.New(archiver.Options{
			Log:        s.log,
			Hub:        s.hub,
			Archive:    s.archive,
			SegmentAge: s.options.ArchiveEvery,
			Retention:  s.options.Retention,
			Cursors:    s.flushedCursors,
			Logger:     s.logger,
		})
	}

	if s.options.Snapshots != nil {
		o := snapshot.Options{
			Bucket:   s.options.Snapshots,
			Stores:   s.servingStores,
			Scratch:  s.snapshotScratch(),
			Every:    s.options.SnapshotEvery,
			Keep:     s.options.SnapshotKeep,
			CheckLog: s.checkNoHole,
			Logger:   s.logger,
		}
		if config != nil {
			o.Bucket, err = snapshot.OfNode(s.options.Snapshots, config.Name)
			if err != nil {
				return err
			}
			o.ErasureState = func(ctx context.Context) (*snapshot.ErasureState, error) { return s.erasure.ErasureState(ctx) }
		}
		s.snapshotBucket = o.Bucket
		s.snapshots = snapshot.New(o)
	}

	if s.options.AuditShare > 0 {
		stores := map[string]audit.Store{}
		for _, projection := range s.Stores {
			stores[projection.Name()] = projection
		}
		s.Auditor = audit.NewAuditor(audit.Config{
			Graph:     s.Store("graph"),
			Inbox:     s.Store("inbox"),
			Counters:  s.Store("counters"),
			All:       stores,
			Shadow:    func(projection string) verify.Options { return s.shadowOptions(projection, "shadow-audit") },
			Subscribe: s.subscribe,
			Share:     s.options.AuditShare,
			Logger:    s.logger,
		})
	}
	return nil
}

// snapshotScratch returns the directory of the copies of which a snapshot is made.
func (s *Service) snapshotScratch() string {
	return filepath.Join(s.dir, StoresDir, "shadow-snapshots")
}

// flushedCursors returns the cursors from which the stores would continue after a crash. The stream
// must keep what comes after them.
func (s *Service) flushedCursors() (cursors []events.Cursor) {
	for _, projection := range s.Stores {
		cursors = append(cursors, projection.Status().Flushed)
	}
	return cursors
}

// runMaintenance starts the goroutines of the maintenance, which run until ctx ends. Errors are
// logged and do not end the process, which continues to serve calls. Snapshots and audits start
// when caughtUp is closed, which means that the projections have caught up with the log. On a node,
// snapshots also wait until the node has its partitions.
func (s *Service) runMaintenance(ctx context.Context, g *errgroup.Group, caughtUp <-chan struct{}) {
	runWhenCaughtUp := func(name string, run func(context.Context) error) {
		g.Go(func() error {
			select {
			case <-caughtUp:
			case <-ctx.Done():
				return nil
			}
			if err := run(ctx); err != nil {
				s.logger.Error(name+" has ended", "error", err)
			}
			return nil
		})
	}

	if s.archiver != nil {
		g.Go(func() error {
			if err := s.archiver.Run(ctx); err != nil {
				s.logger.Error("the log is no longer archived, and its stream is no longer trimmed", "error", err)
			}
			return nil
		})
	}

	for _, projection := range s.Stores {
		supervisor := rebuild.Supervisor{
			Live:    projection,
			Heal:    true,
			Adopt:   s.options.AutoRebuild,
			Rebuild: func(ctx context.Context, _ error) error { return s.rebuildAsOperation(ctx, projection) },
			Logger:  s.logger,
		}
		g.Go(func() error { return supervisor.Run(ctx) })
		g.Go(func() error { return s.recoverFromFullDisk(ctx, projection) })
	}

	if s.snapshots != nil {
		runWhenCaughtUp("taking snapshots", func(ctx context.Context) error {
			if s.node != nil && !s.node.AwaitComplete(ctx) {
				return nil
			}
			return s.snapshots.Run(ctx)
		})
	}
	if s.Auditor != nil {
		runWhenCaughtUp("the auditor", s.Auditor.Run)
	}
}

// rebuildAsOperation rebuilds a projection as an operation, so that operators see the rebuild, and
// waits for its end. If a rebuild of the projection is already under way, rebuildAsOperation waits
// for that one. If another operation is in the way, such as a verification, it waits for the end of
// that operation and returns nil; the caller then checks again whether a rebuild is needed.
func (s *Service) rebuildAsOperation(ctx context.Context, projection *live.Live) error {
	run, err := s.prepareRebuild(&operator.OperationRequest{
		Kind: skeinv1.OperationKind_OPERATION_KIND_REBUILD, Projection: projection.Name(),
	})
	if err != nil {
		return err
	}

	awaited, err := s.Operations.Start(operation.Rebuild, projection.Name(), requestArgs{}, run)
	if conflict, ok := errors.AsType[*operation.ConflictError](err); ok {
		awaited = conflict.With
		err = nil
	}
	if err != nil {
		return err
	}

	ended, err := s.awaitOperation(ctx, awaited.ID)
	if err != nil {
		return err
	}
	// The failure of an operation of another kind says nothing about the rebuild.
	if awaited.Kind == operation.Rebuild && ended.State != operation.Succeeded {
		return errors.New(ended.Error)
	}
	return nil
}

// recordVerified records that an operation has found a projection equal to the log, if the report
// says so.
func (s *Service) recordVerified(r *verify.Report) {
	if !r.Equal || r.Damaged() {
		return
	}
	s.verifiedMu.Lock()
	defer s.verifiedMu.Unlock()
	if s.verified == nil {
		s.verified = map[string]time.Time{}
	}
	s.verified[r.Projection] = time.Now()
}
