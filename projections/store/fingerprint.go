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

// checkFingerprint compares the fingerprint in the store with that of the projection. In a new
// store it writes the first rows. A store that is open for reading may have other settings, and an
// older version if the projection can read its rows.
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
	var built projections.Fingerprint
	if err := json.Unmarshal(row, &built); err != nil {
		return fmt.Errorf("%w: fingerprint: %w", projections.ErrCorrupt, err)
	}
	if err := s.adoptPartitions(built.Partitions); err != nil {
		return err
	}
	if bytes.Equal(row, s.fingerprint.Encode()) {
		return nil
	}

	if s.opts.ReadOnly {
		// Settings decide what is folded, but not how rows are read.
		readable := s.fingerprint
		readable.Settings = built.Settings
		if c, ok := s.opts.Projection.(projections.VersionReader); ok && c.CanRead(built) {
			readable.Version = built.Version
			readable.Kinds = built.Kinds
		}
		if bytes.Equal(row, readable.Encode()) {
			s.outdated = built.Differences(s.fingerprint)
			s.fingerprint = readable
			return nil
		}
	}
	return fmt.Errorf("%w: %s; to adopt the new, have it rebuilt: skein replay rebuild %s",
		projections.ErrFingerprint, built.Differences(s.fingerprint), s.fingerprint.Name)
}

// adoptPartitions takes over the partitions of the fingerprint in the store, if Options.Partitioned
// asks for that. Otherwise it returns [projections.ErrPartial] if a store of all partitions is
// wanted and this one has fewer.
func (s *Store) adoptPartitions(text string) error {
	if s.opts.Partitioned {
		held, err := projections.ParseHeld(text)
		if err != nil {
			return err
		}
		s.holding.Held = held
		s.fingerprint.Partitions = projections.FormatHeld(held)
		return nil
	}
	if s.opts.Partitions == nil && text != "" {
		return PartialError(s.dir, text)
	}
	return nil
}

// PartialError returns an error that wraps [projections.ErrPartial], for a store in dir that holds
// only some partitions. text is the set in the form of [projections.FormatHeld].
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

// writeFirstRows writes the format and the fingerprint to a new store. They are flushed before all
// other rows or together with them, so a store that has any rows has these, too.
func (s *Store) writeFirstRows() error {
	if s.opts.ReadOnly {
		return projections.ErrNoStore
	}

	// A store that has rows must have a format and a fingerprint.
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	hasRows := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if hasRows {
		return fmt.Errorf("%w: rows, but no fingerprint", projections.ErrCorrupt)
	}

	b := s.db.NewBatch()
	defer func() { _ = b.Close() }()
	_ = b.Set(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion), nil)
	_ = b.Set(fingerprintKey, s.fingerprint.Encode(), nil)
	s.flush.dirty = true
	return s.db.Apply(b, pebble.NoSync)
}
