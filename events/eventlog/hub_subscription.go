package eventlog

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-feed/skein/events"
)

// Subscription is one subscriber of a [Hub].
type Subscription struct {
	hub    *Hub
	ctx    context.Context //nolint:containedctx // it ends with Close, and what waits ends with it
	stop   context.CancelFunc
	nextMu sync.Mutex // held by Next
	// kinds are the kinds of events that the subscriber needs from the archive.
	kinds events.KindSet
	// detached is set for subscribers that must never move the ring to their own cursor.
	detached bool

	// Guarded by hub.mu.
	cur       events.Cursor // after the last envelope returned
	ownReader *reader       // set while out of the ring; only Next uses it
	failed    error         // final
	// seenHoleReport is the value of Hub.holeReports for which the subscriber last got the error of a hole.
	seenHoleReport uint64
	// atHole is set if the last call returned the error of a hole, so that the next one must report when it is past the hole.
	atHole bool
}

// Next returns the next envelopes, at least one, and together at most maxBytes as they stand in the log unless a
// single one is larger. It waits for them as long as the context allows. The envelopes are shared: they must not
// be changed. In front of a hole of the log it fails with [events.ErrHole], and so does each further call that finds it there still,
// after a pause; one that finds it behind may return nothing. Other errors than that and the context's are final:
// [events.ErrClosed], or that the log is not the one that the cursor was taken from, see [Log.CheckCursor].
func (s *Subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	s.nextMu.Lock()
	defer s.nextMu.Unlock()
	for {
		envs, grown, err := s.readRing(maxBytes)
		if err != nil || len(envs) > 0 {
			return envs, err
		}
		if grown == nil && s.ownReader == nil {
			return nil, nil // the subscriber is past the hole
		}
		if grown == nil {
			return s.readAlone(ctx, maxBytes)
		}
		select {
		case <-grown:
		case <-s.ctx.Done():
			return nil, s.hub.endReason()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readRing takes from the ring. Without envelopes and error, grown reports when to try again; nil means there is nothing to wait for, or
// the subscriber is not in the ring.
func (s *Subscription) readRing(maxBytes int) (envs []*events.Envelope, grown chan struct{}, err error) {
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
	case s.ownReader != nil:
		return nil, nil, nil
	case !h.hasPosition || s.cur.Seq < h.ring.base.Seq:
		s.ownReader = s.newReader()
		h.wakeRun()
		return nil, nil, nil
	}
	envs = h.ring.after(s.cur.Seq, maxBytes)
	switch {
	case len(envs) > 0:
		s.atHole = false
	case h.hole != nil && s.seenHoleReport != h.holeReports:
		s.seenHoleReport, s.atHole = h.holeReports, true
		return nil, nil, h.hole
	case h.hole == nil && s.atHole:
		s.atHole = false
		return nil, nil, nil
	}
	s.advance(envs)
	return envs, h.changed, nil
}

// newReader returns a reader for this subscriber alone.
func (s *Subscription) newReader() *reader {
	r := newReader(s.hub.log, s.cur)
	r.kinds = s.kinds
	if s.atHole { // the reader must report when it is past the hole
		r.holeDelay = firstRetryPause
	}
	return r
}

// advance notes what is about to be returned. hub.mu is held.
func (s *Subscription) advance(envs []*events.Envelope) {
	if n := len(envs); n > 0 {
		s.cur = envs[n-1].Cursor
		s.hub.wakeRun()
	}
}

// readAlone reads with a reader of its own.
func (s *Subscription) readAlone(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the reading ends with either
	envs, err := s.ownReader.next(ctx, min(maxBytes, readBytes))
	if s.atHole = errors.Is(err, events.ErrHole); err == nil && len(envs) == 0 {
		return nil, nil
	}
	if err != nil {
		if s.ctx.Err() != nil {
			return nil, s.hub.endReason()
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
		s.joinRing()
	}
	return envs, nil
}

// joinRing brings a subscriber that reads alone into the ring, if the two have met. hub.mu is held.
func (s *Subscription) joinRing() {
	h := s.hub
	end := h.ring.end().Seq
	switch {
	case s.kinds != events.AllKinds && s.ownReader.inArchive(): // envelopes without some kinds must not enter the ring
		return
	case !h.hasPosition, s.cur.Seq > end+maxLead:
		if s.detached {
			return
		}
		s.ownReader.kinds = events.AllKinds
		h.resetRing(s.cur, s.ownReader, true)
	case s.cur.Seq > end, h.ring.holds(s.cur):
		s.ownReader.close()
		h.wakeRun()
	default:
		return
	}
	s.ownReader = nil
}

// endReason returns why the hub's subscriptions end.
func (h *Hub) endReason() error {
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
	s.nextMu.Lock()
	defer s.nextMu.Unlock()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.ownReader != nil {
		s.ownReader.close()
	}
	delete(h.subs, s)
	h.wakeRun()
}
