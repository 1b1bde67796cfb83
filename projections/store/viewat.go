package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/skein-feed/skein/projections"
)

// ViewAt returns a view of the store with everything up to a sequence and nothing after it. If the
// store is not there yet, ViewAt waits for the fold, which publishes exactly this position when it
// gets there. Several stores, or copies of one store, can therefore be compared at one position
// while all of them fold. If the log has no envelope with this sequence, the view shows the last
// envelope before it.
//
// It fails with [projections.ErrPositionPassed] if the store is beyond the sequence, with
// [projections.ErrStopped] if the projection has stopped before it, and with the error of the
// context.
func (s *Store) ViewAt(ctx context.Context, seq uint64) (*projections.View, error) {
	// The channel and the registration come before the first look, so that nothing that happens
	// after it is missed.
	released := s.state.WaitersReleased()
	w := s.viewWaiters.add(seq)
	defer s.viewWaiters.remove(w)

	v, err := s.currentViewAt(seq)
	if v != nil || err != nil {
		return v, err
	}
	if err := s.endReason(); err != nil {
		return nil, err
	}

	select {
	case <-w.done:
		v, err := w.view, w.err
		w.view = nil // the caller closes it, and not remove
		return v, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-released:
		if err := errors.Join(s.state.StopError(), s.endReason()); err != nil {
			return nil, err
		}
		return nil, projections.ErrStopped
	}
}

// currentViewAt returns a view if the store shows exactly this sequence now. It returns nil and no
// error if the store is not there yet, and [projections.ErrPositionPassed] if it is beyond.
func (s *Store) currentViewAt(seq uint64) (*projections.View, error) {
	v, err := s.View()
	switch {
	case errors.Is(err, projections.ErrNotReady):
		return nil, nil
	case err != nil:
		return nil, err
	case v.Cursor().Seq == seq:
		return v, nil
	case v.Cursor().Seq > seq:
		err = fmt.Errorf("%w: %d, it is at %d", projections.ErrPositionPassed, seq, v.Cursor().Seq)
	}
	return nil, errors.Join(err, v.Close())
}

// endReason returns the error that explains why the fold will not continue, or nil if it may
// continue.
func (s *Store) endReason() error {
	if s.opts.ReadOnly {
		return fmt.Errorf("%w: the store is open for reading only", projections.ErrStopped)
	}
	return s.state.HaltReason()
}

// viewWaiters are the callers of [Store.ViewAt] that wait for the fold.
type viewWaiters struct {
	// lowestSeq is the lowest sequence that a caller waits for, or [math.MaxUint64] if none waits.
	// It is atomic so that the fold can check it for every envelope without taking mu.
	lowestSeq atomic.Uint64

	mu      sync.Mutex
	waiters []*viewWaiter // in no order; there are only a few
}

// viewWaiter is one waiting caller. The fold sets view or err and then closes done.
type viewWaiter struct {
	seq  uint64
	done chan struct{}
	view *projections.View
	err  error
}

func (w *viewWaiters) init() { w.lowestSeq.Store(math.MaxUint64) }

func (w *viewWaiters) add(seq uint64) *viewWaiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &viewWaiter{seq: seq, done: make(chan struct{})}
	w.waiters = append(w.waiters, v)
	w.updateLowestLocked()
	return v
}

// remove removes a waiter, and closes its view if the caller did not take it.
func (w *viewWaiters) remove(v *viewWaiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.waiters {
		if w.waiters[i] == v {
			w.waiters = append(w.waiters[:i], w.waiters[i+1:]...)
			w.updateLowestLocked()
			break
		}
	}
	if v.view != nil {
		_ = v.view.Close() // the caller has given up
		v.view = nil
	}
}

func (w *viewWaiters) updateLowestLocked() {
	lowest := uint64(math.MaxUint64)
	for _, v := range w.waiters {
		lowest = min(lowest, v.seq)
	}
	w.lowestSeq.Store(lowest)
}

// publishForWaiters is called after a whole envelope. next is the lowest sequence that the next
// envelope may have. If callers wait for a sequence below next, publishForWaiters commits and
// publishes the position, and gives each of them a view of it.
func (f *fold) publishForWaiters(next uint64) error {
	w := &f.store.viewWaiters
	if w.lowestSeq.Load() >= next {
		return nil
	}
	if err := f.commit(); err != nil {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.waiters[:0]
	for _, v := range w.waiters {
		switch {
		case v.seq >= next:
			waiting = append(waiting, v)
			continue
		case v.seq < f.cursor.Seq:
			v.err = fmt.Errorf("%w: %d, it is at %d", projections.ErrPositionPassed, v.seq, f.cursor.Seq)
		default:
			if v.view, v.err = f.store.View(); errors.Is(v.err, projections.ErrNotReady) {
				v.err = fmt.Errorf("%w: %d, the next event is folded in part", projections.ErrPositionPassed, v.seq)
			}
		}
		close(v.done)
	}
	clear(w.waiters[len(waiting):])
	w.waiters = waiting
	w.updateLowestLocked()
	return nil
}
