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
	// maxLead is how many sequences a subscriber may be ahead of the ring and still wait for the ring to reach it. If it is further
	// ahead, the ring is moved to it: subscribers behind then read for themselves, instead of this one waiting long.
	maxLead = 4096
)

// HubOptions are the settings of a [Hub].
type HubOptions struct {
	// RingBytes bounds the memory of the decoded envelopes that subscribers near the head share. Default 32 MiB.
	RingBytes int
	// AheadBytes bounds how much of that is read before any subscriber has asked for it. Default 16 MiB, at most
	// half of RingBytes.
	AheadBytes int
}

// Hub reads and decodes the log once for all its subscribers, as long as they are close to each other: they share
// a ring of decoded envelopes. A subscriber that has fallen out of the ring reads and decodes for itself until it
// is back. One hub serves a process.
//
//	log ──► reader ──► ring: [ oldest … newest ] ──► subscribers in the ring
//	  └───► reader of one subscriber, until it reaches the ring
type Hub struct {
	log *Log
	opt HubOptions

	ctx  context.Context //nolint:containedctx // it ends with Close, and ends all waiting
	stop context.CancelFunc

	mu            sync.Mutex
	ring          ring
	hasPosition   bool // the ring has a position in the log
	startVerified bool // what the ring begins with was read from the log, not only claimed by a subscriber
	// nextRingReader is a reader that stands at the end of the ring, for Run to continue with; nil means Run makes its own.
	nextRingReader *reader
	stopRingReader context.CancelFunc // stops the reading for an older position of the ring

	// points are cursors that reading may begin at. seeking is a semaphore of one: looking for another reads the log, and two
	// searches would read the same part twice.
	points  waypoints
	seeking chan struct{}

	subs    map[*Subscription]struct{}
	changed chan struct{} // closed when the ring changes, or err is set
	demand  chan struct{} // capacity 1: a subscriber came, went or advanced
	running bool
	ended   chan struct{} // closed when Run has returned
	err     error         // final

	// hole is set while the ring stands in front of a hole and cannot grow. holeReports counts how often the hole was found, so that each
	// subscriber gets the error once for every look.
	hole        error
	holeReports uint64
}

// NewHub returns a hub. Its subscribers get envelopes while [Hub.Run] runs.
func NewHub(l *Log, opt HubOptions) *Hub {
	if opt.RingBytes <= 0 {
		opt.RingBytes = defaultRingBytes
	}
	if opt.AheadBytes <= 0 {
		opt.AheadBytes = defaultAheadBytes
	}
	opt.AheadBytes = min(opt.AheadBytes, opt.RingBytes/2)
	h := &Hub{
		log:     l,
		opt:     opt,
		subs:    make(map[*Subscription]struct{}),
		changed: make(chan struct{}),
		demand:  make(chan struct{}, 1),
		seeking: make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// Head returns the highest sequence that is known to be in the log.
func (h *Hub) Head() uint64 { return h.log.last.Load() }

// Recent returns the envelope with a sequence if the ring still has it, or else nil. The envelope is shared: it must not be
// changed.
func (h *Hub) Recent(seq uint64) *events.Envelope {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring.at(seq)
}

// Run reads for the subscribers until the context ends or the hub is closed, which is no error, or until the log
// turns out to be no longer the one that was read, such as [events.ErrLogShorter]. It is called once.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	if h.running {
		h.mu.Unlock()
		return errors.New("eventlog: a hub runs once")
	}
	h.running = true
	h.mu.Unlock()
	defer close(h.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)() //nolint:contextcheck // Run ends with either
	if err := h.log.adopt(h); err != nil {
		h.fail(err)
		return err
	}
	defer h.log.disown(h)
	for ctx.Err() == nil {
		seat, r := h.openRingReader(ctx)
		if r == nil {
			_ = h.waitForDemand(ctx)
			continue
		}
		err := h.fillRing(seat, r)
		r.close()
		if isTerminal(err) && seat.Err() == nil && h.handleTerminalError(err) {
			return err
		}
	}
	h.fail(events.ErrClosed)
	return nil
}

// openRingReader returns a reader at the end of the ring, and a context that ends when the ring is moved elsewhere. It returns no reader
// while the ring has no position.
func (h *Hub) openRingReader(ctx context.Context) (context.Context, *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hasPosition {
		return ctx, nil
	}
	ctx, h.stopRingReader = context.WithCancel(ctx)
	r := h.nextRingReader
	h.nextRingReader = nil
	if r == nil {
		r = newReader(h.log, h.ring.end())
	}
	return ctx, r
}

// resetRing begins the ring anew at a cursor, with a reader that stands there or nil. h.mu is held.
func (h *Hub) resetRing(at events.Cursor, leader *reader, proven bool) {
	if h.stopRingReader != nil {
		h.stopRingReader()
		h.stopRingReader = nil
	}
	if h.nextRingReader != nil {
		h.nextRingReader.close()
	}
	h.ring, h.hasPosition, h.startVerified, h.nextRingReader, h.hole = ring{base: at}, true, proven, leader, nil
	h.wakeRun()
	h.wakeSubscribers()
}

