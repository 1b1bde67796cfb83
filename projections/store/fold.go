package store

import (
	"fmt"
	"runtime/debug"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fold is the fold of a store with its state, which load reads back from rows after a restart (I3).
// Store.folding guards it.
type fold struct {
	store *Store
	// readKinds has the kinds of events that the fold does not skip. These are appliedKinds, which
	// the projection reads, and the kinds that the store itself handles: the end of backfills, and
	// the deletion of users, whose ids are erased from rejects.
	readKinds    events.KindSet
	appliedKinds events.KindSet
	batch        projections.BatchControl
	// routeScratch is reused for the route of every event, see [projections.Holding.Delivers].
	routeScratch events.Partitions

	// cursor is the position after the last whole envelope. progress says how far the next envelope
	// is committed. It is zero if no part of that envelope is.
	cursor   events.Cursor
	progress progress
	imports  imports
	rejects  uint64

	// onAccepted, if not nil, is called with every event of readKinds before the event is folded,
	// but not with backfills that are ignored. logTime is the log time at the end of the envelope.
	// An error of onAccepted fails the fold.
	onAccepted func(ev *events.Event, logTime events.Micros) error

	// hasUnpublished is true while whole envelopes are folded that no view shows yet.
	// hasUnpublishedRows is true while rows are committed that no view shows yet.
	hasUnpublished, hasUnpublishedRows bool
	// envelopesSinceCheckpoint counts the envelopes that were folded since the checkpoint row was
	// last written.
	envelopesSinceCheckpoint int

	// stats describes the current call of Fold.
	stats FoldInfo
}

// init connects the batch to the rows of the store, and reads those that the fold also keeps in
// memory. It does not read the position.
func (f *fold) init(s *Store) error {
	f.store = s
	f.appliedKinds = events.Kinds(s.opts.Projection.Kinds()...)
	f.readKinds = f.appliedKinds | events.Kinds(events.BackfillClosed, events.UserDeleted)

	f.batch.Rows().Init(s.db, s.opts.Bounds.KeepBytes, overlayMerge(s.merger))
	f.batch.Init(f, projections.BatchOptions{
		Holding:    &s.holding,
		Merges:     s.merger != nil,
		StepBytes:  s.opts.Bounds.BatchBytes,
		QueryCache: s.queryCache,
	})
	return f.loadRuntimeRows()
}

// load initializes the fold and reads the position. A store without a checkpoint starts at the zero
// cursor.
func (f *fold) load(s *Store) error {
	if err := f.init(s); err != nil {
		return err
	}

	row, err := s.readRow(checkpointKey)
	if err != nil || row == nil {
		return err
	}
	f.cursor, f.progress, err = parseCheckpoint(row)
	return err
}

// loadRuntimeRows reads the rows of the store of which the fold keeps a copy in memory.
func (f *fold) loadRuntimeRows() (err error) {
	if err = f.imports.load(&f.batch); err != nil {
		return err
	}
	f.rejects, err = loadRejects(&f.batch)
	return err
}

// Fold folds envelopes. They must be consecutive in the log and continue at the cursor of the
// store. Fold skips envelopes at or below the cursor, because they are folded already. When Fold
// returns, views show all of the envelopes. Perhaps only some of them are on disk, or none, but
// never one without those before it (I3).
//
// An error is final: it stops the projection, and the store answers nothing until it is opened
// again.
func (s *Store) Fold(envs []*events.Envelope) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.StopError(); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		return fmt.Errorf("%w: the store is open for reading only", projections.ErrStopped)
	}
	if err := s.fold.foldEnvelopes(envs); err != nil {
		return s.state.Fail(err)
	}
	return s.state.StopError()
}

