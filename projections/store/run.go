package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// SubscribeFunc subscribes to the log after a cursor. It fails if the cursor was taken from another
// log.
type SubscribeFunc func(from events.Cursor) (Subscription, error)

// Subscription reads the log from one position on. It is not safe for concurrent use.
type Subscription interface {
	// Next blocks until there is at least one new envelope. It returns the envelopes that follow,
	// in order: those that are available, up to about maxBytes together, but at least one. It fails
	// with the error of the context, and with [events.ErrHole] in front of a hole of the log. The
	// next call then pauses and looks again.
	Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error)
	// Head returns the last sequence that the log is known to have.
	Head() uint64
	// Close ends the subscription.
	Close()
}

// Run folds the log until the context ends, and then returns nil. In front of a hole of the log it
// waits until the hole is closed or accepted. If the fold, the disk or the log fails, Run stops the
// projection and returns the error. It leaves no goroutines behind.
func (s *Store) Run(ctx context.Context, subscribe SubscribeFunc) (err error) {
	if err := s.state.StopError(); err != nil {
		return err
	}
	s.state.SetState(CatchingUp)
	defer func() {
		switch {
		case errors.Is(err, events.ErrClosed), ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			// This is a normal end. The process may have closed the log because of the end of a
			// parent context, whose end has not reached ctx yet.
			err = nil
			s.state.SetState(Stopped)
		case errors.Is(err, projections.ErrStopped):
			// The state has the cause already.
		default:
			err = s.state.Fail(err)
		}
		if err != nil && !errors.Is(err, projections.ErrClosed) {
			s.opts.Logger.Error("the projection stopped", "error", err)
		}
	}()

	sub, err := subscribe(s.Cursor())
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()

	// The projection becomes ready when it reaches the head as of now. Later events do not postpone
	// that.
	start := sub.Head()
	for {
		s.state.ObserveHead(start, sub.Head())
		envs, err := s.next(ctx, sub)
		if errors.Is(err, events.ErrHole) { // the next call pauses and looks again
			s.state.Hold(err)
			continue
		}
		if err != nil {
			return err
		}
		s.state.Release()
		if len(envs) == 0 { // the hole was passed, and no envelope has followed yet
			continue
		}

		began := time.Now()
		if err := s.Fold(envs); err != nil {
			return err
		}
		s.state.Rest(ctx, time.Since(began))
	}
}

// next waits for envelopes. It interrupts the wait when a flush is due, and then continues.
func (s *Store) next(ctx context.Context, sub Subscription) ([]*events.Envelope, error) {
	for {
		wait, err := s.flushIfDue(time.Now())
		if err != nil {
			return nil, err
		}

		// A wait of 0 means that there is nothing to flush.
		nextCtx := ctx
		cancel := func() {}
		if wait > 0 {
			nextCtx, cancel = context.WithTimeout(ctx, wait)
		}
		envs, err := sub.Next(nextCtx, s.opts.Bounds.ReadBytes)
		cancel()

		isFlushDue := ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
		if !isFlushDue {
			return envs, err
		}
	}
}
