package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
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

// OfferedOperations returns the kinds of operations that this process can do.
func (a *Service) OfferedOperations() OfferedOperations {
	offered := OfferedOperations{
		operation.Rebuild:  {Prepare: a.prepareRebuild, Resumes: true},
		operation.Rollback: {Prepare: a.prepareRollback, Resumes: true},
		operation.Verify:   {Prepare: a.prepareVerification},
		operation.Repair:   {Prepare: a.prepareRepair},
	}
	if a.snapshots != nil {
		offered[operation.Snapshot] = OfferedOperation{Prepare: a.prepareSnapshot}
	}
	if a.archiver != nil {
		offered[operation.Erase] = OfferedOperation{Prepare: a.prepareErasure}
	}
	for kind, offer := range offered {
		offered[kind] = OfferedOperation{Prepare: a.refuseWhileLogHasHole(offer.Prepare), Resumes: offer.Resumes}
	}
	return offered
}

// acrossNoHole makes operations fail while the log has a hole: a store that has folded the lost envelopes has more facts than the log.
func (a *Service) refuseWhileLogHasHole(
	prepare func(operator.OperationRequest) (operation.Func, error),
) func(operator.OperationRequest) (operation.Func, error) {
	return func(r operator.OperationRequest) (operation.Func, error) {
		run, err := prepare(r)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, p *replay.Progress) (string, error) {
			if err := a.checkNoHole(ctx); err != nil {
				return "", err
			}
			return run(ctx, p)
		}, nil
	}
}

// whole returns [events.ErrHole] while the log is known to have a hole.
func (a *Service) checkNoHole(ctx context.Context) error {
	holes, err := a.log.Holes(ctx)
	if len(holes) > 0 {
		return &eventlog.HoleError{First: holes[0].From, Last: holes[0].To}
	}
	return err
}

// prepareErasure returns the operation that erases a user from the log, its archive, the stores of all nodes and the snapshots.
func (a *Service) prepareErasure(req operator.OperationRequest) (operation.Func, error) {
	if !a.archiver.Status().Running {
		return nil, &operator.Refusal{
			Cause: operator.ErrNotPossible, Text: "another process archives the log, or none does: erase there, " +
				"for it alone may write the archive anew",
		}
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		if a.node == nil {
			if err := a.checkNoCluster(ctx); err != nil {
				return "", err
			}
		}
		r, err := erase.Erase(ctx, erase.Options{
			Log: a.log, Publisher: a.publisher, Archive: a.archive, Archiver: a.archiver, Stores: a.Stores, Subscribe: a.subscribeKinds,
			Rebuild: rebuild.Options{LogBytes: a.estimateLogBytes(ctx), LogSize: a.sizeOfKinds, Worker: a.workerCommand(), Logger: a.logger},
			Keeper:  a.snapshots, Bucket: a.snapshotBucket, Buckets: []bucket.Bucket{a.options.Archive, a.snapshotBucket},
			Part: a.erasure, Nodes: a.node.EraseNodes(), Shared: a.bucketOfAllSnapshots(),
		}, req.User, p)
		// Nothing else removes the damaged log from which a log was restored.
		if damaged, _ := filepath.Glob(filepath.Join(a.dir, LogDir+"-damaged-*")); len(damaged) > 0 {
			r.Left = append(r.Left, fmt.Sprintf("what remains of a damaged log: remove %v", damaged))
		}
		if err == nil {
			err = a.Operations.RemoveTexts()
		}
		if err != nil {
			return "", err
		}
		return r.String(), nil
	}, nil
}

// errDiffers is the error of a verification that has found differences. Its report lists them.
var errRowsDiffer = errors.New("rows differ from the log: skein replay repair makes them equal")

// errDamaged is the error of a verification that has found damaged files, even if all rows in the cache are right.
var errFilesDamaged = errors.New("tables on disk are damaged: skein replay rebuild makes new ones")

// foundBy returns the error for a report; nil means that the store is equal to the log.
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

// prepareRebuild returns the operation that builds the next generation of a projection. A request for only some partitions repairs them in
// the live store instead, because a generation is a fold of the whole log.
func (a *Service) prepareRebuild(req operator.OperationRequest) (operation.Func, error) {
	if len(req.Partitions) > 0 {
		return a.prepareRepair(req)
	}
	serving, err := a.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		return rebuild.Rebuild(ctx, serving, a.subscribeKinds, a.rebuildOptions(ctx, req.Share, p))
	}, nil
}

func (a *Service) prepareRollback(req operator.OperationRequest) (operation.Func, error) {
	serving, err := a.findProjection(req.Projection)
	if err != nil {
		return nil, err
	}
	if serving.Status().Previous == 0 {
		return nil, &operator.Refusal{Cause: operator.ErrNotPossible, Text: fmt.Sprintf("there is no previous generation of %s", serving.Name())}
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		return rebuild.Rollback(ctx, serving, a.subscribeKinds, a.rebuildOptions(ctx, req.Share, p))
	}, nil
}

func (a *Service) rebuildOptions(ctx context.Context, share float64, p *replay.Progress) rebuild.Options {
	return rebuild.Options{
		Pace: replay.Pace{Share: share}, Memory: int(a.memory.Rebuild), LogBytes: a.estimateLogBytes(ctx), LogSize: a.sizeOfKinds, Progress: p,
		Worker: a.workerCommand(), Logger: a.logger,
	}
}

// worker returns what starts a process that finishes a build; nil means this process does.
func (a *Service) workerCommand() *worker.Command {
	if a.options.Worker == nil {
		return nil
	}
	c := *a.options.Worker
	c.Settings = a.settings
	return &c
}

