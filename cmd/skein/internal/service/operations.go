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

// OfferedOperations returns the operations that this process can perform, by kind. Without a bucket
// for snapshots it offers no snapshots, and without an archive of the log no erasures. After a
// restart of the process, a rebuild, a rollback or an erasure that was under way starts again; the
// other kinds fail then.
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
		offered[kind] = OfferedOperation{Prepare: s.failWhileLogHasHole(offer.Prepare), Resumes: offer.Resumes}
	}
	return offered
}

// prepareFunc checks a request and returns the function that performs the operation. See
// [OfferedOperation].
type prepareFunc = func(*operator.OperationRequest) (operation.Func, error)

// failWhileLogHasHole wraps a prepareFunc. The operation that the wrapped function prepares calls
// checkNoHole when it begins to run, and fails if the log has a hole. The request is accepted
// nevertheless, because a prepareFunc must return quickly and checkNoHole may ask the log.
//
// A store that folded the lost envelopes while the log still had them has facts that the log lacks,
// so a new store could not be built like it, and a snapshot would keep facts that no fold of the
// log gives. Readers of the log stop in front of a hole. Without the check, an operation would read
// the log up to there, and only then fail, or wait until the hole is closed.
//
// Once an operator has accepted a hole, checkNoHole ignores it, and operations run again. A rebuild
// or a repair then removes the facts of the lost envelopes.
//
// Rebuilds that the process starts by itself (rebuildAsOperation, rebuildAfterErasure) do not call
// checkNoHole.
func (s *Service) failWhileLogHasHole(prepare prepareFunc) prepareFunc {
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

// checkNoHole fails with [events.ErrHole] if a reader of the log has found a hole that is neither
// closed nor accepted. It does not search the log for holes. If the log does not answer whether a
// hole is still there, checkNoHole assumes that it is.
func (s *Service) checkNoHole(ctx context.Context) error {
	holes, err := s.log.Holes(ctx)
	if len(holes) > 0 {
		return &eventlog.HoleError{First: holes[0].From, Last: holes[0].To}
	}
	return err
}

// errNotArchiving is the error of an erasure in a process that does not archive the log at present.
// An erasure rewrites the archive, and only the process that archives the log may write to it.
var errNotArchiving = &operator.Refusal{
	Cause: operator.ErrNotPossible,
	Text: "this process does not archive the log, and only the one that does may rewrite the archive: " +
		"erase the user there",
}

// awaitArchiver waits until this process archives the log. After a restart, the archiver of this
// process must first get the lease, unless the log is embedded. If this process was killed before
// the restart, the archiver waits until the old lease expires. If this process does not archive
// after archiverWait, for example because another process keeps the lease, awaitArchiver fails with
// errNotArchiving.
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
	// archiverWait is how long a resumed erasure waits for the archiver. It is longer than the time
	// until the lease of a process that was killed expires. That time is 30 s, the default of
	// archiver.Options.LeaseTTL, unless an operator created the bucket of the leases with another
	// one.
	archiverWait = 2 * time.Minute
	// archiverPoll is the pause between two checks of the status of the archiver.
	archiverPoll = 100 * time.Millisecond
)

// prepareErasure returns the operation that erases users from the log, its archive, the stores of
// all nodes and the snapshots. If this process does not archive the log at present, prepareErasure
// refuses a new request with errNotArchiving; a resumed operation waits for the archiver instead.
// The report of the operation says what an operator must still remove, such as snapshots that were
// taken by hand.
func (s *Service) prepareErasure(req *operator.OperationRequest) (operation.Func, error) {
	if !req.Resumed && !s.archiver.Status().Running {
		return nil, errNotArchiving
	}
	if len(req.Users) == 0 {
		// The gateway accepts no request without users, so this operation is resumed. An earlier
		// process of the node started it in rebuildAfterErasure, to rebuild the stores after an
		// erasure. Do not continue it here: the node itself checks whether its stores must still be
		// rebuilt, and if so, calls rebuildAfterErasure again.
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

		// Outside of a cluster, s.node is nil, and EraseNodes and bucketOfAllSnapshots return nil.
		report, err := erase.Erase(ctx, erase.Options{
			Log:       s.log,
			Publisher: s.publisher,
			Archive:   s.archive,
			Archiver:  s.archiver,
			Stores:    s.Stores,
			Subscribe: s.subscribeKinds,
			Rebuild:   s.rebuildOptions(ctx, 0, nil),
			Scheduler: s.snapshots,
			Bucket:    s.snapshotBucket,
			Buckets:   []bucket.Bucket{s.options.Archive, s.snapshotBucket},
			Part:      s.erasure,
			Nodes:     s.node.EraseNodes(),
			Shared:    s.bucketOfAllSnapshots(),
		}, req.Users, p)
		if err != nil {
			return "", err
		}
		// Reports and errors of earlier operations may name the users.
		if err := s.Operations.RemoveTexts(); err != nil {
			return "", err
		}

		// An earlier `skein replay archive restore` may have moved a damaged log to another
		// directory of the data directory. Erase does not change the files there, which may still
		// contain the users.
		damaged, err := DamagedLogs(s.dir)
		if err != nil {
			return "", err
		}
		if len(damaged) > 0 {
			report.OperatorTasks = append(report.OperatorTasks, fmt.Sprintf("what remains of a damaged log: remove %v", damaged))
		}
		return report.String(), nil
	}, nil
}

