package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// checkFingerprint compares the fingerprint of the store with that of the projection, or writes it to a new store.
func (s *Store) checkFingerprint() error {
	format, err := s.readRow(formatKey)
	if err != nil {
		return err
	}
	if format == nil {
		return s.writeFirstRows()
	}
	if want := binary.BigEndian.AppendUint32(nil, formatVersion); !bytes.Equal(format, want) {
		return fmt.Errorf("%w: format version %x, this program knows %x", projections.ErrFingerprint, format, want)
	}
	row, err := s.readRow(fingerprintKey)
	if err != nil {
		return err
	}
	var was projections.Fingerprint
	if err := json.Unmarshal(row, &was); err != nil {
		return fmt.Errorf("%w: fingerprint: %w", projections.ErrCorrupt, err)
	}
	if err := s.adoptPartitions(was.Partitions); err != nil {
		return err
	}
	if bytes.Equal(row, s.fingerprint.Encode()) {
		return nil
	}
	if s.opts.ReadOnly {
		// Settings decide what is folded, not how rows are read.
		same := s.fingerprint
		same.Settings = was.Settings
		if c, ok := s.opts.Projection.(projections.Compatible); ok && c.Reads(was) {
			same.Version, same.Kinds = was.Version, was.Kinds
		}
		if bytes.Equal(row, same.Encode()) {
			s.outdated = was.Differences(s.fingerprint)
			s.fingerprint = same
			return nil
		}
	}
	return fmt.Errorf("%w: %s; to adopt the new, have it rebuilt: skein replay rebuild %s",
		projections.ErrFingerprint, was.Differences(s.fingerprint), s.fingerprint.Name)
}

// hold has the store hold the set of its fingerprint, if it is to be opened as the one that it is.
func (s *Store) adoptPartitions(text string) error {
	if s.opts.Partitioned {
		held, err := projections.ParseHeld(text)
		if err != nil {
			return err
		}
		s.holding.Held, s.fingerprint.Partitions = held, projections.HeldText(held)
		return nil
	}
	if s.opts.Partitions == nil && text != "" {
		return PartialError(s.dir, text)
	}
	return nil
}

// PartialError returns an [projections.ErrPartial] about a directory whose store holds a set of partitions, as [projections.HeldText] writes it.
func PartialError(dir, text string) error {
	held, err := projections.ParseHeld(text)
	if err != nil {
		return err
	}
	n := 0
	if held != nil {
		n = held.Len()
	}
	return fmt.Errorf("%w: %s has %d of %d; start the process as that node of its cluster, or remove the directory to have all built",
		projections.ErrPartial, dir, n, events.NumPartitions)
}

// create writes the first rows. They are flushed before or with all others, so a store with rows always has them.
func (s *Store) writeFirstRows() error {
	if s.opts.ReadOnly {
		return projections.ErrNoStore
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	rows := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if rows {
		return fmt.Errorf("%w: rows, but no fingerprint", projections.ErrCorrupt)
	}
	b := s.db.NewBatch()
	defer func() { _ = b.Close() }()
	_ = b.Set(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion), nil)
	_ = b.Set(fingerprintKey, s.fingerprint.Encode(), nil)
	s.flush.dirty = true
	return s.db.Apply(b, pebble.NoSync)
}
