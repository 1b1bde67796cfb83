package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/operation"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
	"github.com/skein-feed/skein/replay/verify"
	"github.com/skein-feed/skein/replay/worker"
)

// OfferedOperations returns the kinds of operations that this process can perform.
func (s *Service) OfferedOperations() OfferedOperations {
	offered := OfferedOperations{
		operation.Rebuild:  {Prepare: s.prepareRebuild, Resumes: true},
		operation.Rollback: {Prepare: s.prepareRollback, Resumes: true},
		operation.Verify:   {Prepare: s.prepareVerification},
		operation.Repair:   {Prepare: s.prepareRepair},
	}
	if s.snapshots != nil {
		offered[operation.Snapshot] = OfferedOperation{Prepare: s.prepareSnapshot}
	}
	if s.archiver != nil {
		offered[operation.Erase] = OfferedOperation{Prepare: s.prepareErasure, Resumes: true}
	}
	for kind, offer := range offered {
		offered[kind] = OfferedOperation{Prepare: s.refuseWhileLogHasHole(offer.Prepare), Resumes: offer.Resumes}
	}
	return offered
}

// prepareFunc checks a request and returns the function that performs the operation. See
// [OfferedOperation].
type prepareFunc = func(*operator.OperationRequest) (operation.Func, error)

// refuseWhileLogHasHole wraps a prepareFunc so that the operation fails while the log has a hole. A
// store that folded the lost envelopes while the log still had them has more facts than the log: a
// rebuild would lose these facts, and a verification would report them as differences.
func (s *Service) refuseWhileLogHasHole(prepare prepareFunc) prepareFunc {
	return func(r *operator.OperationRequest) (operation.Func, error) {
		run, err := prepare(r)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, p *replay.Progress) (string, error) {
			if err := s.checkNoHole(ctx); err != nil {
				return "", err
			}
			return run(ctx, p)
		}, nil
	}
}

// checkNoHole fails with [events.ErrHole] if the log is known to have a hole.
func (s *Service) checkNoHole(ctx context.Context) error {
	holes, err := s.log.Holes(ctx)
	if len(holes) > 0 {
		return &eventlog.HoleError{First: holes[0].From, Last: holes[0].To}
	}
	return err
}

// errNotArchiving refuses an erasure in a process that may not write the archive.
var errNotArchiving = &operator.Refusal{
	Cause: operator.ErrNotPossible,
	Text: "this process does not archive the log, and only the one that does may rewrite the archive: " +
		"erase the user there",
}

// awaitArchiver waits until this process archives the log. After a restart, it must first get the
// lease. If another process has the lease and keeps it, awaitArchiver fails after archiverWait.
func (s *Service) awaitArchiver(ctx context.Context) error {
	waitCtx, cancel := context.WithTimeout(ctx, archiverWait)
	defer cancel()
	for !s.archiver.Status().Running {
		if err := wait.For(waitCtx, archiverPoll); err != nil {
			return errors.Join(ctx.Err(), errNotArchiving)
		}
	}
	return nil
}

const (
	// archiverWait is longer than the time until the lease of a process that was killed expires.
	archiverWait = 2 * time.Minute
	// archiverPoll is the pause between two looks at the state of the archiver.
	archiverPoll = 100 * time.Millisecond
)

