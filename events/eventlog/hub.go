package eventlog

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-feed/skein/events"
)

const (
	defaultRingBytes  = 32 << 20
	defaultAheadBytes = 16 << 20
	// maxLead is how many sequences a subscriber may be ahead of the ring and still wait until the
	// ring reaches it. A subscriber that is further ahead moves the ring to its own cursor instead
	// of waiting for long. The subscribers behind then read on their own.
	maxLead = 4096
)

// HubOptions are the settings of a [Hub].
type HubOptions struct {
	// RingBytes limits the memory of the ring of decoded envelopes that subscribers share. The
	// default is 32 MiB.
	RingBytes int
	// AheadBytes limits how many bytes of decoded envelopes the hub reads ahead of the subscribers.
	// The default is 16 MiB and the maximum is half of RingBytes.
	AheadBytes int
}

// Hub reads and decodes the log once for all subscribers that are close to each other. They share a
// ring of decoded envelopes. A subscriber that has fallen out of the ring gets a reader of its own
// until it is back in the ring. A process has one hub.
//
//	log ──► reader ──► ring: [ oldest … newest ] ──► subscribers in the ring
//	  └───► reader of one subscriber, until it reaches the ring
type Hub struct {
	log *Log
	opt HubOptions

	ctx  context.Context //nolint:containedctx // it ends with Close, and ends all waiting
	stop context.CancelFunc

	// mu guards the fields below it.
	mu   sync.Mutex
	ring ring
	// hasPosition is true while the ring has a position in the log. It is false until a subscriber
	// gives the ring its position, and after a terminal error at that position.
	hasPosition bool
	// startVerified is true if reading has shown that the log has the position of the ring. It is
	// false while a subscriber's cursor is the only evidence for that position.
	startVerified bool
	// nextRingReader is a reader at the end of the ring, which Run takes over. If it is nil, Run
	// makes a reader.
	nextRingReader *reader
	// stopRingReader cancels Run's reading at the present position of the ring. It is nil if Run
	// has not begun to read there.
	stopRingReader context.CancelFunc

	// waypoints are cursors at which reading may begin.
	waypoints waypoints
	// seekSlot is a semaphore of one for CursorAt, which reads the log: two calls at once would
	// read the same part twice.
	seekSlot chan struct{}

	subs     map[*Subscription]struct{}
	changed  chan struct{} // closed and replaced when the ring changes or err is set
	demand   chan struct{} // capacity 1: a subscriber came, left or advanced
	running  bool          // Run was called; never reset
	runEnded chan struct{} // closed when Run has returned
	err      error         // why the hub has ended; set once

	// hole is the error of the hole in front of which the ring stands, or nil. While it is set, the
	// ring cannot grow.
	hole error
	// holeReports counts how often the ring's reader has found a hole or got past one. While hole
	// is set, each subscriber at the end of the ring gets the error once per report.
	holeReports uint64
}

// NewHub returns a hub. Its subscribers get envelopes while [Hub.Run] is running.
func NewHub(l *Log, opt HubOptions) *Hub {
	if opt.RingBytes <= 0 {
		opt.RingBytes = defaultRingBytes
	}
	if opt.AheadBytes <= 0 {
		opt.AheadBytes = defaultAheadBytes
	}
	opt.AheadBytes = min(opt.AheadBytes, opt.RingBytes/2)
	h := &Hub{
		log:      l,
		opt:      opt,
		subs:     make(map[*Subscription]struct{}),
		changed:  make(chan struct{}),
		demand:   make(chan struct{}, 1),
		seekSlot: make(chan struct{}, 1),
		runEnded: make(chan struct{}),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Head returns the highest sequence that is known to be in the log.
func (h *Hub) Head() uint64 { return h.log.lastKnownSeq.Load() }

// CachedEnvelope returns the envelope with the given sequence if it is in the ring, or else nil.
// The caller must not change the envelope, because others share it.
func (h *Hub) CachedEnvelope(seq uint64) *events.Envelope {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring.envelope(seq)
}

// Run reads the log for the subscribers. It returns nil when ctx ends or the hub is closed, and an
// error when the log is no longer the one that was read, such as [events.ErrLogShorter]. It may be
// called once; a second call returns an error at once.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.running {
		h.mu.Unlock()
		return errors.New("eventlog: a hub runs once")
	}
	h.running = true
	h.mu.Unlock()

	defer close(h.runEnded)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)() //nolint:contextcheck // Run ends with either

	if err := h.log.registerCloser(h); err != nil {
		h.fail(err)
		return err
	}
	defer h.log.unregisterCloser(h)

	for ctx.Err() == nil {
		if failed, err := h.readRing(ctx); failed {
			return err
		}
	}
	h.fail(events.ErrClosed)
	return nil
}

