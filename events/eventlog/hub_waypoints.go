package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/skein-feed/skein/events"
)

// maxWaypoints is the number of cursors that a hub remembers. Together they take about 200 KiB.
const maxWaypoints = 2048

// waypoints are cursors of the stream that readers have passed. To begin at a sequence, a reader
// must know the last log time that was assigned and where its warm-up begins, which it learns only
// by reading. With waypoints it reads from the nearest one before the sequence, and not from the
// beginning of the log.
type waypoints struct {
	cursors []events.Cursor // sorted by sequence
	// minDistance is the minimum distance between two waypoints, in sequences. It doubles when
	// there are too many.
	minDistance uint64
}

// remember adds a cursor, unless there is one that is nearer than the minimum distance.
func (w *waypoints) remember(c events.Cursor) {
	if c.Seq == 0 || c.IsArchival() {
		return // the start of the log is always known, and the stream cannot be read from a cursor of the archive
	}

	i := w.indexAfter(c.Seq)
	isNearPrevious := i > 0 && c.Seq-w.cursors[i-1].Seq < max(w.minDistance, 1)
	isNearNext := i < len(w.cursors) && w.cursors[i].Seq-c.Seq < w.minDistance
	if isNearPrevious || isNearNext {
		return
	}

	w.cursors = slices.Insert(w.cursors, i, c)
	for len(w.cursors) > maxWaypoints {
		w.thinOut()
	}
}

// thinOut doubles the minimum distance and removes the waypoints that are too near to the one
// before.
func (w *waypoints) thinOut() {
	w.minDistance = max(2*w.minDistance, 2)
	lastSeq := w.cursors[0].Seq
	rest := slices.DeleteFunc(w.cursors[1:], func(c events.Cursor) bool {
		if c.Seq-lastSeq < w.minDistance {
			return true
		}
		lastSeq = c.Seq
		return false
	})
	w.cursors = w.cursors[:1+len(rest)]
}

// indexAfter returns the index of the first waypoint after the sequence.
func (w *waypoints) indexAfter(seq uint64) int {
	return sort.Search(len(w.cursors), func(i int) bool { return w.cursors[i].Seq > seq })
}

// lastAtOrBefore returns the last waypoint at or before the sequence.
func (w *waypoints) lastAtOrBefore(seq uint64) (events.Cursor, bool) {
	i := w.indexAfter(seq)
	if i == 0 {
		return events.Cursor{}, false
	}
	return w.cursors[i-1], true
}

// removeTrimmed removes the waypoints whose warm-up begins before first, the first sequence of the
// stream. If few remain, it halves the minimum distance.
func (w *waypoints) removeTrimmed(first uint64) {
	w.cursors = slices.DeleteFunc(w.cursors, func(c events.Cursor) bool { return c.WarmSeq < first })
	if len(w.cursors) < maxWaypoints/4 {
		w.minDistance /= 2
	}
}