// prepareErasure returns the operation that erases users from the log, its archive, the stores of
// all nodes and the snapshots.
func (s *Service) prepareErasure(req *operator.OperationRequest) (operation.Func, error) {
	if !req.Resumed && !s.archiver.Status().Running {
		return nil, errNotArchiving
	}
	if len(req.Users) == 0 {
		// An operation of rebuildAfterErasure, which names no users, was interrupted. The node
		// itself checks whether its stores must still be rebuilt, and then starts another one.
		return nil, errors.New("the node begins it again by itself")
	}

	return func(ctx context.Context, p *replay.Progress) (string, error) {
		if req.Resumed {
			if err := s.awaitArchiver(ctx); err != nil {
				return "", err
			}
		}
		if s.node == nil {
			if err := s.checkNoCluster(ctx); err != nil {
				return "", err
			}
		}

		report, err := erase.Erase(ctx, erase.Options{
			Log:       s.log,
			Publisher: s.publisher,
			Archive:   s.archive,
			Archiver:  s.archiver,
			Stores:    s.Stores,
			Subscribe: s.subscribeKinds,
			Rebuild: rebuild.Options{
				LogBytes: s.estimateLogBytes(ctx), LogSize: s.sizeOfKinds, Worker: s.workerCommand(), Logger: s.logger,
			},
			Scheduler: s.snapshots,
			Bucket:    s.snapshotBucket,
			Buckets:   []bucket.Bucket{s.options.Archive, s.snapshotBucket},
			Part:      s.erasure,
			Nodes:     s.node.EraseNodes(),
			Shared:    s.bucketOfAllSnapshots(),
		}, req.Users, p)

		// A damaged log still has the user.
		damaged, globErr := DamagedLogs(s.dir)
		if globErr != nil {
			return "", errors.Join(err, globErr)
		}
		if len(damaged) > 0 {
			report.OperatorTasks = append(report.OperatorTasks, fmt.Sprintf("what remains of a damaged log: remove %v", damaged))
		}
		// Reports and errors of earlier operations may name the user.
		if err == nil {
			err = s.Operations.RemoveTexts()
		}
		if err != nil {
			return "", err
		}
		return report.String(), nil
	}, nil
}

var (
	// errRowsDiffer is the error of a verification that has found differences. Its report lists
	// them.
	errRowsDiffer = errors.New("rows differ from the log: skein replay repair makes them equal")
	// errFilesDamaged is the error of a verification that has found damaged files. All rows can be
	// right nevertheless, because the block cache may have what is damaged on disk.
	errFilesDamaged = errors.New("tables on disk are damaged: skein replay rebuild writes new ones")
)

// verificationError returns the error that a report stands for; nil if the store is equal to the
// log.
func verificationError(r *verify.Report) error {
	switch {
	case r == nil:
		return nil
	case r.Damaged():
		return errFilesDamaged
	case !r.Equal:
		return errRowsDiffer
	}
	return nil
}

// prepareRebuild returns the operation that builds the next generation of a projection. If the
// request names partitions, the operation repairs them in the live store instead, because a new
// generation is always built from the whole log.
func (s *Service) prepareRebuild(req *operator.OperationRequest) (operation.Func, error) {
	if len(req.Partitions) > 0 {
		return s.prepareRepair(req)
	}
	projection, err := s.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	return s.whileBuildsShared(func(ctx context.Context, p *replay.Progress) (string, error) {
		return rebuild.Rebuild(ctx, projection, s.subscribeKinds, s.rebuildOptions(ctx, req.Share, p))
	}), nil
}

// prepareRollback returns the operation that goes back to the previous generation of a projection.
// It sets that generation in the request, unless the request is resumed and so has it already.
func (s *Service) prepareRollback(req *operator.OperationRequest) (operation.Func, error) {
	projection, err := s.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	// A rollback that was interrupted may have cut over already. The previous generation is then
	// the one that the operator wanted to leave, so it must not be chosen again.
	if !req.Resumed {
		req.Generation = projection.Status().Previous
	}
	switch {
	case req.Generation != 0:
	case req.Resumed:
		return nil, errors.New("an earlier version of skein began it and did not record the generation to go back to")
	default:
		return nil, &operator.Refusal{
			Cause: operator.ErrNotPossible, Text: fmt.Sprintf("there is no previous generation of %s", projection.Name()),
		}
	}
	return s.whileBuildsShared(func(ctx context.Context, p *replay.Progress) (string, error) {
		// The previous generation may be from before an erasure that has failed since, or that
		// another process has performed.
		subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
			if err := s.erasure.CheckMayContinue(ctx, from); err != nil {
				return nil, err
			}
			return s.subscribeKinds(from, kinds)
		}
		return rebuild.Rollback(ctx, projection, req.Generation, subscribe, s.rebuildOptions(ctx, req.Share, p))
	}), nil
}