// readRing reads at the end of the ring until the ring is moved, reading fails or ctx ends. failed
// reports whether the hub has failed with the error. While the ring has no position, readRing waits
// until a subscriber comes.
func (h *Hub) readRing(ctx context.Context) (failed bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := h.openRingReader(stop)
	if r == nil {
		return false, h.waitForDemand(ctx)
	}

	err = h.fillRing(ctx, r)
	r.close()
	return isTerminal(err) && h.handleTerminalError(ctx, err), err
}

// openRingReader returns a reader at the end of the ring. stop is called when the ring is moved.
// The reader is nil while the ring has no position.
func (h *Hub) openRingReader(stop context.CancelFunc) *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hasPosition {
		return nil
	}

	h.stopRingReader = stop
	r := h.nextRingReader
	h.nextRingReader = nil
	if r == nil {
		r = newReader(h.log, h.ring.end())
	}
	return r
}

// resetRing empties the ring and moves it to a cursor. r is a reader at that cursor, or nil.
// verified says whether the cursor was read from the log. The caller holds h.mu.
func (h *Hub) resetRing(start events.Cursor, r *reader, verified bool) {
	// The reader of the old position may be waiting for a message. When it stops, Run opens a
	// reader at the new position.
	if h.stopRingReader != nil {
		h.stopRingReader()
		h.stopRingReader = nil
	}
	if h.nextRingReader != nil {
		h.nextRingReader.close()
	}

	h.ring = ring{base: start}
	h.hasPosition = true
	h.startVerified = verified
	h.nextRingReader = r
	h.hole = nil
	h.wakeRun()
	h.wakeSubscribers()
}

// handleTerminalError decides whether a terminal error of the ring's reader ends the hub, and
// reports whether it did. readCtx is the context of the reader.
//
// The hub continues in two cases. If nothing was read at the ring's position yet, the cursor of the
// subscriber that moved the ring there may be wrong. If the archive is damaged, readers that need
// only the stream can continue. In both cases the subscribers in the ring get the error. In all
// other cases the log itself has changed, and the hub fails.
func (h *Hub) handleTerminalError(readCtx context.Context, err error) (failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// If readCtx has ended, the ring was moved, and the error belongs to a position that nobody
	// reads any more. The ring moves only under mu, so this must be checked under mu: otherwise the
	// error could reach a subscriber that has just moved the ring.
	if readCtx.Err() != nil {
		return false
	}
	if h.startVerified && !errors.Is(err, events.ErrArchiveDamaged) {
		h.failLocked(err)
		return true
	}

	for s := range h.subs {
		if s.ownReader == nil {
			s.failed = err
		}
	}
	h.ring = ring{}
	h.hasPosition = false
	h.hole = nil
	h.wakeSubscribers()
	return false
}

// fillRing reads envelopes into the ring, as far ahead as the subscribers need, until ctx ends or
// reading fails with a terminal error.
func (h *Hub) fillRing(ctx context.Context, r *reader) error {
	for {
		if err := h.waitUntilNeeded(ctx); err != nil {
			return err
		}
		envs, err := r.nextEnvelopes(ctx, readBytes)
		if errors.Is(err, events.ErrHole) || err == nil && len(envs) == 0 {
			h.reportHole(ctx, err)
			continue
		}
		if err != nil {
			return err
		}

		h.mu.Lock()
		if ctx.Err() == nil { // otherwise the ring was moved meanwhile
			h.hole = nil
			if !h.startVerified {
				// Reading has succeeded after the cursor that a subscriber gave, so the log has
				// that cursor.
				h.waypoints.remember(h.ring.base)
			}
			h.ring.push(envs, h.opt.RingBytes)
			h.waypoints.remember(envs[len(envs)-1].Cursor)
			h.startVerified = true
			h.wakeSubscribers()
		}
		h.mu.Unlock()
	}
}

// reportHole passes the error of a hole to the subscribers at the end of the ring. If err is nil,
// it tells them that the ring is past the hole.
func (h *Hub) reportHole(ctx context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.hole = err
		h.holeReports++
		h.wakeSubscribers()
	}
}

