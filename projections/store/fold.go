package store

import (
	"fmt"
	"runtime/debug"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fold is the state of folding: all of it stands in rows too, so that it is found again (I3).
type fold struct {
	store *Store
	// reads are the kinds that matter: those of the projection, and the end of backfills.
	readKinds    events.KindSet
	appliedKinds events.KindSet
	batch        projections.BatchControl
	// to is scratch.
	routeScratch events.Partitions

	// cursor is where the last whole envelope ends, progress how far the next one got.
	cursor   events.Cursor
	progress progress
	imports  imports
	rejects  uint64

	// accepted is called with every event that will be folded, before it is; nil means that nothing needs that.
	onAccepted func(ev *events.Event, logTime events.Micros) error

	// moved reports that whole envelopes are not visible yet, hidden that rows are committed which are not.
	hasUnpublished, hasUnpublishedRows bool
	// unsaved counts the envelopes since the checkpoint was written.
	envelopesSinceCheckpoint int

	stats FoldInfo
}

// begin is ready to fold over the rows of the store, without a position.
func (f *fold) init(s *Store) error {
	f.store = s
	f.appliedKinds = events.Kinds(s.opts.Projection.Kinds()...)
	f.readKinds = f.appliedKinds | events.Kinds(events.BackfillClosed, events.UserDeleted)
	f.batch.Rows().Init(s.db, s.opts.Bounds.KeepBytes, overlayMerge(s.merger))
	f.batch.Init(f, projections.BatchOptions{
		Holding: &s.holding, Merges: s.merger != nil, StepBytes: s.opts.Bounds.BatchBytes, QueryCache: s.queryCache,
	})
	return f.loadRuntimeRows()
}

// load finds the state again, or begins.
func (f *fold) load(s *Store) error {
	if err := f.init(s); err != nil {
		return err
	}
	row, err := s.readRow(checkpointKey)
	if err != nil {
		return err
	}
	if row != nil {
		if f.cursor, f.progress, err = parseCheckpoint(row); err != nil {
			return err
		}
	}
	return nil
}

// recall reads the rows of which the runtime keeps a copy in memory.
func (f *fold) loadRuntimeRows() (err error) {
	if err = f.imports.load(&f.batch); err != nil {
		return err
	}
	f.rejects, err = loadRejects(&f.batch)
	return err
}

// Fold folds envelopes, which must follow each other in the log from the cursor of the store on. Those at or below
// the cursor were folded before and are passed over. When it returns, all of them are visible, and all or a prefix
// is on disk (I3).
//
// An error is final: the projection is stopped, and the store shows nothing more until it is opened again.
func (s *Store) Fold(envs []*events.Envelope) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.Stopped(); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		return fmt.Errorf("%w: the store is open for reading only", projections.ErrStopped)
	}
	if err := s.fold.foldEnvelopes(envs); err != nil {
		return s.state.Fail(err)
	}
	return s.state.Stopped()
}

func (f *fold) foldEnvelopes(envs []*events.Envelope) error {
	f.stats = FoldInfo{}
	for _, env := range envs {
		if env.Seq() <= f.cursor.Seq {
			continue
		}
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
	if folded := f.store.opts.Listener.Folded; folded != nil {
		folded(f.stats)
	}
	return nil
}

func (f *fold) foldEnvelope(env *events.Envelope) error {
	if f.cursor.Seq > 0 && (env.Cursor.Log != f.cursor.Log || env.Cursor.Epoch < f.cursor.Epoch) {
		return fmt.Errorf("%w: log %x epoch %d, the store is at log %x epoch %d", projections.ErrLog,
			env.Cursor.Log, env.Cursor.Epoch, f.cursor.Log, f.cursor.Epoch)
	}
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
	f.writeRejects(env.Rejects)
	if env.Seq() == f.progress.Seq {
		f.progress = progress{}
	}
	f.cursor = env.Cursor
	f.hasUnpublished = true
	f.envelopesSinceCheckpoint++
	f.stats.count(env)
	return nil
}

// events folds the events of an envelope from the slot on where a crash has cut it.
func (f *fold) foldEvents(env *events.Envelope, resume progress) error {
	b := &f.batch
	for i := range env.Events {
		ev := &env.Events[i]
		if ev.Slot < resume.Slot || !f.readKinds.Has(ev.Kind) {
			continue
		}
		// Many small events are better cut at the end of their envelope, where queries can see them.
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

// apply runs the fold of the projection. A panic in it is an impossible row: it stops this projection, not the process.
func (f *fold) applyEvent(ev *events.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if clocked, ok := f.store.opts.Projection.(projections.Clocked); ok {
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

// logTime is when an event came: its own time, or of a backfilled one that of the end of its envelope.
func (f *fold) logTime(ev *events.Event) events.Micros {
	if ev.Backfill {
		return f.batch.LogTime()
	}
	return ev.Time
}

// commit commits the rows of whole envelopes together with the position, and shows them. The position alone is kept
// in memory: on disk it is needed only as often as it saves reading again (see [Bounds.FlushEnvelopes]).
func (f *fold) commit() error {
	if !f.hasUnpublished {
		return nil
	}
	f.imports.writeOffsets(&f.batch)
	if f.batch.Rows().Dirty() || f.hasUnpublishedRows {
		if err := f.commitBatch(f.progress); err != nil {
			return err
		}
	}
	f.publishIfWhole()
	return nil
}

// publish shows the position, if it is a whole one.
func (f *fold) publishIfWhole() {
	if f.progress == (progress{}) {
		f.store.publish(f.hasUnpublishedRows)
		f.hasUnpublished, f.hasUnpublishedRows = false, false
	}
}

// commitProgress commits rows up to a slot inside an envelope. Queries continue to see the position before it.
func (f *fold) commitProgress(p progress) error {
	f.progress = p
	f.imports.writeOffsets(&f.batch)
	return f.commitBatch(p)
}

// CommitStep is part of [projections.BatchHost].
func (f *fold) CommitStep(seq uint64, slot uint16, step uint32) error {
	return f.commitProgress(progress{Seq: seq, Slot: slot, Step: step})
}

// BackfillsClosed is part of [projections.BatchHost].
func (f *fold) BackfillsClosed() bool { return f.imports.allClosed }

// NextVersion is part of [projections.BatchHost].
func (f *fold) NextVersion() uint64 { return f.store.version + 1 }

// write commits the batch with the checkpoint in it (I3).
func (f *fold) commitBatch(p progress) error {
	f.batch.SetRow(checkpointKey, encodeCheckpoint(f.cursor, p))
	f.stats.Commits++
	f.stats.Bytes += f.batch.Rows().Size()
	f.store.flush.recordWrite(f.batch.Rows().Size())
	if err := f.batch.Rows().Commit(); err != nil {
		return err
	}
	f.hasUnpublishedRows, f.envelopesSinceCheckpoint = true, 0
	fl := &f.store.flush
	if fl.recordFinishedFlush(f.store); f.batch.Rows().WantsFlush() {
		if err := fl.startFlush(f.store); err != nil {
			return err
		}
	}
	// One event may write more than memory holds.
	return fl.waitForDisk(f.store)
}