var (
	// errRowsDiffer is the error of a verification that has found rows that differ from the log,
	// and of a repair after which rows still differ. The report lists the first differences.
	errRowsDiffer = errors.New("rows differ from the log: skein replay repair makes them equal")
	// errFilesDamaged is the error of a verification or repair that has found damaged tables on
	// disk. The report can say at the same time that all rows are equal to the log: the comparison
	// may have read the rows from the block cache, and the check of the files reads the disk.
	errFilesDamaged = errors.New("tables on disk are damaged: skein replay rebuild writes new ones")
)

// verificationError returns the error with which a verification or a repair with this report fails.
// It returns nil if all compared rows are equal to the log and no file is damaged, or if there is
// no report. If files are damaged and rows differ as well, it returns errFilesDamaged: a repair
// writes no new tables in place of the damaged ones, whereas a rebuild corrects both.
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

// prepareRebuild returns the operation that builds the next generation of a projection and cuts
// over to it. If the request names partitions, the operation repairs their rows in the live store
// instead, as prepareRepair does, because [rebuild.Rebuild] always builds all partitions that the
// projection holds.
func (s *Service) prepareRebuild(req *operator.OperationRequest) (operation.Func, error) {
	if len(req.Partitions) > 0 {
		return s.prepareRepair(req)
	}
	projection, err := s.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	return s.withBuildsShared(func(ctx context.Context, p *replay.Progress) (string, error) {
		return rebuild.Rebuild(ctx, projection, s.subscribeKinds, s.rebuildOptions(ctx, req.Share, p))
	}), nil
}

// prepareRollback returns the operation that goes back to the previous generation of a projection.
// It sets the number of that generation in a new request, and the manager stores the number with
// the operation. A resumed request therefore has the number already. If there is no previous
// generation, prepareRollback returns a [*operator.Refusal].
func (s *Service) prepareRollback(req *operator.OperationRequest) (operation.Func, error) {
	projection, err := s.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	// A rollback that was interrupted may have cut over already. The generation that the operator
	// wanted to leave is then the previous one. A resumed rollback must not go back to it, so it
	// keeps the number that the request has.
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
	return s.withBuildsShared(func(ctx context.Context, p *replay.Progress) (string, error) {
		// The previous generation may not have folded the deletion of a user who was erased since.
		// An erasure deletes the previous generations when it rebuilds the stores, but this process
		// may not have rebuilt them: an erasure can fail before that, or another process performs
		// it. If such a generation continued with the scrubbed log, it would keep the user's rows,
		// so CheckMayContinue refuses it.
		subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
			if err := s.erasure.CheckMayContinue(ctx, from); err != nil {
				return nil, err
			}
			return s.subscribeKinds(from, kinds)
		}
		return rebuild.Rollback(ctx, projection, req.Generation, subscribe, s.rebuildOptions(ctx, req.Share, p))
	}), nil
}

// withBuildsShared wraps the function of a rebuild or a rollback of one projection. The wrapped
// function takes a share of the lock of builds ([erase.Part.ShareBuilds]) and keeps it until it
// returns. Rebuilds and rollbacks of other projections can run at the same time, because each takes
// only a share. Changes of partitions and erasures take the whole lock, because they build
// generations of all projections. They and the wrapped function therefore wait for each other.
func (s *Service) withBuildsShared(run operation.Func) operation.Func {
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		// The manager of operations runs no two operations of this process that conflict. But it
		// knows neither of changes of partitions nor of erasures by other nodes. An erasure by
		// another node scrubs the log as soon as the stores have flushed the deletion of the user.
		// A generation that has not folded the deletion by then, and continues with the scrubbed
		// log, would keep the user's rows.
		release, err := s.erasure.ShareBuilds(ctx)
		if err != nil {
			return "", err
		}
		defer release()
		return run(ctx, p)
	}
}

