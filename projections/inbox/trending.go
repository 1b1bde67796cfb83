package inbox

import (
	"container/heap"
	"context"

	"github.com/skein-feed/skein/events"
)

// Heat is where a feed by heat has its scores from: a view of counters.
type Heat struct {
	// At is the position of the view.
	At events.Cursor
	// Scores returns the scores at a position that is not after At.
	Scores func(seq uint64) Scores
}

// Scores reports the heat of items at a position.
type Scores interface {
	// Of returns the score of an item. ok is false if it has none.
	Of(item string) (score int64, ok bool, err error)
	Close() error
}

// trending reads a page of a feed by heat. The newest pins of the feed are ranked, [Feed.Ranked] of those that were there when the session
// began. Scores are those at the position where it began, whatever is played meanwhile, so every pin has one sort key throughout (I9);
// the pins are those of now. It walks over what is ranked and keeps what is first after the page cursor.
func (q *Queries) readTrending(ctx context.Context, f *Feed, after PageCursor, n int) (page Page, err error) {
	if f.Above != nil {
		return page, ErrPageCursor
	}
	now := q.state.Cursor()
	if f.Heat.At.Seq < now.Seq {
		now = f.Heat.At
	}
	s := heatSession{now.Seq, now.LastTime}
	var last *trendingKey
	if after != nil {
		at, sortKey, err := parseTrendingCursor(after)
		if err != nil {
			return page, err
		}
		if at.seq > now.Seq {
			return page, ErrPageCursor
		}
		if max(q.state.Cursor().LastTime, f.Heat.At.LastTime)-at.time > SessionLife {
			return page, ErrExpired
		}
		s, last = at, &sortKey
	}
	// Pins that are newer than the session are not ranked: they would push others out of the ranked ones between two pages (I9).
	w, err := q.newFeedIterator(f, appendNewestFirst(nil, s.time))
	if err != nil {
		return page, err
	}
	defer func() {
		if cerr := w.close(); err == nil {
			err = cerr
		}
	}()
	w.remainingPins = f.Ranked
	if page.Read, err = readMarker(q.state, f.Reader); err != nil {
		return page, err
	}
	scores := f.Heat.Scores(s.seq)
	defer func() {
		if cerr := scores.Close(); err == nil {
			err = cerr
		}
	}()
	best := topPins{limit: n + 1}
	shown := map[string]bool{}
	for !w.ended {
		pins, sortKeys, err := w.nextBatch(ctx, trendingBatch, nil, shown)
		if err != nil {
			return page, err
		}
		for i := range pins {
			h := trendingKey{sortKey: sortKeys[i]}
			if h.score, h.scored, err = scores.Of(pins[i].Item); err != nil {
				return page, err
			}
			pins[i].Score = h.score
			if last == nil || last.before(&h) {
				best.add(rankedPin{pins[i], h})
			}
		}
	}
	page.Outboxes = w.outboxesOpened
	entries := best.sorted()
	if len(entries) > n {
		entries = entries[:n]
		page.Next = trendingCursor(s, &entries[n-1].key)
	}
	for i := range entries {
		page.Pins = append(page.Pins, entries[i].pin)
	}
	return page, nil
}

// trendingBatch is how many pins are asked about at once whether they are hidden.
const trendingBatch = 512

type rankedPin struct {
	pin Pin
	key trendingKey
}

// topPins keeps the first most of the pins that are added. It is a heap with the last of them on top, which the next better one replaces.
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

// sorted empties the heap.
func (h *topPins) sorted() []rankedPin {
	out := make([]rankedPin, len(h.pins))
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = heap.Pop(h).(rankedPin) //nolint:forcetypeassert // it holds nothing else
	}
	return out
}

// Len is part of heap.Interface, as are the next four.
func (h *topPins) Len() int           { return len(h.pins) }
func (h *topPins) Less(i, j int) bool { return h.pins[j].key.before(&h.pins[i].key) }
func (h *topPins) Swap(i, j int)      { h.pins[i], h.pins[j] = h.pins[j], h.pins[i] }

// Push adds a rankedPin.
func (h *topPins) Push(p any) { h.pins = append(h.pins, p.(rankedPin)) } //nolint:forcetypeassert // it holds nothing else

// Pop removes the last.
func (h *topPins) Pop() any {
	last := h.pins[len(h.pins)-1]
	h.pins = h.pins[:len(h.pins)-1]
	return last
}
