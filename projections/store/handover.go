package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// This file has what package live needs of a store to replace one generation by another.

// Generation returns the number of the generation, from 1.
func (s *Store) Generation() uint32 { return s.generation }

// Outdated describes how the fingerprint of the store differs from that of the program. Only a
// store that is open for reading may differ. It returns an empty string if they are equal.
func (s *Store) Outdated() string { return s.outdated }

// Failure returns the error that stopped the store, or nil if the store has not failed.
func (s *Store) Failure() error { return s.state.Failure() }

// Damaged reports whether the store has failed because its files or rows are damaged. Only a
// rebuild can repair that.
func (s *Store) Damaged() bool {
	err := s.state.Failure()
	return errors.Is(err, projections.ErrCorrupt) || pebble.IsCorruptionError(err)
}

// VisibleSeq returns the sequence of the last envelope that views show completely, or 0 if there is
// none.
func (s *Store) VisibleSeq() uint64 { return s.state.Visible() }

// IsVisible reports whether new views show everything up to a sequence.
func (s *Store) IsVisible(seq uint64) bool { return s.state.IsVisible(seq) }

// VisibleCursor returns the position of new views. Once the store is closed, it returns the
// position of the fold.
func (s *Store) VisibleCursor() events.Cursor {
	if p := s.current.Load(); p != nil {
		return p.Cursor
	}
	return s.Cursor()
}

// Flushed returns the last whole position that is known to be on disk.
func (s *Store) Flushed() events.Cursor { return *s.flush.flushed.Load() }

// HoldFold waits until no call of Fold is running, and blocks further calls until the caller calls
// release. Views can be opened meanwhile.
func (s *Store) HoldFold() (release func()) {
	s.folding.Lock()
	return s.folding.Unlock
}