// rebuildOptions returns the options of a rebuild, a rollback or a change of partitions that may
// use the given share of one core, and of the rebuilds of an erasure. A share of 0 or 1 does not
// limit it. p may be nil.
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

// workerCommand returns the command that starts another process to finish a build, with the
// settings of the folds of this process; nil means that this process finishes its builds itself.
func (s *Service) workerCommand() *worker.Command {
	if s.options.Worker == nil {
		return nil
	}
	c := *s.options.Worker
	c.Settings = s.settings
	return &c
}

// maxStreamBytesPerArchiveByte is the largest measured ratio between the size of envelopes in the
// stream and their size in the archive, which is compressed.
const maxStreamBytesPerArchiveByte = 8

// estimateLogBytes estimates how many bytes the whole log would have in the stream. The estimate is
// rather too high than too low: envelopes that are in the stream and in the archive count twice,
// and the archive counts by the largest measured ratio. If the log does not answer, only the
// archive counts. If there is no archive either, the result is 0.
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

// sizeOfKinds returns the size of the part of the log that a fold of these kinds reads. If the
// stream has the whole log, the size is in bytes. Otherwise it is the number of events in the
// archive, without the envelopes that are only in the stream. The zero value means unknown.
func (s *Service) sizeOfKinds(ctx context.Context, kinds events.KindSet) (size replay.LogSize) {
	// If the stream begins with the first envelope of the log and has no gaps, the fold reads only
	// the stream, and reads the events of all kinds there. Gaps are rare, and are ignored here.
	head, err := s.log.Head(ctx)
	if err == nil && head.First <= 1 {
		size.Bytes = uint64(max(0, head.Bytes))
		return size
	}
	if s.archive == nil {
		return size
	}

	// The archive has events of the class activity, such as plays, in other files than those of the
	// class facts. A fold reads all facts, whichever kinds it needs. If it needs at least one kind
	// of the class activity, it reads all activity as well, and otherwise none.
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

// prepareVerification returns the operation that compares projections with the log and changes
// nothing.
func (s *Service) prepareVerification(req *operator.OperationRequest) (operation.Func, error) {
	return s.prepareComparison(req, verify.Verify)
}

// prepareRepair returns the operation that compares projections with the log and repairs the rows
// that differ.
func (s *Service) prepareRepair(req *operator.OperationRequest) (operation.Func, error) {
	return s.prepareComparison(req, verify.Repair)
}

// prepareComparison returns the operation that applies compare, which is [verify.Verify] or
// [verify.Repair], to the projection that the request names, or to each projection in turn if the
// request names none. If one projection differs or cannot be compared, the operation continues with
// the others and fails at the end. It continues with no other projection once ctx has ended.
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
			// An operation that was canceled has not compared this projection, so it must not
			// succeed, even if all projections before were equal.
			if ctx.Err() != nil {
				if errs == nil {
					errs = ctx.Err()
				}
				break
			}

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
			// If compare is interrupted after it has repaired rows or found damaged files, it
			// returns both a report and an error. Such a report never says that the rows are equal.
			if report != nil {
				// A comparison of some partitions compares no rows of the others, and reads no
				// files, so it does not show that the projection is equal to the log.
				if len(req.Partitions) == 0 {
					s.recordVerified(report)
				}
				reports = append(reports, report.String())
			}
			// Several projections can fail with errRowsDiffer or errFilesDamaged. Add each of these
			// errors once: the reports say which projections they concern.
			if err != nil && !errors.Is(errs, err) {
				errs = errors.Join(errs, err)
			}
		}
		return strings.Join(reports, "\n"), errs
	}, nil
}

// verifyDirName is the name of the directory of the shadow of a requested verification or repair.
// The auditor has another directory.
const verifyDirName = "shadow-verify"

// shadowOptions returns the options for a verification or a repair of a projection. Both fold the
// log again into a shadow, a temporary store in the directory dirName below the directory of the
// projection's store. If two of them can run for one projection at the same time, they must have
// different directories, because each deletes its directory when it begins and when it ends.
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

	// Find the constructor of the projection. The kinds of events that the projection folds decide
	// what the shadow reads of the archive.
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
// names, or of all projections if it names none. If the request has Projections, its Projection is
// ignored.
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

// servingStores returns the store of the serving generation of each projection. It leaves out a
// projection whose store could not be opened. Snapshots are taken of these stores.
func (s *Service) servingStores() (stores []snapshot.Store) {
	for _, projection := range s.Stores {
		if serving := projection.Serving(); serving != nil {
			stores = append(stores, serving)
		}
	}
	return stores
}

// findProjection returns the projection with the given name, or a [*operator.Refusal] if this
// process has none.
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
