package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Repair collects the changes of one [Store.Repair] in memory until they are committed.
type Repair struct {
	rows []repairedRow
	err  error
	held events.Partitions
}

type repairedRow struct {
	key, value []byte
	deleted    bool
}

// errNotRepairable is returned for rows that only the store itself may write.
var errNotRepairable = errors.New("store: the checkpoint, the fingerprint and the format are never repaired")

// Set writes a row. Key and value are copied.
func (m *Repair) Set(key, value []byte) {
	m.add(repairedRow{key: bytes.Clone(key), value: bytes.Clone(value)})
}

// Delete removes a row. It does nothing if there is no such row. Key is copied.
func (m *Repair) Delete(key []byte) { m.add(repairedRow{key: bytes.Clone(key), deleted: true}) }

// Partitions returns the partitions that the store holds. A repair must not write rows of others.
func (m *Repair) Partitions() events.Partitions { return m.held }

// Len returns the number of changes so far.
func (m *Repair) Len() int { return len(m.rows) }

func (m *Repair) add(r repairedRow) {
	if !Repairable(r.key) {
		m.err = fmt.Errorf("%w: key %x", errNotRepairable, r.key)
		return
	}
	m.rows = append(m.rows, r)
}

// Repairable reports whether [Store.Repair] may write a row. It may write every row except the
// position, the fingerprint and the format.
func Repairable(key []byte) bool {
	return !bytes.Equal(key, checkpointKey) && !bytes.Equal(key, fingerprintKey) && !bytes.Equal(key, formatKey)
}

// Repair overwrites damaged rows of an open store. It stops the fold at a whole position and calls
// heal with this position and a reader of the rows on disk and in memtables, which bypasses the
// caches of the fold. It commits the changes of heal together with the position (I3), publishes
// them, and drops what the store and the projection cache of rows. Open views do not change, and
// new views can be opened all the time. After a crash the store has all changes of the repair or
// none of them.
//
// Repair cannot check the new rows. They must be what a fold of the log up to the position would
// write (I1). heal must be quick, because the fold waits for it, and the changes must fit into
// memory, so a large repair takes several calls.
//
// If heal returns an error, nothing is changed. An error of the disk is final, as in [Store.Fold].
// Repair fails with [projections.ErrNotReady] while an event that a crash has interrupted is not
// folded to its end.
func (s *Store) Repair(
	ctx context.Context, heal func(at events.Cursor, rows projections.Reader, m *Repair) error,
) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := errors.Join(ctx.Err(), s.state.StopError()); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		return fmt.Errorf("%w: the store is open for reading only", projections.ErrStopped)
	}
	if s.fold.progress != (progress{}) {
		return projections.ErrNotReady
	}

	m, err := s.collectRepair(heal)
	if err != nil || len(m.rows) == 0 {
		return err
	}
	if err := s.fold.commitRepair(m); err != nil {
		return s.state.Fail(fmt.Errorf("repair: %w", err))
	}
	return s.state.StopError()
}

// collectRepair calls heal with a view and returns the changes. The caller holds Store.folding, so
// the position of the view is the position of the fold.
func (s *Store) collectRepair(heal func(at events.Cursor, rows projections.Reader, m *Repair) error) (m *Repair, err error) {
	v, err := s.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	m = &Repair{held: s.Holds()}
	err = heal(v.Cursor(), v, m)
	return m, errors.Join(err, m.err)
}

// commitRepair commits the changes with the checkpoint, and drops everything that is cached of
// rows.
func (f *fold) commitRepair(m *Repair) error {
	s := f.store

	// Write to Pebble directly. The overlay would skip a write that equals its cached copy of the
	// row, but the row on disk may be the damaged one.
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }()
	for _, r := range m.rows {
		if r.deleted {
			_ = b.Delete(r.key, nil) // fails only on an indexed batch, as Set does
		} else {
			_ = b.Set(r.key, r.value, nil)
		}
	}
	_ = b.Set(checkpointKey, encodeCheckpoint(f.cursor, f.progress), nil)
	s.flush.recordWrite(b.Len())
	if err := s.db.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	f.hasUnpublishedRows = true
	f.envelopesSinceCheckpoint = 0

	// Rows in memory may be outdated now: those of the overlay, of the projection, of queries, and
	// of the store itself.
	f.batch.Rows().DatabaseChanged()
	if dropper, ok := s.opts.Projection.(projections.CacheDropper); ok {
		dropper.DropCache()
	}
	if s.queryCache != nil {
		s.queryCache.Repaired(s.version + 1)
	}
	if err := f.loadRuntimeRows(); err != nil {
		return err
	}

	f.publishIfWhole()
	return s.flush.waitForDisk(s)
}
