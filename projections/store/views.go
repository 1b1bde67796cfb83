package store

import (
	"errors"

	"github.com/skein-feed/skein/projections"
)

var errOpenViews = errors.New("store: the store cannot be closed: views of it are open")

// publish makes the state of the fold visible to queries. The fold must be at a whole position. If
// no rows have changed, the new position shares the snapshot of the last one. Store.folding is
// held.
func (s *Store) publish(newRows bool) {
	last := s.current.Load()
	next := &projections.Snapshot{
		Cursor:     s.fold.cursor,
		Rejects:    s.fold.rejects,
		QueryCache: s.queryCache,
		Holding:    &s.holding,
		Settings:   s.fingerprint.Settings,
		Outdated:   s.outdated != "",
		Down:       s.state.Down(),
	}
	if last != nil && !newRows {
		next.Rows = last.Rows
	} else {
		next.Rows = s.snapshots.Make(s.db)
		s.version++
	}
	next.Version = s.version

	// Release the old snapshot only after no new view can get it.
	s.current.Store(next)
	if last != nil && last.Rows != next.Rows {
		last.Rows.Release()
	}

	s.state.SetVisible(next.Cursor.Seq)
}

// View returns a view of the last whole position. It fails with [projections.ErrNotReady] while an
// event that a crash has interrupted is not folded to its end, and with [projections.ErrStopped]
// once the projection has failed or the store is closed.
func (s *Store) View() (*projections.View, error) {
	if s.state.HasFailed() {
		return nil, s.state.StopError()
	}

	for {
		p := s.current.Load()
		if p == nil {
			if err := s.state.StopError(); err != nil {
				return nil, err
			}
			return nil, projections.ErrNotReady
		}

		// Acquire fails if publish has replaced and released this position since Load. Then there
		// is a newer one.
		if p.Rows.Acquire() {
			return p.Open(), nil
		}
	}
}
