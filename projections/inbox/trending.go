package inbox

import (
	"container/heap"
	"context"

	"github.com/skein-feed/skein/events"
)

// Heat supplies the scores for feeds in the order Trending, from a view of the counters store.
type Heat struct {
	// At is the position of the view.
	At events.Cursor
	// Scores returns the scores as they were at a position, which must not be after At.
	Scores func(seq uint64) Scores
}

// Scores has the heat of items at one position. It must be closed.
type Scores interface {
	// Of returns the score of an item. ok is false if it has none.
	Of(item string) (score int64, ok bool, err error)
	Close() error
}

// readTrending reads a page of a feed in the order Trending. A session ranks the newest
// [Feed.MaxRanked] pins that the feed had when the session began. It scores them at the position
// where it began, whatever is played meanwhile, so every pin keeps its place throughout the session
// (I9). Which of these pins exist and are visible is decided anew by each page.
//
// Each page reads all pins that are ranked, and keeps the n that come first after the page cursor.
func (q *Queries) readTrending(ctx context.Context, f *Feed, after PageCursor, n int) (page Page, err error) {
	if f.NewerThan != nil {
		return page, ErrPageCursor
	}
	session, last, err := q.trendingSession(f, after)
	if err != nil {
		return page, err
	}

	// Pins that are newer than the session are not ranked: they would push others out of the ranked
	// ones between two pages (I9).
	it, err := q.newFeedIterator(f, appendNewestFirst(nil, session.time))
	if err != nil {
		return page, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()
	it.remainingPins = f.MaxRanked

	if page.ReadMarker, err = readMarker(q.state, f.Reader); err != nil {
		return page, err
	}

	scores := f.Heat.Scores(session.seq)
	defer func() {
		if closeErr := scores.Close(); err == nil {
			err = closeErr
		}
	}()

	best := topPins{limit: n + 1} // one more than the page needs reports whether there is a next page
	shownItems := map[string]bool{}
	for !it.ended {
		pins, sortKeys, err := it.nextBatch(ctx, trendingBatch, nil, shownItems)
		if err != nil {
			return page, err
		}
		for i := range pins {
			key := trendingKey{sortKey: sortKeys[i]}
			if key.score, key.scored, err = scores.Of(pins[i].Item); err != nil {
				return page, err
			}
			pins[i].Score = key.score
			if last == nil || last.before(&key) {
				best.add(rankedPin{pins[i], key})
			}
		}
	}

	page.OutboxesOpened = it.outboxesOpened
	entries := best.takeSorted()
	if len(entries) > n {
		entries = entries[:n]
		page.Next = trendingCursor(session, &entries[n-1].key)
	}
	for i := range entries {
		page.Pins = append(page.Pins, entries[i].pin)
	}
	return page, nil
}

// trendingSession returns the session that a page belongs to, and the place of the last entry
// before the page. Without a page cursor it begins a session, and last is nil.
func (q *Queries) trendingSession(f *Feed, after PageCursor) (session heatSession, last *trendingKey, err error) {
	// The two stores may be at different positions. A session uses the older one, which both can
	// answer for.
	oldest := q.state.Cursor()
	if f.Heat.At.Seq < oldest.Seq {
		oldest = f.Heat.At
	}
	if after == nil {
		return heatSession{oldest.Seq, oldest.LastTime}, nil, nil
	}

	session, key, err := parseTrendingCursor(after)
	if err != nil {
		return session, nil, err
	}
	if session.seq > oldest.Seq {
		return session, nil, ErrPageCursor
	}
	now := max(q.state.Cursor().LastTime, f.Heat.At.LastTime)
	if now-session.time > SessionLifetime {
		return session, nil, ErrExpired
	}
	return session, &key, nil
}

// trendingBatch is how many pins readTrending reads at a time. It asks [Feed.HiddenItems] once for
// each such batch.
const trendingBatch = 512

// rankedPin is a pin with its place in the order Trending.
type rankedPin struct {
	pin Pin
	key trendingKey
}

// topPins keeps the first limit pins of those that are added, in the order Trending. It is a heap
// with the last of them on top, which a pin that comes before it replaces.
type topPins struct {
	limit int
	pins  []rankedPin
}

func (h *topPins) add(p rankedPin) {
	if len(h.pins) < h.limit {
		heap.Push(h, p)
		return
	}
	if p.key.before(&h.pins[0].key) {
		h.pins[0] = p
		heap.Fix(h, 0)
	}
}

// takeSorted returns the pins in order and leaves the heap empty.
func (h *topPins) takeSorted() []rankedPin {
	sorted := make([]rankedPin, len(h.pins))
	for i := len(sorted) - 1; i >= 0; i-- {
		sorted[i] = heap.Pop(h).(rankedPin) //nolint:forcetypeassert // the heap holds nothing else
	}
	return sorted
}

// Len is part of heap.Interface.
func (h *topPins) Len() int { return len(h.pins) }

// Less is part of heap.Interface. It is reversed, so that the last pin is on top.
func (h *topPins) Less(i, j int) bool { return h.pins[j].key.before(&h.pins[i].key) }

// Swap is part of heap.Interface.
func (h *topPins) Swap(i, j int) { h.pins[i], h.pins[j] = h.pins[j], h.pins[i] }

// Push is part of heap.Interface.
func (h *topPins) Push(p any) {
	h.pins = append(h.pins, p.(rankedPin)) //nolint:forcetypeassert // the heap holds nothing else
}

// Pop is part of heap.Interface. It removes the last pin of the slice.
func (h *topPins) Pop() any {
	last := h.pins[len(h.pins)-1]
	h.pins = h.pins[:len(h.pins)-1]
	return last
}