// CursorAt returns the cursor after a sequence. A reader that begins there gets the same envelopes
// as a reader that has read the whole log. A cursor in the archive has no last time.
//
// CursorAt may have to read a part of the log. Calls that do so run one at a time. CursorAt fails
// with [events.ErrPositionAhead] after the end of the log, and with [events.ErrTrimmed] if neither
// the archive nor the stream has what a reader at the sequence needs, see [Hub.EarliestSeq].
func (h *Hub) CursorAt(ctx context.Context, seq uint64) (events.Cursor, error) {
	if err := h.log.checkNotBeyondEnd(ctx, seq); err != nil {
		return events.Cursor{}, err
	}
	if c, ok, err := h.knownCursor(seq); ok || err != nil {
		return c, err
	}

	select {
	case h.seekSlot <- struct{}{}:
		defer func() { <-h.seekSlot }()
	case <-ctx.Done():
		return events.Cursor{}, ctx.Err()
	}
	head, err := h.log.Head(ctx)
	if err != nil {
		return events.Cursor{}, err
	}
	end, err := h.log.archiveEnd()
	if err != nil {
		return events.Cursor{}, err
	}

	// starts are the cursors from which reading may reach the sequence, in ascending order.
	starts := []events.Cursor{h.log.Start()}
	if h.log.meta().first > 1 {
		starts = append(starts, h.log.EpochStart())
	}
	starts = append(starts, end)
	h.mu.Lock()
	h.waypoints.removeTrimmed(head.First)
	waypoint, ok := h.waypoints.lastAtOrBefore(seq)
	h.mu.Unlock()
	if ok {
		starts = append(starts, waypoint)
	}

	// Begin with the last start, which is the waypoint if there is one. An earlier start may work
	// where the stream was trimmed.
	for _, from := range slices.Backward(starts) {
		if from.Seq > seq {
			continue
		}
		c, err := h.readCursorAt(ctx, from, seq)
		// A hole that ends before the stream begins counts like trimming: another start may avoid
		// it.
		hole, isHole := errors.AsType[*HoleError](err)
		isBeforeStream := isHole && hole.Last < head.First
		if !isBeforeStream && !errors.Is(err, events.ErrTrimmed) {
			return c, err
		}
	}
	return events.Cursor{}, fmt.Errorf("%w: the stream begins at sequence %d, the archive ends at %d, and what a reader after %d needs "+
		"is in neither", events.ErrTrimmed, head.First, end.Seq, seq)
}

// knownCursor returns the cursor after a sequence if the hub knows it without reading the log.
func (h *Hub) knownCursor(seq uint64) (c events.Cursor, ok bool, err error) {
	end, err := h.log.archiveEnd()
	if err != nil {
		return c, false, err
	}
	switch {
	case seq == 0:
		return h.log.Start(), true, nil
	case seq+1 == h.log.meta().first:
		return h.log.EpochStart(), true, nil
	case seq < end.Seq:
		c = h.log.Start()
		c.Seq = seq
		return c, true, nil
	case seq == end.Seq:
		return end, true, nil
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok = h.waypoints.lastAtOrBefore(seq); ok && c.Seq == seq {
		return c, true, nil
	}
	// If the ring has an envelope after the sequence but none at it, no envelope has the sequence.
	i := h.ring.indexAfter(seq)
	if i > 0 && h.startVerified && (h.ring.envs[i-1].Seq() == seq || i < len(h.ring.envs)) {
		return h.ring.envs[i-1].Cursor, true, nil
	}
	return c, false, nil
}

// readCursorAt reads from a cursor up to a sequence, and returns the cursor after that sequence.
func (h *Hub) readCursorAt(ctx context.Context, from events.Cursor, seq uint64) (events.Cursor, error) {
	if from.Seq == seq {
		return from, h.log.CheckCursor(ctx, from)
	}
	s, err := h.SubscribeDetached(from, events.AllKinds)
	if err != nil {
		return events.Cursor{}, err
	}
	defer s.Close()

	for at := from; ; {
		envs, err := s.Next(ctx, readBytes)
		if err != nil {
			return events.Cursor{}, err
		}
		for _, env := range envs {
			if env.Seq() > seq { // no envelope has this sequence
				return at, nil
			}
			at = env.Cursor
			if at.Seq == seq {
				return at, nil
			}
		}
	}
}

// EarliestSeq returns the lowest sequence that [Hub.CursorAt] accepts. It is 0 unless the stream
// was trimmed and there is no archive.
func (h *Hub) EarliestSeq(ctx context.Context) (uint64, error) {
	end, err := h.log.archiveEnd()
	if err != nil {
		return 0, err
	}
	head, err := h.log.Head(ctx)
	if err != nil || end.Seq > 0 || head.First <= 1 {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waypoints.removeTrimmed(head.First)
	if len(h.waypoints.cursors) > 0 {
		return h.waypoints.cursors[0].Seq, nil
	}
	return head.Last, nil
}

// SubscribeDetached is [Hub.SubscribeKinds] for a subscriber that must not slow down others. The
// subscriber shares the envelopes in the ring, but never moves the ring, and the ring does not read
// ahead for it while other subscribers use the ring.
func (h *Hub) SubscribeDetached(from events.Cursor, kinds events.KindSet) (*Subscription, error) {
	return h.subscribe(from, kinds, true)
}
