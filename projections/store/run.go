package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// SubscribeFunc subscribes to the log after a cursor. It fails if the log is not the one that the cursor is of.
type SubscribeFunc func(from events.Cursor) (Subscription, error)

// Subscription is a reading of the log, for one goroutine.
type Subscription interface {
	// Next blocks until there is at least one envelope, and returns envelopes that follow on the last: as many as are
	// there, in order, of about maxBytes together at most (but one in any case). It fails with the error of the
	// context, and with [events.ErrHole] in front of a hole, where the next call looks again after a pause.
	Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error)
	// Head is the last sequence that the log is known to have.
	Head() uint64
	// Close ends the reading.
	Close()
}

// Run follows the log until the context ends, then returns nil. In front of a hole of the log it waits until that is closed or
// accepted. It returns the error that stopped the projection:
// of the fold, the disk or the log. Nothing runs on when it returns; the rest of the process may.
func (s *Store) Run(ctx context.Context, subscribe SubscribeFunc) (err error) {
	if err := s.state.Stopped(); err != nil {
		return err
	}
	s.state.Set(CatchingUp)
	defer func() {
		switch {
		case errors.Is(err, events.ErrClosed), ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			// This process has closed the log, perhaps by the end of a context of which this one is still to hear.
			err = nil
			s.state.Set(Stopped)
		case errors.Is(err, projections.ErrStopped): // its cause was noted before
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
	start := sub.Head()
	for {
		s.state.Observe(start, sub.Head())
		envs, err := s.next(ctx, sub)
		if errors.Is(err, events.ErrHole) { // it passes, and the next call looks again, after a pause
			s.state.Hold(err)
			continue
		}
		if err != nil {
			return err
		}
		s.state.Release()
		if len(envs) == 0 { // the hole is behind
			continue
		}
		began := time.Now()
		if err := s.Fold(envs); err != nil {
			return err
		}
		s.state.Rest(ctx, time.Since(began))
	}
}

// next waits for envelopes, and meanwhile flushes in time.
func (s *Store) next(ctx context.Context, sub Subscription) ([]*events.Envelope, error) {
	for {
		wait, err := s.flushIfDue(time.Now())
		if err != nil {
			return nil, err
		}
		within, cancel := ctx, context.CancelFunc(func() {})
		if wait > 0 {
			within, cancel = context.WithTimeout(ctx, wait)
		}
		envs, err := sub.Next(within, s.opts.Bounds.ReadBytes)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return envs, err
		}
	}
}