// foldEnvelopes folds envelopes and commits whenever the batch is full and at the end.
func (f *fold) foldEnvelopes(envs []*events.Envelope) error {
	f.stats = FoldInfo{}
	for _, env := range envs {
		if env.Seq() <= f.cursor.Seq {
			continue
		}

		// The previous envelope is complete here, so a caller of ViewAt gets exactly its position.
		if err := f.publishForWaiters(env.Seq()); err != nil {
			return err
		}
		if err := f.foldEnvelope(env); err != nil {
			return fmt.Errorf("envelope %d: %w", env.Seq(), err)
		}
		if f.batch.Rows().Size() >= f.store.opts.Bounds.BatchBytes {
			if err := f.commit(); err != nil {
				return err
			}
		}
	}

	if err := f.commit(); err != nil {
		return err
	}
	if err := f.publishForWaiters(f.cursor.Seq + 1); err != nil {
		return err
	}

	if notify := f.store.opts.Listener.Folded; notify != nil {
		notify(f.stats)
	}
	return nil
}

// foldEnvelope folds one envelope into the batch and moves the cursor behind it. It resumes an
// envelope that a crash has interrupted.
func (f *fold) foldEnvelope(env *events.Envelope) error {
	if f.cursor.Seq > 0 && (env.Cursor.Log != f.cursor.Log || env.Cursor.Epoch < f.cursor.Epoch) {
		return fmt.Errorf("%w: log %x epoch %d, the store is at log %x epoch %d", projections.ErrLog,
			env.Cursor.Log, env.Cursor.Epoch, f.cursor.Log, f.cursor.Epoch)
	}

	// After a crash inside an envelope, the rest of it must be folded before any later envelope.
	var resume progress
	if f.progress != (progress{}) {
		switch {
		case env.Seq() == f.progress.Seq:
			resume = f.progress
		case env.Seq() > f.progress.Seq:
			return fmt.Errorf("%w: envelope %d, which was folded in part, is missing", projections.ErrLog, f.progress.Seq)
		}
	}

	b := &f.batch
	b.BeginLog(env.Cursor.Log)
	b.BeginEnvelope(env.Seq(), env.Cursor.LastTime)
	if env.Kinds&f.readKinds != 0 {
		if err := f.foldEvents(env, resume); err != nil {
			return err
		}
	}
	f.writeRejects(env)

	// The envelope is complete.
	if env.Seq() == f.progress.Seq {
		f.progress = progress{}
	}
	f.cursor = env.Cursor
	f.hasUnpublished = true
	f.envelopesSinceCheckpoint++
	f.stats.count(env)
	return nil
}

// foldEvents folds the events of an envelope. It starts at the event that a crash has interrupted,
// if there is one.
func (f *fold) foldEvents(env *events.Envelope, resume progress) error {
	b := &f.batch
	for i := range env.Events {
		ev := &env.Events[i]
		if ev.Slot < resume.Slot || !f.readKinds.Has(ev.Kind) {
			continue
		}

		// Commit inside an envelope only when the batch is twice as large as it should be. Views
		// cannot show a part of an envelope, so a commit at its end, which they can show, is
		// better.
		if b.Rows().Size() >= 2*f.store.opts.Bounds.BatchBytes {
			if err := f.commitProgress(progress{Seq: env.Seq(), Slot: ev.Slot}); err != nil {
				return err
			}
		}

		step := uint32(0)
		if ev.Slot == resume.Slot {
			step = resume.Step
		}

		b.BeginEvent(ev.Slot, step)
		if err := f.foldEvent(ev); err != nil {
			return fmt.Errorf("slot %d, %s: %w", ev.Slot, ev.Kind, err)
		}
		f.stats.Events++
	}
	return nil
}

// foldEvent folds one event, or ignores it if it is a backfill that was folded before or whose
// source is closed.
func (f *fold) foldEvent(ev *events.Event) error {
	if ev.Backfill && !f.imports.accepts(ev) {
		f.stats.Ignored++
		return nil
	}

	if f.onAccepted != nil {
		if err := f.onAccepted(ev, f.batch.LogTime()); err != nil {
			return err
		}
	}

	if ev.Kind == events.BackfillClosed {
		f.imports.closeSource(ev.Source, &f.batch)
	}
	if f.appliedKinds.Has(ev.Kind) {
		if err := f.applyEvent(ev); err != nil {
			return err
		}
	}
	if ev.Backfill {
		f.imports.recordFolded(ev)
	}

	if ev.Kind == events.UserDeleted {
		return f.eraseRejects(ev.User)
	}
	return nil
}