// whileBuildsShared wraps the function of an operation that builds or swaps generations of one
// projection. The wrapped function waits until nothing builds those of all projections, and keeps
// others from doing so until it returns.
func (s *Service) whileBuildsShared(run operation.Func) operation.Func {
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		// The manager keeps the operations of this process apart, but it knows neither of changes
		// of partitions nor of erasures by other nodes. Such an erasure scrubs the log as soon as
		// the stores have flushed the deletion of the user. A generation that is behind the
		// deletion, and continues with the scrubbed log, would keep the user's rows.
		release, err := s.erasure.ShareBuilds(ctx)
		if err != nil {
			return "", err
		}
		defer release()
		return run(ctx, p)
	}
}

// rebuildOptions returns the options of a rebuild that may use a share of one core. A share of 0
// does not limit the rebuild.
func (s *Service) rebuildOptions(ctx context.Context, share float64, p *replay.Progress) rebuild.Options {
	return rebuild.Options{
		Pace:     replay.Pace{Share: share},
		Memory:   int(s.memory.Rebuild),
		LogBytes: s.estimateLogBytes(ctx),
		LogSize:  s.sizeOfKinds,
		Progress: p,
		Worker:   s.workerCommand(),
		Logger:   s.logger,
	}
}

// workerCommand returns what starts the process that finishes a build; nil means that this process
// does it.
func (s *Service) workerCommand() *worker.Command {
	if s.options.Worker == nil {
		return nil
	}
	c := *s.options.Worker
	c.Settings = s.settings
	return &c
}

// maxStreamBytesPerArchiveByte is how many bytes of the stream a byte of the archive, which is
// compressed, stands for. It is the largest ratio that was measured.
const maxStreamBytesPerArchiveByte = 8

// estimateLogBytes estimates the size of the log in bytes, including the archive. It returns 0 if
// the log does not answer and there is no archive.
func (s *Service) estimateLogBytes(ctx context.Context) (n uint64) {
	if head, err := s.log.Head(ctx); err == nil {
		n = uint64(max(0, head.Bytes))
	}
	if s.archive != nil {
		for _, class := range s.archive.Info().Classes {
			n += class.Bytes * maxStreamBytesPerArchiveByte
		}
	}
	return n
}

// sizeOfKinds returns the size of the part of the log that a fold of these kinds reads. The zero
// value means unknown.
func (s *Service) sizeOfKinds(ctx context.Context, kinds events.KindSet) (size replay.LogSize) {
	// If the stream has the whole log, the fold reads only the stream, with all its kinds.
	head, err := s.log.Head(ctx)
	if err == nil && head.First <= 1 {
		size.Bytes = uint64(max(0, head.Bytes))
		return size
	}
	if s.archive == nil {
		return size
	}

	// The archive keeps activity, such as plays, apart from facts, so a fold that needs no activity
	// does not read it.
	readsActivity := kinds&archive.ActivityKinds != 0
	size.Kinds = events.AllKinds
	if !readsActivity {
		size.Kinds &^= archive.ActivityKinds
	}
	for _, class := range s.archive.Info().Classes {
		if class.Class == archive.Facts || readsActivity {
			size.Events += class.Events
		}
	}
	return size
}

// prepareVerification returns the operation that compares projections with the log.
func (s *Service) prepareVerification(req *operator.OperationRequest) (operation.Func, error) {
	return s.prepareComparison(req, verify.Verify)
}

// prepareRepair returns the operation that compares projections with the log and repairs the rows
// that differ.
func (s *Service) prepareRepair(req *operator.OperationRequest) (operation.Func, error) {
	return s.prepareComparison(req, verify.Repair)
}