// handleTerminalError decides whom a final error of reading concerns. If nothing was read at the ring's position yet, the cursor that a
// subscriber brought may be wrong; if the archive is damaged, readers of the stream can continue. In both cases the subscribers in
// the ring get the error, and the hub continues. Otherwise the log itself has changed, and the hub fails.
func (h *Hub) handleTerminalError(err error) (failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.startVerified && !errors.Is(err, events.ErrArchiveDamaged) { // readers that need nothing of the archive continue
		h.failLocked(err)
		return true
	}
	for s := range h.subs {
		if s.ownReader == nil {
			s.failed = err
		}
	}
	h.ring, h.hasPosition, h.hole = ring{}, false, nil
	h.wakeSubscribers()
	return false
}

// fillRing reads into the ring.
func (h *Hub) fillRing(ctx context.Context, r *reader) error {
	for {
		if err := h.waitUntilNeeded(ctx); err != nil {
			return err
		}
		envs, err := r.next(ctx, readBytes)
		if errors.Is(err, events.ErrHole) || err == nil && len(envs) == 0 {
			h.reportHole(ctx, err)
			continue
		}
		if err != nil {
			return err
		}
		h.mu.Lock()
		if ctx.Err() == nil {
			h.hole = nil
			if !h.startVerified {
				h.points.note(h.ring.base)
			}
			h.ring.push(envs, h.opt.RingBytes)
			h.points.note(envs[len(envs)-1].Cursor)
			h.startVerified = true
			h.wakeSubscribers()
		}
		h.mu.Unlock()
	}
}

// reportHole passes the error of a hole to the subscribers at the end of the ring; nil means that the ring is past the hole.
func (h *Hub) reportHole(ctx context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.hole = err
		h.holeReports++
		h.wakeSubscribers()
	}
}

// waitUntilNeeded waits until what is read next is within reach of the most advanced subscriber in the ring.
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

func (h *Hub) needsMore() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Subscribers of SubscribeBeside must not make the ring read ahead of the others. They count only while no other subscriber is
	// in the ring.
	sharing, beside, first, firstBeside := false, false, uint64(0), uint64(0)
	for s := range h.subs {
		switch {
		case s.ownReader != nil || s.failed != nil:
		case s.detached:
			beside, firstBeside = true, max(firstBeside, s.cur.Seq)
		default:
			sharing, first = true, max(first, s.cur.Seq)
		}
	}
	if !sharing {
		sharing, first = beside, firstBeside
	}
	return sharing && h.ring.bytesAfter(first) < h.opt.AheadBytes
}

func (h *Hub) waitForDemand(ctx context.Context) error {
	select {
	case <-h.demand:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wakeRun wakes Run.
func (h *Hub) wakeRun() {
	select {
	case h.demand <- struct{}{}:
	default:
	}
}

// wakeSubscribers wakes the subscribers. h.mu is held.
func (h *Hub) wakeSubscribers() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// fail ends the hub for its subscribers.
func (h *Hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failLocked(err)
}

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

// Close ends Run and every subscription.
func (h *Hub) Close() {
	h.stop()
	h.fail(events.ErrClosed)
	h.mu.Lock()
	running := h.running
	h.mu.Unlock()
	if running {
		<-h.ended
	}
}

func (h *Hub) intake() bool { return false }

func (h *Hub) shut(context.Context) error {
	h.Close()
	return nil
}

// Subscribe returns a subscription to what comes after the cursor. The first [Subscription.Next] checks that the log holds what the
// cursor was taken from.
func (h *Hub) Subscribe(from events.Cursor) (*Subscription, error) {
	return h.SubscribeKinds(from, events.AllKinds)
}

// SubscribeKinds is [Hub.Subscribe] for a subscriber that needs only some kinds of events. While it reads the archive it has a
// reader of its own, which skips blocks without these kinds: envelopes may be left out there, and others come without events. From
// the stream it gets every envelope, because the decoded envelopes are shared.
func (h *Hub) SubscribeKinds(from events.Cursor, kinds events.KindSet) (*Subscription, error) {
	return h.subscribe(from, kinds, false)
}

func (h *Hub) subscribe(from events.Cursor, kinds events.KindSet, beside bool) (*Subscription, error) {
	from, err := h.log.Adopt(from)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	s := &Subscription{hub: h, cur: from, kinds: kinds, detached: beside}
	s.ctx, s.stop = context.WithCancel(h.ctx)
	switch {
	case kinds != events.AllKinds: // it may begin in the archive, where it skips what others need
		s.ownReader = s.newReader()
	case h.hasPosition && h.ring.holds(from):
	case !beside && (!h.hasPosition || len(h.subs) == 0):
		h.resetRing(from, nil, false)
	default:
		s.ownReader = s.newReader()
	}
	h.subs[s] = struct{}{}
	h.wakeRun()
	return s, nil
}
