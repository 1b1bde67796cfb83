package store

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// What a build folds stands in memory, over nothing: it begins with no row, and each row is written once, when all is folded.
// By the law of partitions (I13) the rows of one partition are a fold of the events that are delivered to it. Decisions that need the
// whole log, such as whether a backfill is a repeat, are made before, in the order of the log, by a [Sequencer].

// MemoryFold is the fold of events that a [Sequencer] has accepted for some partitions. It begins with [MemoryFold.Begin], or with
// [MemoryFold.BeginOnDisk] for what does not fit into memory, and belongs to one goroutine.
type MemoryFold struct{ store *Store }

// Begin begins a fold into no rows, for the given partitions, of the log with this id. It forgets earlier rows, and reuses their memory.
func (m *MemoryFold) Begin(p projections.Projection, parts *events.Partitions, log events.LogID) error {
	var used overlay.Overlay
	if m.store != nil {
		used = *m.store.fold.batch.Rows()
	}
	m.store = memoryStore(p, parts)
	m.store.fold.batch.BeginLog(log)
	err := m.store.fold.init(m.store)
	m.store.fold.batch.Rows().Reuse(&used)
	return err
}

// BeginOnDisk makes it a fold into a store of its own, in a directory that does not exist, as a live one folds. It must be closed.
func (m *MemoryFold) BeginOnDisk(fs FS, dir string, p projections.Projection, parts *events.Partitions, log events.LogID) (err error) {
	m.store, err = Open(Options{FS: fs, Dir: dir, Projection: p, Partitions: parts})
	if err == nil {
		m.store.fold.batch.BeginLog(log)
	}
	return err
}

// Close closes what [MemoryFold.BeginOnDisk] has opened. Its rows must be read by then.
func (m *MemoryFold) Close() error { return m.store.Close() }

func memoryStore(p projections.Projection, parts *events.Partitions) *Store {
	// A batch that is never full is never committed; overlay.MaxBatch bounds what it may hold.
	bounds := Bounds{BatchBytes: math.MaxInt / 4, KeepBytes: 2 << 30}
	return &Store{
		opts: Options{Projection: p, Partitions: projections.NilIfAll(parts), Bounds: bounds}, fingerprint: projections.FingerprintOfPartitions(p, parts),
		merger: mergerOf(p), holding: projections.Holding{Projection: p, Held: projections.NilIfAll(parts)},
	}
}

// Fold folds one event. The time is the log time at the end of its envelope.
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
	if err := f.applyEvent(ev); err != nil || f.batch.Rows().Size() < m.store.opts.Bounds.BatchBytes {
		return err
	}
	return f.commitBatch(progress{})
}

// Tick lets the log time go by that events for other partitions take.
func (m *MemoryFold) Tick(now events.Micros) error {
	clocked, ok := m.store.opts.Projection.(projections.Clocked)
	if !ok {
		return nil
	}
	b := &m.store.fold.batch
	if err := clocked.Tick(now, &b.Batch); err != nil {
		return err
	}
	return b.Misuse()
}

// Rows returns an iterator over all rows.
func (m *MemoryFold) Rows() projections.Iterator { return m.store.fold.batch.Iter(nil, nil) }

// Sequencer reads a log for a build. It accepts and refuses backfills, keeps what was rejected, and folds the rows of the store as a
// whole: those that every store has, whichever partitions it holds. It belongs to one goroutine.
type Sequencer struct {
	store *Store
	// ticked is the log time of the last event that the projection reads.
	ticked events.Micros
}

// NewSequencer returns the sequencer of a store of some partitions (nil: all) that calls accepted with every event that counts, of the
// kinds that the projection reads and of those that end backfills, with the log time at the end of its envelope.
func NewSequencer(p projections.Projection, held *events.Partitions, accepted func(ev *events.Event, logTime events.Micros) error) (*Sequencer, error) {
	s := &Sequencer{store: memoryStore(p, &events.Partitions{})}
	s.store.fingerprint = projections.FingerprintOfPartitions(p, held)
	f := &s.store.fold
	if err := f.init(s.store); err != nil {
		return nil, err
	}
	f.onAccepted = func(ev *events.Event, logTime events.Micros) error {
		switch {
		case f.appliedKinds.Has(ev.Kind):
			s.ticked = f.logTime(ev)
		case ev.Kind != events.BackfillClosed:
			return nil
		}
		return accepted(ev, logTime)
	}
	return s, nil
}

// Fold passes over envelopes, which must follow each other in the log.
func (s *Sequencer) Fold(envs []*events.Envelope) error {
	for _, env := range envs {
		if err := s.store.fold.foldEnvelope(env); err != nil {
			return err
		}
	}
	return nil
}

// Cursor returns where the last envelope ends.
func (s *Sequencer) Cursor() events.Cursor { return s.store.fold.cursor }

// Ticked returns the log time of the last event that the projection reads; 0 means there was none.
func (s *Sequencer) Ticked() events.Micros { return s.ticked }

// Rows returns an iterator over the rows of the store as a whole, those of the runtime and the position among them.
func (s *Sequencer) Rows() projections.Iterator {
	f := &s.store.fold
	f.imports.writeOffsets(&f.batch)
	f.batch.SetRow(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion))
	f.batch.SetRow(fingerprintKey, s.store.fingerprint.Encode())
	f.batch.SetRow(checkpointKey, encodeCheckpoint(f.cursor, progress{}))
	return f.batch.Iter(nil, nil)
}
