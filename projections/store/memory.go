package store

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// This file has the two halves of a build (package build). A build reads the log once, in order,
// with a Sequencer, which makes all decisions that need the whole log, such as whether a backfill
// is a repeat. It then folds each partition in memory with a MemoryFold: by the law of partitions
// (I13) the rows of one partition are a fold of the events that are delivered to it. A MemoryFold
// starts without rows and no database is below it, so it reads nothing from disk, and the build
// writes each row once, when the partition is folded.

// MemoryFold folds events that a [Sequencer] has accepted, for some partitions, in memory. It
// begins with [MemoryFold.Begin], or with [MemoryFold.BeginOnDisk] for partitions that do not fit
// into memory. Only one goroutine may use it.
type MemoryFold struct{ store *Store }

// Begin begins a fold without rows, for the given partitions of the log with this id. It drops the
// rows of an earlier fold and reuses their memory.
func (m *MemoryFold) Begin(p projections.Projection, parts *events.Partitions, log events.LogID) error {
	var used overlay.Overlay
	if m.store != nil {
		used = *m.store.fold.batch.Rows()
	}

	m.store = newMemoryStore(p, parts)
	m.store.fold.batch.BeginLog(log)
	err := m.store.fold.init(m.store)
	m.store.fold.batch.Rows().Reuse(&used)
	return err
}

// BeginOnDisk begins a fold into a new store in a directory that does not exist, which commits as a
// live store does. The caller must call [MemoryFold.Close].
func (m *MemoryFold) BeginOnDisk(fs FS, dir string, p projections.Projection, parts *events.Partitions, log events.LogID) (err error) {
	m.store, err = Open(Options{FS: fs, Dir: dir, Projection: p, Partitions: parts})
	if err == nil {
		m.store.fold.batch.BeginLog(log)
	}
	return err
}

// Close closes the store that [MemoryFold.BeginOnDisk] has opened. The iterator of
// [MemoryFold.Rows] must be closed before.
func (m *MemoryFold) Close() error { return m.store.Close() }

// newMemoryStore returns a store without a database, of which only the fold is used.
func newMemoryStore(p projections.Projection, parts *events.Partitions) *Store {
	held := projections.NilIfAll(parts)
	return &Store{
		opts: Options{
			Projection: p,
			Partitions: held,
			// A batch that is never full is never committed. overlay.MaxBatch bounds how much it
			// may hold.
			Bounds: Bounds{BatchBytes: math.MaxInt / 4, KeepBytes: 2 << 30},
		},
		fingerprint: projections.FingerprintOfPartitions(p, parts),
		merger:      mergerOf(p),
		holding:     projections.Holding{Projection: p, Held: held},
	}
}

// Fold folds one event. logTime is the log time at the end of its envelope.
func (m *MemoryFold) Fold(ev *events.Event, logTime events.Micros) error {
	f := &m.store.fold
	f.batch.BeginEnvelope(ev.Seq, logTime)
	f.batch.BeginEvent(ev.Slot, 0)

	if ev.Kind == events.BackfillClosed {
		f.imports.markClosed(ev.Source)
	}
	if !f.appliedKinds.Has(ev.Kind) {
		return nil
	}
	if err := f.applyEvent(ev); err != nil {
		return err
	}
	f.batch.Rows().ForgetDeleted()

	// Only a fold on disk ever reaches the size of its batch.
	if f.batch.Rows().Size() < m.store.opts.Bounds.BatchBytes {
		return nil
	}
	return f.commitBatch(progress{})
}

// Tick tells a [projections.ClockTicker] projection the log time of an event that is delivered to
// other partitions only. It must be called for the last such event at least, because the rows may
// depend on how much log time has passed.
func (m *MemoryFold) Tick(now events.Micros) error {
	clocked, ok := m.store.opts.Projection.(projections.ClockTicker)
	if !ok {
		return nil
	}
	b := &m.store.fold.batch
	if err := clocked.Tick(now, &b.Batch); err != nil {
		return err
	}
	return b.FirstMisuse()
}

// Memory returns about the number of bytes that the rows take in memory.
func (m *MemoryFold) Memory() int { return m.store.fold.batch.Rows().Memory() }

// Rows returns an iterator over all rows of the fold.
func (m *MemoryFold) Rows() projections.Iterator { return m.store.fold.batch.Iter(nil, nil) }

// Sequencer reads a log for a build, in order. It decides which backfills count, keeps the
// malformed events, and so folds the rows of the store as a whole, which every store has, whichever
// partitions it holds. Only one goroutine may use it.
type Sequencer struct {
	store *Store
	// lastLogTime is the log time of the last event that the projection reads.
	lastLogTime events.Micros
}

// NewSequencer returns the sequencer of a store that holds the given partitions; nil means all. It
// calls accepted with every event that the projection reads and with every event that closes
// backfills, together with the log time at the end of the event's envelope. It does not call it
// with backfills that are ignored.
func NewSequencer(
	p projections.Projection, held *events.Partitions, accepted func(ev *events.Event, logTime events.Micros) error,
) (*Sequencer, error) {
	// The sequencer itself folds no partition, but the store that is built holds some, and its
	// fingerprint names them.
	s := &Sequencer{store: newMemoryStore(p, &events.Partitions{})}
	s.store.fingerprint = projections.FingerprintOfPartitions(p, held)

	f := &s.store.fold
	if err := f.init(s.store); err != nil {
		return nil, err
	}
	f.onAccepted = func(ev *events.Event, logTime events.Micros) error {
		switch {
		case f.appliedKinds.Has(ev.Kind):
			s.lastLogTime = f.logTime(ev)
		case ev.Kind != events.BackfillClosed:
			return nil
		}
		return accepted(ev, logTime)
	}
	return s, nil
}

// Restore makes a new sequencer continue after the envelopes that another one has read. rows are the
// keys and values of its [Sequencer.Rows], and lastTick is its [Sequencer.LastTick]. Restore fails
// with [projections.ErrCorrupt] if these are not the rows of a sequencer.
func (s *Sequencer) Restore(rows [][2][]byte, lastTick events.Micros) (err error) {
	f := &s.store.fold
	for _, row := range rows {
		f.batch.SetRow(row[0], row[1])
	}
	if err := f.loadRuntimeRows(); err != nil {
		return err
	}
	checkpoint, _, err := f.batch.Get(checkpointKey)
	if err != nil {
		return err
	}
	f.cursor, _, err = parseCheckpoint(checkpoint)
	s.lastLogTime = lastTick
	return err
}

// Fold reads envelopes, which must follow those of the last call in the log.
func (s *Sequencer) Fold(envs []*events.Envelope) error {
	for _, env := range envs {
		if err := s.store.fold.foldEnvelope(env); err != nil {
			return err
		}
	}
	return nil
}

// Cursor returns the position after the last envelope.
func (s *Sequencer) Cursor() events.Cursor { return s.store.fold.cursor }

// LastTick returns the log time of the last event that the projection reads, or 0 if there was
// none.
func (s *Sequencer) LastTick() events.Micros { return s.lastLogTime }

// Rows returns an iterator over the rows of the store as a whole. The rows of the runtime,
// including the position, are among them.
func (s *Sequencer) Rows() projections.Iterator {
	f := &s.store.fold
	f.imports.writeOffsets(&f.batch)
	f.batch.SetRow(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion))
	f.batch.SetRow(fingerprintKey, s.store.fingerprint.Encode())
	f.batch.SetRow(checkpointKey, encodeCheckpoint(f.cursor, progress{}))
	return f.batch.Iter(nil, nil)
}
