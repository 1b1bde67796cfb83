package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// What a cut-over from one generation to another asks of their stores.

// Generation returns the number of the generation.
func (s *Store) Generation() uint32 { return s.generation }

// Outdated names what the fingerprint of a store that is open for reading only has otherwise than the program; empty means nothing.
func (s *Store) Outdated() string { return s.outdated }

// Failure returns the error that stopped the store; nil means the store has not failed.
func (s *Store) Failure() error { return s.state.Failure() }

// Damaged reports whether the store has failed because its files or rows are damaged.
func (s *Store) Damaged() bool {
	err := s.state.Failure()
	return errors.Is(err, projections.ErrCorrupt) || pebble.IsCorruptionError(err)
}

// Visible returns the sequence of the last envelope that views show completely; 0 means there is none.
func (s *Store) Visible() uint64 { return s.state.Visible() }

// Shows reports whether views show everything up to a sequence.
func (s *Store) Shows(seq uint64) bool { return s.state.Has(seq) }

// ShownCursor returns the last whole position that views see; once the store is closed, that of the fold.
func (s *Store) ShownCursor() events.Cursor {
	if p := s.current.Load(); p != nil {
		return p.Cursor
	}
	return s.Cursor()
}

// Flushed returns the last whole position that is known to be on disk.
func (s *Store) Flushed() events.Cursor { return *s.flush.flushed.Load() }

// HoldFold waits until the fold is between two steps, and holds it there until the returned function is called. Views can be opened
// meanwhile.
func (s *Store) HoldFold() (release func()) {
	s.folding.Lock()
	return s.folding.Unlock
}