// waitUntilNeeded waits until a subscriber needs the ring to grow.
func (h *Hub) waitUntilNeeded(ctx context.Context) error {
	for {
		if h.needsMore() {
			return ctx.Err()
		}
		if err := h.waitForDemand(ctx); err != nil {
			return err
		}
	}
}

// needsMore reports whether the ring holds less than AheadBytes after the most advanced subscriber
// in the ring. Detached subscribers must not make the ring read ahead of the others, so they count
// only while all subscribers in the ring are detached. With no subscriber in the ring, needsMore
// returns false.
func (h *Hub) needsMore() bool {
	h.mu.Lock()
	defer h.mu.Unlock()

	var attached, detached bool
	var attachedSeq, detachedSeq uint64
	for s := range h.subs {
		switch {
		case s.ownReader != nil || s.failed != nil:
		case s.detached:
			detached = true
			detachedSeq = max(detachedSeq, s.cur.Seq)
		default:
			attached = true
			attachedSeq = max(attachedSeq, s.cur.Seq)
		}
	}

	if attached {
		return h.ring.bytesAfter(attachedSeq) < h.opt.AheadBytes
	}
	return detached && h.ring.bytesAfter(detachedSeq) < h.opt.AheadBytes
}

// waitForDemand waits until a subscriber comes, leaves or advances.
func (h *Hub) waitForDemand(ctx context.Context) error {
	select {
	case <-h.demand:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wakeRun tells Run that a subscriber came, left or advanced.
func (h *Hub) wakeRun() {
	select {
	case h.demand <- struct{}{}:
	default:
	}
}

// wakeSubscribers tells the waiting subscribers to look at the ring again. The caller holds h.mu.
func (h *Hub) wakeSubscribers() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// fail ends the hub with an error, which its subscribers get.
func (h *Hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failLocked(err)
}

// failLocked is fail for a caller that holds h.mu. Only the first error counts.
func (h *Hub) failLocked(err error) {
	if h.err != nil {
		return
	}
	h.err = err
	if h.nextRingReader != nil {
		h.nextRingReader.close()
		h.nextRingReader = nil
	}
	h.wakeSubscribers()
}

// Close ends Run and all subscriptions, and waits until Run has returned.
func (h *Hub) Close() {
	h.stop()
	h.fail(events.ErrClosed)
	h.mu.Lock()
	running := h.running
	h.mu.Unlock()
	if running {
		<-h.runEnded
	}
}

// acceptsEvents is part of closer.
func (h *Hub) acceptsEvents() bool { return false }

// closeFromLog is part of closer.
func (h *Hub) closeFromLog(context.Context) error {
	h.Close()
	return nil
}

// Subscribe returns a subscription to the envelopes after the cursor. The first call of
// [Subscription.Next] checks that the log has the envelope at the cursor.
func (h *Hub) Subscribe(from events.Cursor) (*Subscription, error) {
	return h.SubscribeKinds(from, events.AllKinds)
}

// SubscribeKinds is [Hub.Subscribe] for a subscriber that needs only some kinds of events. While
// the subscriber is in the archive, it has a reader of its own, which skips blocks without these
// kinds: some envelopes are left out, and others have no events. From the stream it gets every
// envelope with all its events, because subscribers share the decoded envelopes.
func (h *Hub) SubscribeKinds(from events.Cursor, kinds events.KindSet) (*Subscription, error) {
	return h.subscribe(from, kinds, false)
}

// subscribe adds a subscriber. A detached subscriber never moves the ring; see
// [Hub.SubscribeDetached].
func (h *Hub) subscribe(from events.Cursor, kinds events.KindSet, detached bool) (*Subscription, error) {
	from, err := h.log.AdoptCursor(from)
	if err != nil {
		return nil, err
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}

	s := &Subscription{hub: h, cur: from, kinds: kinds, detached: detached}
	s.ctx, s.stop = context.WithCancel(h.ctx)
	switch {
	case kinds != events.AllKinds:
		// The subscriber may begin in the archive, where its reader skips envelopes that
		// subscribers of the ring need.
		s.ownReader = s.newReader()
	case h.hasPosition && h.ring.holds(from):
		// The subscriber joins the ring where the ring is.
	case !detached && (!h.hasPosition || len(h.subs) == 0):
		// No other subscriber uses the ring, so the ring may move to this subscriber.
		h.resetRing(from, nil, false)
	default:
		s.ownReader = s.newReader()
	}
	h.subs[s] = struct{}{}
	h.wakeRun()
	return s, nil
}