// prepareComparison returns the operation that applies compare to the projection that the request
// names, or to each projection in turn if the request names none. If one projection differs, the
// operation still continues with the others.
func (s *Service) prepareComparison(
	req *operator.OperationRequest, compare func(context.Context, verify.Store, verify.Options) (*verify.Report, error),
) (operation.Func, error) {
	targets := s.Stores
	if req.Projection != "" {
		projection, err := s.findProjection(req.Projection)
		if err != nil {
			return nil, err
		}
		targets = []*live.Live{projection}
	}

	return func(ctx context.Context, p *replay.Progress) (string, error) {
		var reports []string
		var errs error
		for i, projection := range targets {
			p.SetUnestimatedPhasesFollow(i < len(targets)-1)
			o := s.shadowOptions(projection.Name(), verifyDirName)
			o.Pace = replay.Pace{Share: req.Share}
			o.Progress = p
			if len(req.Partitions) > 0 {
				o.Partitions = new(events.Partitions)
				for _, n := range req.Partitions {
					o.Partitions.Add(uint8(n)) // the gateway has checked that n is at most 255
				}
			}

			report, err := compare(ctx, projection, o)
			if err == nil {
				err = verificationError(report)
			}
			// A repair that was interrupted returns both a report and an error.
			if report != nil {
				// A comparison of some partitions says nothing about the others, nor about the files.
				if len(req.Partitions) == 0 {
					s.recordVerified(report)
				}
				reports = append(reports, report.String())
			}
			// Several projections can fail with the same error. Report the error once.
			if err != nil && !errors.Is(errs, err) {
				errs = errors.Join(errs, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return strings.Join(reports, "\n"), errs
	}, nil
}

// verifyDirName is the name of the directory of the shadow of a requested verification.
const verifyDirName = "shadow-verify"

// shadowOptions returns the options for verifying a projection. A verification folds the log again
// into a shadow, a temporary store in the directory dirName of the projection. Verifications that
// run at the same time must have different directories.
func (s *Service) shadowOptions(projection, dirName string) verify.Options {
	o := verify.Options{
		Dir:       filepath.Join(s.dir, StoresDir, projection, dirName),
		Memory:    int(s.memory.Shadow),
		Worker:    s.workerCommand(),
		Subscribe: s.subscribe,
		Logger:    s.logger,
	}
	if p := s.Store(projection); p != nil {
		o.FreeDisk = p.FreeDisk
		o.StoreBytes = p.FileBytes
	}

	for _, newProjection := range all.Constructors(s.settings) {
		p := newProjection()
		if p.Name() != projection {
			continue
		}
		kinds := events.Kinds(p.Kinds()...)
		o.New = newProjection
		o.LogSize = func(ctx context.Context) replay.LogSize { return s.sizeOfKinds(ctx, kinds) }
		o.Subscribe = func(from events.Cursor) (store.Subscription, error) { return s.subscribeKinds(from, kinds) }
	}
	return o
}

// prepareSnapshot returns the operation that takes a snapshot of the projections that the request
// names, or of all if it names none.
func (s *Service) prepareSnapshot(req *operator.OperationRequest) (operation.Func, error) {
	names := req.Projections
	if len(names) == 0 && req.Projection != "" {
		names = []string{req.Projection}
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		report, err := s.snapshots.Take(ctx, req.Name, names, p)
		if err != nil {
			return "", err
		}
		return report.String(), nil
	}, nil
}

// servingStores returns the generations that serve, of which snapshots are taken.
func (s *Service) servingStores() (stores []snapshot.Store) {
	for _, projection := range s.Stores {
		if serving := projection.Serving(); serving != nil {
			stores = append(stores, serving)
		}
	}
	return stores
}

// findProjection returns the projection with a name. It returns a [*operator.Refusal] if there is
// none.
func (s *Service) findProjection(name string) (*live.Live, error) {
	if projection := s.Store(name); projection != nil {
		return projection, nil
	}
	var names []string
	for _, projection := range s.Stores {
		names = append(names, projection.Name())
	}
	slices.Sort(names)
	return nil, &operator.Refusal{
		Cause: operator.ErrNotPossible, Text: fmt.Sprintf("there is no projection %q, only %v", name, names),
	}
}
