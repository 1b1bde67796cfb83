package eventlog

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-feed/skein/events"
)

// Subscription is a subscriber of a [Hub]. Its methods are safe for concurrent use, but calls of
// Next run one after the other.
type Subscription struct {
	hub  *Hub
	ctx  context.Context //nolint:containedctx // it ends with Close, and ends every wait of the subscription
	stop context.CancelFunc
	// nextMu makes calls of Next, and the end of Close, run one at a time.
	nextMu sync.Mutex
	// kinds are the kinds of events that the subscriber needs from the archive.
	kinds events.KindSet
	// detached is true for subscribers that never move the ring to their own cursor.
	detached bool

	// hub.mu guards the fields from here on.

	// cur is the cursor after the last returned envelope.
	cur events.Cursor
	// ownReader is set while the subscriber is not in the ring. Only Next and Close use the reader
	// itself.
	ownReader *reader
	// failed is the terminal error of the subscription.
	failed error
	// seenHoleReport is the value of Hub.holeReports when the subscriber last got the error of a
	// hole.
	seenHoleReport uint64
	// atHole is true if the last call of Next returned the error of a hole. The next call must then
	// report when it is past the hole.
	atHole bool
}

// Next returns the next envelopes. It waits until there is at least one, or until ctx ends.
// Together the envelopes have at most maxBytes in the log, unless the first one alone is larger.
// The caller must not change the envelopes, because others share them.
//
// In front of a hole of the log, Next fails with [events.ErrHole]. While the hole is there, each
// further call fails again after a pause. The first call after the hole has gone may return no
// envelopes and no error.
//
// Apart from [events.ErrHole] and the error of ctx, every error is terminal: [events.ErrClosed], or
// an error that says that the log is not the one that the cursor was taken from, see
// [Log.CheckCursor].
func (s *Subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	s.nextMu.Lock()
	defer s.nextMu.Unlock()

	for {
		envs, changed, err := s.readRing(maxBytes)
		if err != nil || len(envs) > 0 {
			return envs, err
		}
		if changed == nil && s.ownReader == nil {
			return nil, nil // the subscriber is past the hole
		}
		if changed == nil {
			return s.readAlone(ctx, maxBytes)
		}

		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil, s.hub.endReason()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readRing returns the next envelopes from the ring. Without envelopes and error, the channel is
// closed when it is time to try again. A nil channel means that the subscriber is not in the ring,
// or that Next must report that the subscriber is past a hole.
func (s *Subscription) readRing(maxBytes int) (envs []*events.Envelope, changed chan struct{}, err error) {
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
		// The ring has dropped what the subscriber needs next, or was moved.
		s.ownReader = s.newReader()
		h.wakeRun()
		return nil, nil, nil
	}

	envs = h.ring.envelopesAfter(s.cur.Seq, maxBytes)
	switch {
	case len(envs) > 0:
		s.atHole = false
	case h.hole != nil && s.seenHoleReport != h.holeReports:
		s.seenHoleReport = h.holeReports
		s.atHole = true
		return nil, nil, h.hole
	case h.hole == nil && s.atHole:
		s.atHole = false
		return nil, nil, nil
	}
	s.advance(envs)
	return envs, h.changed, nil
}

// newReader returns a reader at the cursor of the subscriber, for the subscriber alone.
func (s *Subscription) newReader() *reader {
	r := newReader(s.hub.log, s.cur)
	r.kinds = s.kinds
	if s.atHole { // the reader must report when it is past the hole
		r.holeDelay = firstRetryPause
	}
	return r
}

// advance moves the cursor of the subscriber after envelopes that Next is about to return. The
// caller holds hub.mu.
func (s *Subscription) advance(envs []*events.Envelope) {
	if n := len(envs); n > 0 {
		s.cur = envs[n-1].Cursor
		s.hub.wakeRun()
	}
}

// readAlone returns the next envelopes from the subscriber's own reader, and brings the subscriber
// back into the ring if it can.
func (s *Subscription) readAlone(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the reading ends with either

	envs, err := s.ownReader.nextEnvelopes(ctx, min(maxBytes, readBytes))
	s.atHole = errors.Is(err, events.ErrHole)
	if err == nil && len(envs) == 0 {
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
	// Both cursors are proven now: the one before the envelopes and the one after them.
	h.waypoints.remember(s.cur)
	h.waypoints.remember(envs[len(envs)-1].Cursor)
	s.advance(envs)
	if h.err == nil {
		s.joinRing()
	}
	return envs, nil
}

// joinRing gives up the subscriber's own reader if the subscriber can read from the ring. If the
// subscriber is far ahead of the ring, it moves the ring to its own cursor. The caller holds
// hub.mu.
func (s *Subscription) joinRing() {
	h := s.hub
	ringEnd := h.ring.end().Seq
	switch {
	case s.kinds != events.AllKinds && s.ownReader.inArchive():
		return // the reader leaves out events, and its envelopes must not enter the ring
	case !h.hasPosition, s.cur.Seq > ringEnd+maxLead:
		if s.detached {
			return
		}
		s.ownReader.kinds = events.AllKinds
		h.resetRing(s.cur, s.ownReader, true)
	case s.cur.Seq > ringEnd, h.ring.holds(s.cur):
		s.ownReader.close()
		h.wakeRun()
	default:
		return
	}
	s.ownReader = nil
}

// endReason returns the error that subscribers get when the hub has ended or their subscription was
// closed.
func (h *Hub) endReason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	return events.ErrClosed
}

// Close ends the subscription. A call of Next that is in progress returns [events.ErrClosed].
func (s *Subscription) Close() {
	s.stop() // ends a call of Next, which holds nextMu
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
