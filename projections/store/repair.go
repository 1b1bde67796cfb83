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

// Repair is what [Store.Repair] changes. The rows are kept in memory until they are committed.
type Repair struct {
	rows []repairedRow
	err  error
	held events.Partitions
}

type repairedRow struct {
	key, value []byte
	deleted    bool
}

// errNotRepairable is returned for the rows that only the runtime may write.
var errNotRepairable = errors.New("projections: the checkpoint, the fingerprint and the format are never repaired")

// Set writes a row. Key and value are copied.
func (m *Repair) Set(key, value []byte) {
	m.add(repairedRow{key: bytes.Clone(key), value: bytes.Clone(value)})
}

// Delete removes a row, if there is one.
func (m *Repair) Delete(key []byte) { m.add(repairedRow{key: bytes.Clone(key), deleted: true}) }

// Partitions returns the partitions that the store holds. Rows of others do not belong into it.
func (m *Repair) Partitions() events.Partitions { return m.held }

// Len is how many rows were set and deleted so far.
func (m *Repair) Len() int { return len(m.rows) }

func (m *Repair) add(r repairedRow) {
	if !Repairable(r.key) {
		m.err = fmt.Errorf("%w: key %x", errNotRepairable, r.key)
		return
	}
	m.rows = append(m.rows, r)
}

// Repairable reports whether [Store.Repair] may write a row: it may not write the position, and not what the store was built by.
func Repairable(key []byte) bool {
	return !bytes.Equal(key, checkpointKey) && !bytes.Equal(key, fingerprintKey) && !bytes.Equal(key, formatKey)
}

// Repair writes rows inside the live fold. It holds the fold at a whole position and calls heal with that position and the
// rows on disk and in memtables, without the caches of the fold. The rows that heal sets and deletes are
// committed together with the position (I3) and shown, and what the runtime and the projection keep in memory of rows
// is read anew. Views that are open stay what they are, new ones are never refused. After a crash the store is at this
// position with all of the repair, or before it without any.
//
// The rows must be those of the fold of the log up to the position (I1): nothing here can tell. heal must be quick, since
// the fold waits for it, and must bound what it changes: large repairs are several calls.
//
// An error of heal changes nothing. An error of the disk is final, as in [Store.Fold]. Repair fails with [projections.ErrNotReady]
// while an event that a crash has cut is not finished.
func (s *Store) Repair(ctx context.Context, heal func(at events.Cursor, rows projections.Reader, m *Repair) error) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := errors.Join(ctx.Err(), s.state.Stopped()); err != nil {
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
	return s.state.Stopped()
}

// heal asks what is to be changed. Between two calls of Fold the current position is that of the fold.
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

// repair commits rows with the checkpoint, and drops all that is known of rows.
func (f *fold) commitRepair(m *Repair) error {
	s := f.store
	// Not by way of the overlay: it leaves out what its own copies say is there.
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
	f.hasUnpublishedRows, f.envelopesSinceCheckpoint = true, 0
	f.batch.Rows().Overwritten()
	if forgetful, ok := s.opts.Projection.(projections.Forgetful); ok {
		forgetful.Forget()
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