// logBytes returns about the size of the log in bytes, archive included; 0 means that the log does not answer.
func (a *Service) estimateLogBytes(ctx context.Context) (n uint64) {
	if head, err := a.log.Head(ctx); err == nil {
		n = uint64(max(0, head.Bytes))
	}
	if a.archive != nil {
		for _, class := range a.archive.Info().Classes {
			n += class.Bytes * maxStreamBytesPerArchiveByte
		}
	}
	return n
}

// logSize returns the part of the log that a fold of these kinds reads. If the stream has the whole log, only the stream is read.
func (a *Service) sizeOfKinds(ctx context.Context, kinds events.KindSet) (size replay.LogSize) {
	head, err := a.log.Head(ctx)
	switch {
	case err == nil && head.First <= 1:
		size.Bytes = uint64(max(0, head.Bytes))
	case a.archive != nil:
		size.Kinds = events.AllKinds
		if kinds&archive.ActivityKinds == 0 {
			size.Kinds &^= archive.ActivityKinds
		}
		for _, class := range a.archive.Info().Classes {
			if class.Class == archive.Facts || kinds&archive.ActivityKinds != 0 {
				size.Events += class.Events
			}
		}
	}
	return size
}

// archiveRatio is the largest measured ratio of the stream's size to that of its archive.
const maxStreamBytesPerArchiveByte = 8

func (a *Service) prepareVerification(req operator.OperationRequest) (operation.Func, error) {
	return a.prepareComparison(req, func(ctx context.Context, serving *live.Live, opt verify.Options) (*verify.Report, error) {
		r, err := verify.Verify(ctx, serving, opt)
		if err == nil {
			err = verificationError(r)
		}
		return r, err
	})
}

func (a *Service) prepareRepair(req operator.OperationRequest) (operation.Func, error) {
	return a.prepareComparison(req, func(ctx context.Context, serving *live.Live, opt verify.Options) (*verify.Report, error) {
		r, err := verify.Repair(ctx, serving, opt)
		if err == nil {
			err = verificationError(r)
		}
		return r, err
	})
}

// prepareComparison returns the operation that compares one projection after the other with the log. After one that differs it continues with the others.
func (a *Service) prepareComparison(
	req operator.OperationRequest, compare func(context.Context, *live.Live, verify.Options) (*verify.Report, error),
) (operation.Func, error) {
	lives := a.Stores
	if req.Projection != "" {
		serving, err := a.findProjection(req.Projection)
		if err != nil {
			return nil, err
		}
		lives = []*live.Live{serving}
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		var text string
		var errs error
		for i, serving := range lives {
			p.SetMore(i < len(lives)-1)
			opt := a.shadowOptions(serving.Name(), "shadow-verify")
			opt.Pace, opt.Progress = replay.Pace{Share: req.Share}, p
			if len(req.Partitions) > 0 {
				opt.Partitions = new(events.Partitions)
			}
			for _, n := range req.Partitions {
				opt.Partitions.Add(uint8(n)) // the gateway has checked that n is at most 255
			}
			r, err := compare(ctx, serving, opt)
			if r != nil {
				a.recordVerified(r)
				if text != "" {
					text += "\n"
				}
				text += r.String()
			}
			if err != nil && !errors.Is(errs, err) {
				errs = errors.Join(errs, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return text, errs
	}, nil
}

// shadowOptions returns the options of a projection's shadow. Shadows that exist at the same time must have different names.
func (a *Service) shadowOptions(projection, name string) verify.Options {
	o := verify.Options{
		Dir: filepath.Join(a.dir, StoresDir, projection, name), Memory: int(a.memory.Shadow), Worker: a.workerCommand(), Logger: a.logger,
		Subscribe: func(from events.Cursor) (store.Subscription, error) { return a.subscribe(from) },
	}
	if serving := a.Store(projection); serving != nil {
		o.Disk = serving.Disk
	}
	for _, newProjection := range all.Constructors(a.settings) {
		if p := newProjection(); p.Name() == projection {
			kinds := events.Kinds(p.Kinds()...)
			o.New = newProjection
			o.LogSize = func(ctx context.Context) replay.LogSize { return a.sizeOfKinds(ctx, kinds) }
			o.Subscribe = func(from events.Cursor) (store.Subscription, error) { return a.subscribeKinds(from, kinds) }
		}
	}
	return o
}

func (a *Service) prepareSnapshot(req operator.OperationRequest) (operation.Func, error) {
	of := req.Projections
	if len(of) == 0 && req.Projection != "" {
		of = []string{req.Projection}
	}
	return func(ctx context.Context, p *replay.Progress) (string, error) {
		r, err := a.snapshots.Take(ctx, req.Name, of, p)
		if err != nil {
			return "", err
		}
		return r.String(), nil
	}, nil
}

// copied returns the stores of which snapshots are taken: the generations that serve.
func (a *Service) servingStores() (stores []snapshot.Store) {
	for _, serving := range a.Stores {
		if s := serving.Serving(); s != nil {
			stores = append(stores, s)
		}
	}
	return stores
}

func (a *Service) findProjection(projection string) (*live.Live, error) {
	if serving := a.Store(projection); serving != nil {
		return serving, nil
	}
	var names []string
	for _, s := range a.Stores {
		names = append(names, s.Name())
	}
	slices.Sort(names)
	return nil, &operator.Refusal{
		Cause: operator.ErrNotPossible, Text: fmt.Sprintf("there is no projection %q, only %v", projection, names),
	}
}

// sourceOf returns a function that subscribes a fold of only these kinds.
func (a *Service) subscribeKinds(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = a.log.Start()
	}
	sub, err := a.hub.SubscribeKinds(from, kinds)
	if err != nil {
		return nil, err
	}
	return subscription{sub, a.hub, nil}, nil
}
