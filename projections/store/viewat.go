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

// ViewAt returns a view of the store with everything up to a sequence and nothing after it: at once if the store is there,
// else when the fold gets there, which then shows a whole position exactly there. So several stores, and copies of one, are
// read at one common position while all of them fold. If the log has no envelope with the sequence, the view is at the last
// one before it.
//
// It fails with [projections.ErrPassed] if the store is beyond the sequence, with the error of the context, and with [projections.ErrStopped] when
// the projection will not get there.
func (s *Store) ViewAt(ctx context.Context, seq uint64) (*projections.View, error) {
	over := s.state.Over()
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
		w.view = nil
		return v, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-over:
		if err := errors.Join(s.state.Stopped(), s.endReason()); err != nil {
			return nil, err
		}
		return nil, projections.ErrStopped
	}
}

// viewNow returns a view at a sequence if the store shows exactly that now; nil means it is not there yet.
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
		err = fmt.Errorf("%w: %d, it is at %d", projections.ErrPassed, seq, v.Cursor().Seq)
	}
	return nil, errors.Join(err, v.Close())
}

// noMore reports why the store does not move any more.
func (s *Store) endReason() error {
	if s.opts.ReadOnly {
		return fmt.Errorf("%w: the store is open for reading only", projections.ErrStopped)
	}
	return s.state.NoMore()
}

// wanted has the sequences at which callers wait for a view. While there is none, the fold only reads lowest once for
// each envelope.
type viewWaiters struct {
	// lowest is the lowest sequence; [math.MaxUint64] means that no caller waits.
	lowestSeq atomic.Uint64

	mu      sync.Mutex
	waiters []*viewWaiter // few: in no order
}

// wantedView is a waiting caller. The fold sets view or err, then closes done.
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

// remove ends a waiting, and closes the view that came too late for it.
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

// showWanted is called at the end of an envelope: next is the least sequence that the next envelope may have. If a caller
// waits for the position, it is committed and shown.
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
			v.err = fmt.Errorf("%w: %d, it is at %d", projections.ErrPassed, v.seq, f.cursor.Seq)
		default:
			if v.view, v.err = f.store.View(); errors.Is(v.err, projections.ErrNotReady) {
				v.err = fmt.Errorf("%w: %d, the next event is folded in part", projections.ErrPassed, v.seq)
			}
		}
		close(v.done)
	}
	clear(w.waiters[len(waiting):])
	w.waiters = waiting
	w.updateLowestLocked()
	return nil
}