// applyEvent runs Tick of the projection, and then Apply if [projections.Holding.Delivers] returns
// true. It turns a panic into an error, so that rows that no fold can have written stop this
// projection and not the process (I11).
func (f *fold) applyEvent(ev *events.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()

	if clocked, ok := f.store.opts.Projection.(projections.ClockTicker); ok {
		if err = clocked.Tick(f.logTime(ev), &f.batch.Batch); err != nil {
			return err
		}
	}

	if f.store.holding.Delivers(ev, &f.routeScratch) {
		if err = f.store.opts.Projection.Apply(*ev, &f.batch.Batch); err != nil {
			return err
		}
	}
	return f.batch.EndEvent()
}

// logTime returns the time at which the log received an event. A backfilled event has an older time
// of its own, so the time at the end of its envelope is used.
func (f *fold) logTime(ev *events.Event) events.Micros {
	if ev.Backfill {
		return f.batch.LogTime()
	}
	return ev.Time
}

// commit commits the rows of whole envelopes together with the position, and publishes the
// position. If no row was written since the last published position, it only publishes. The
// position alone is written less often, because a crash then costs only reading these envelopes
// again (see [Bounds.FlushEnvelopes]).
func (f *fold) commit() error {
	if !f.hasUnpublished {
		return nil
	}
	f.imports.writeOffsets(&f.batch)
	if f.batch.Rows().IsDirty() || f.hasUnpublishedRows {
		if err := f.commitBatch(f.progress); err != nil {
			return err
		}
	}
	f.publishIfWhole()
	return nil
}

// publishIfWhole makes the position visible to queries, unless it is inside an envelope.
func (f *fold) publishIfWhole() {
	if f.progress == (progress{}) {
		f.store.publish(f.hasUnpublishedRows)
		f.hasUnpublished = false
		f.hasUnpublishedRows = false
	}
}

// commitProgress commits the rows up to a point inside an envelope. Views continue to show the
// position before the envelope.
func (f *fold) commitProgress(p progress) error {
	f.progress = p
	f.imports.writeOffsets(&f.batch)
	return f.commitBatch(p)
}

// CommitStep implements [projections.BatchHost].
func (f *fold) CommitStep(seq uint64, slot uint16, step uint32) error {
	return f.commitProgress(progress{Seq: seq, Slot: slot, Step: step})
}

// BackfillsClosed implements [projections.BatchHost].
func (f *fold) BackfillsClosed() bool { return f.imports.allClosed }

// NextVersion implements [projections.BatchHost].
func (f *fold) NextVersion() uint64 { return f.store.version + 1 }

// commitBatch commits the batch, and then waits if the disk does not keep up. The checkpoint is a
// row of the same batch, so position and rows never differ on disk (I3). p is zero if no envelope
// is folded in part.
func (f *fold) commitBatch(p progress) error {
	f.batch.SetRow(checkpointKey, encodeCheckpoint(f.cursor, p))

	f.stats.Commits++
	f.stats.Bytes += f.batch.Rows().Size()
	f.store.flush.recordWrite(f.batch.Rows().Size())

	if err := f.batch.Rows().Commit(); err != nil {
		return err
	}
	f.hasUnpublishedRows = true
	f.envelopesSinceCheckpoint = 0

	fl := &f.store.flush
	fl.recordFinishedFlush(f.store)
	if f.batch.Rows().IsFlushUseful() {
		if err := fl.startFlush(f.store); err != nil {
			return err
		}
	}

	// Wait after every commit and not only between envelopes, because a single event may write more
	// than memory holds.
	return fl.waitForDisk(f.store)
}
