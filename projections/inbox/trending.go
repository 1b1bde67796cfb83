package inbox

import (
	"bytes"
	"container/heap"
	"context"

	"github.com/skein-feed/skein/events"
)

// Heat supplies the scores for feeds in the order Trending, from a view of the counters store.
type Heat struct {
	// At is the position of the view.
	At events.Cursor
	// Scores returns the scores as they were at the position with the sequence seq, which must not
	// be after that of At. The caller must close the scores.
	Scores func(seq uint64) Scores
}

// Scores has the heat of items at one position.
type Scores interface {
	// Of returns the score of an item. ok is false if the item has none.
	Of(item string) (score int64, ok bool, err error)
	Close() error
}

// readTrending reads a page of a feed in the order Trending. A session is the sequence of pages
// that a caller reads with the cursors of the pages before. The first page ranks the newest
// [Feed.MaxRanked] pins. The pages after it rank all pins from the beginning of the session down to
// the oldest of these, however many have appeared there meanwhile, so no pin pushes another one
// out. All pages use the scores of the beginning of the session, whatever is played meanwhile. So
// every pin keeps its place throughout the session (I9).
//
// Each page decides anew which pins live and are visible, and returns the n that come first after
// the page cursor.
func (q *Queries) readTrending(
	ctx context.Context, f *Feed, after PageCursor, n int,
) (page Page, err error) {
	if f.NewerThan != nil {
		return page, ErrPageCursor // NewerThan is valid in the order Newest only
	}

	session, last, err := q.trendingSession(f, after)
	if err != nil {
		return page, err
	}

	it, err := q.newFeedIterator(ctx, f, appendNewestFirst(nil, session.time))
	if err != nil {
		return page, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	isChosen := session.oldest != nil
	if isChosen {
		// No sort key lies between the oldest one and that one with a zero byte appended.
		it.bound = append(bytes.Clone(session.oldest), 0)
	} else {
		it.remainingPins = f.MaxRanked // nextBatch sets it.ended after so many pins
	}

	if page.ReadMarker, err = readMarker(q.state, f.Reader); err != nil {
		return page, err
	}

	scores := f.Heat.Scores(session.seq)
	defer func() {
		if closeErr := scores.Close(); err == nil {
			err = closeErr
		}
	}()

	// Keep one pin more than the page needs, to know whether there is a next page.
	best := topPins{limit: n + 1}

	// With OnePerItem, the newest pin of each item is ranked. Each page ranks all pins again, so
	// shownItems needs no items of earlier pages.
	shownItems := map[string]bool{}

	for !it.ended {
		pins, sortKeys, err := it.nextBatch(ctx, trendingBatch, shownItems)
		if err != nil {
			return page, err
		}
		for i := range pins {
			key := trendingKey{sortKey: sortKeys[i]}
			if key.score, key.scored, err = scores.Of(pins[i].Item); err != nil {
				return page, err
			}
			pins[i].Score = key.score

			// Earlier pages have shown the pins up to and including last.
			if last == nil || last.before(&key) {
				best.add(rankedPin{pins[i], key})
			}
		}
	}

	if !isChosen {
		session.oldest = it.lastRead
	}
	if last != nil {
		if err := q.checkSessionScores(last, scores); err != nil {
			return page, err
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

// trendingSession returns the session to which a page belongs, and the place of the last entry of
// the page before. If after is nil, it begins a session, and last is nil.
func (q *Queries) trendingSession(
	f *Feed, after PageCursor,
) (session heatSession, last *trendingKey, err error) {
	if after == nil {
		return q.newTrendingSession(f), nil, nil
	}

	session, key, err := parseTrendingCursor(after)
	if err != nil {
		return session, nil, err
	}
	// The caller must open the counters store at a position that contains the beginning of the
	// session. A cursor with a later session was not returned by an earlier page.
	if session.seq > f.Heat.At.Seq {
		return session, nil, ErrPageCursor
	}

	// Only the log time of the counters store ends a session, because that store drops old scores
	// as its log time advances. If it is outdated, it drops none, although the log time of the
	// inbox store advances.
	if f.Heat.At.LastTime-session.time > SessionLifetime {
		return session, nil, ErrExpired
	}
	return session, &key, nil
}

// newTrendingSession returns the session that begins at the positions of the inbox store and of the
// counters store.
func (q *Queries) newTrendingSession(f *Feed) heatSession {
	// The two views may be at different positions. A new session uses the older position, because
	// both views have what came before it.
	begin := q.state.Cursor()
	if f.Heat.At.Seq < begin.Seq {
		begin = f.Heat.At
	}

	// If the inbox store is outdated, or far behind for another reason, the counters store has
	// dropped the scores of the position of the inbox, and the hottest items would seem to have no
	// score. So the session ranks the pins of the inbox by the present scores.
	if f.Heat.At.LastTime-begin.LastTime > SessionLifetime {
		begin = f.Heat.At
	}
	return heatSession{seq: begin.Seq, time: begin.LastTime}
}

// checkSessionScores returns [ErrExpired] if the last entry of the page before had another score
// when that page was read. The scores of a session never change, except if the counters store was
// rebuilt with other settings between the two pages. With such scores, the session would repeat
// entries and leave others out (I9). If the pin does not live any more, there is nothing to
// compare.
func (q *Queries) checkSessionScores(last *trendingKey, scores Scores) error {
	created, owner, id, err := cutSortKey(last.sortKey)
	if err != nil {
		return err
	}
	pin, err := q.livingPin(owner, id)
	if err != nil || pin == nil || pin.Created != created {
		return err
	}
	score, scored, err := scores.Of(pin.Item)
	if err == nil && (scored != last.scored || score != last.score) {
		err = ErrExpired
	}
	return err
}

// trendingBatch is how many pins readTrending reads at a time. [Feed.HiddenItems] is called once
// for each such batch.
const trendingBatch = 512

// rankedPin is a pin with its place in the order Trending.
type rankedPin struct {
	pin Pin
	key trendingKey
}

// topPins keeps, of the pins that were added, the first ones in the order Trending, up to limit. It
// is a heap with the last of the kept pins on top. Once limit pins are kept, a new pin that comes
// before the pin on top replaces the pin on top.
type topPins struct {
	limit int
	pins  []rankedPin
}

// add keeps a pin if it is among the first limit pins that were added so far.
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

// takeSorted returns the pins in the order Trending and leaves the heap empty.
func (h *topPins) takeSorted() []rankedPin {
	// Pop returns the last pin first, so fill the slice from its end.
	sorted := make([]rankedPin, len(h.pins))
	for i := len(sorted) - 1; i >= 0; i-- {
		sorted[i] = heap.Pop(h).(rankedPin) //nolint:forcetypeassert // the heap holds nothing else
	}
	return sorted
}

// Len is part of heap.Interface.
func (h *topPins) Len() int { return len(h.pins) }

// Less is part of heap.Interface. It is reversed: package heap puts the least element on top, and
// the element on top must be the pin that comes last.
func (h *topPins) Less(i, j int) bool { return h.pins[j].key.before(&h.pins[i].key) }

// Swap is part of heap.Interface.
func (h *topPins) Swap(i, j int) { h.pins[i], h.pins[j] = h.pins[j], h.pins[i] }

// Push is part of heap.Interface.
func (h *topPins) Push(p any) {
	h.pins = append(h.pins, p.(rankedPin)) //nolint:forcetypeassert // the heap holds nothing else
}

// Pop is part of heap.Interface. It removes the last pin of the slice, to which package heap has
// moved the pin on top.
func (h *topPins) Pop() any {
	last := h.pins[len(h.pins)-1]
	h.pins = h.pins[:len(h.pins)-1]
	return last
}
