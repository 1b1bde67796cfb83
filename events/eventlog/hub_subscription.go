package eventlog

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-feed/skein/events"
)

// Subscription is one subscriber of a [Hub].
type Subscription struct {
	hub  *Hub
	ctx  context.Context //nolint:containedctx // it ends with Close, and what waits ends with it
	stop context.CancelFunc
	turn sync.Mutex // held by Next
	// kinds are the kinds of events that the subscriber needs from the archive.
	kinds events.KindSet
	// beside is set for subscribers that must never move the ring to their own cursor.
	beside bool

	// Guarded by hub.mu.
	cur    events.Cursor // after the last envelope returned
	own    *reader       // set while out of the ring; only Next uses it
	failed error         // final
	// looked is the value of Hub.looks for which the subscriber last got the error of a hole.
	looked uint64
	// held is set if the last call returned the error of a hole, so that the next one must report when it is past the hole.
	held bool
}

// Next returns the next envelopes, at least one, and together at most maxBytes as they stand in the log unless a
// single one is larger. It waits for them as long as the context allows. The envelopes are shared: they must not
// be changed. In front of a hole of the log it fails with [events.ErrHole], and so does each further call that finds it there still,
// after a pause; one that finds it behind may return nothing. Other errors than that and the context's are final:
// [events.ErrClosed], or that the log is not the one that the cursor was taken from, see [Log.CheckCursor].
func (s *Subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for {
		envs, grown, err := s.shared(maxBytes)
		if err != nil || len(envs) > 0 {
			return envs, err
		}
		if grown == nil && s.own == nil {
			return nil, nil // the subscriber is past the hole
		}
		if grown == nil {
			return s.alone(ctx, maxBytes)
		}
		select {
		case <-grown:
		case <-s.ctx.Done():
			return nil, s.hub.ending()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// shared takes from the ring. Without envelopes and error, grown reports when to try again; nil means there is nothing to wait for, or
// the subscriber is not in the ring.
func (s *Subscription) shared(maxBytes int) (envs []*events.Envelope, grown chan struct{}, err error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return nil, nil, h.err
	case s.failed != nil:
		return nil, nil, s.failed
	case s.ctx.Err() != nil:
		return nil, nil, events.ErrClosed
	case s.own != nil:
		return nil, nil, nil
	case !h.seated || s.cur.Seq < h.ring.base.Seq:
		s.own = s.newReader()
		h.signal()
		return nil, nil, nil
	}
	envs = h.ring.after(s.cur.Seq, maxBytes)
	switch {
	case len(envs) > 0:
		s.held = false
	case h.hole != nil && s.looked != h.looks:
		s.looked, s.held = h.looks, true
		return nil, nil, h.hole
	case h.hole == nil && s.held:
		s.held = false
		return nil, nil, nil
	}
	s.advance(envs)
	return envs, h.grown, nil
}

// newReader returns a reader for this subscriber alone.
func (s *Subscription) newReader() *reader {
	r := newReader(s.hub.log, s.cur)
	r.kinds = s.kinds
	if s.held { // the reader must report when it is past the hole
		r.hold = firstRetry
	}
	return r
}

// advance notes what is about to be returned. hub.mu is held.
func (s *Subscription) advance(envs []*events.Envelope) {
	if n := len(envs); n > 0 {
		s.cur = envs[n-1].Cursor
		s.hub.signal()
	}
}

// alone reads with a reader of its own.
func (s *Subscription) alone(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the reading ends with either
	envs, err := s.own.next(ctx, min(maxBytes, readBytes))
	if s.held = errors.Is(err, events.ErrHole); err == nil && len(envs) == 0 {
		return nil, nil
	}
	if err != nil {
		if s.ctx.Err() != nil {
			return nil, s.hub.ending()
		}
		return nil, err
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.points.note(s.cur)
	h.points.note(envs[len(envs)-1].Cursor)
	s.advance(envs)
	if h.err == nil {
		s.join()
	}
	return envs, nil
}

// join brings a subscriber that reads alone into the ring, if the two have met. hub.mu is held.
func (s *Subscription) join() {
	h := s.hub
	end := h.ring.end().Seq
	switch {
	case s.kinds != events.AllKinds && s.own.inArchive(): // envelopes without some kinds must not enter the ring
		return
	case !h.seated, s.cur.Seq > end+nearby:
		if s.beside {
			return
		}
		s.own.kinds = events.AllKinds
		h.resetRing(s.cur, s.own, true)
	case s.cur.Seq > end, h.ring.holds(s.cur):
		s.own.close()
		h.signal()
	default:
		return
	}
	s.own = nil
}

// ending returns why the hub's subscriptions end.
func (h *Hub) ending() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return events.ErrClosed
}

// Close ends the subscription. A Next under way returns [events.ErrClosed].
func (s *Subscription) Close() {
	s.stop()
	s.turn.Lock()
	defer s.turn.Unlock()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.own != nil {
		s.own.close()
	}
	delete(h.subs, s)
	h.signal()
}
