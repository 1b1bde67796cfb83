package inbox

import (
	"bytes"
	"context"
	"slices"
)

// readNewest reads a page of a feed in the order Newest. A later page continues after the sort key
// of the last entry, so a pin that belongs to the feed throughout the session is shown once, in its
// place (I9).
func (q *Queries) readNewest(ctx context.Context, f *Feed, after PageCursor, n int) (page Page, err error) {
	page.Top = topCursor(q.state.Cursor().LastTime)

	// bound is an exclusive upper bound of the sort keys on the page; nil means no bound.
	var bound []byte
	if f.NewerThan != nil {
		if bound, err = parseTopCursor(f.NewerThan); err != nil {
			return Page{}, err
		}
	}

	shownItems := map[string]bool{}
	var from, sessionTop []byte
	if after != nil {
		if from, sessionTop, err = q.resumeNewest(ctx, f, after, shownItems); err != nil {
			return Page{}, err
		}
	}

	it, err := q.newFeedIterator(f, from)
	if err != nil {
		return Page{}, err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	if page.ReadMarker, err = readMarker(q.state, f.Reader); err != nil {
		return Page{}, err
	}
	if f.UnreadOnly {
		marker, err := q.unreadMarker(f)
		if err != nil {
			return Page{}, err
		}
		if marker > 0 {
			bound = appendNewestFirst(nil, marker)
		}
	}

	var lastSortKey []byte
	for {
		// Read one pin more than the page needs: only if there is one does the page have a cursor
		// to the next. If some pins may be hidden, read a few more, because a second batch asks
		// HiddenItems again, and that costs as much as reading several pins.
		missing := n - len(page.Pins)
		wanted := missing + 1
		if f.HiddenItems != nil {
			wanted += missing / 8
		}
		batch, sortKeys, err := it.nextBatch(ctx, wanted, bound, shownItems)
		if err != nil {
			return Page{}, err
		}

		page.OutboxesOpened = it.outboxesOpened
		page.Pins = slices.Grow(page.Pins, min(len(batch), missing))
		for i := range batch {
			if len(page.Pins) == n {
				page.Next = newestCursor(lastSortKey, sessionTop)
				return page, nil
			}
			page.Pins = append(page.Pins, batch[i])
			lastSortKey = sortKeys[i]
			if sessionTop == nil && f.OnePerItem {
				sessionTop = sortKeys[i]
			}
		}
		if it.ended {
			return page, nil
		}
	}
}

// resumeNewest decodes a page cursor. It returns the sort key where the page begins and, for a feed
// with one entry per item, the sort key of the session's first entry. For such a feed it also adds
// the items that earlier pages have shown to shownItems.
func (q *Queries) resumeNewest(
	ctx context.Context, f *Feed, after PageCursor, shownItems map[string]bool,
) (from, sessionTop []byte, err error) {
	last, sessionTop, err := parseNewestCursor(after)
	if err != nil {
		return nil, nil, err
	}
	// Only cursors of feeds with one entry per item have the top of the session.
	if f.OnePerItem != (len(sessionTop) > 0) {
		return nil, nil, ErrPageCursor
	}

	// The cursor does not list the items that were shown, which may be many. They are found again
	// by reading the earlier pages.
	if f.OnePerItem {
		if err := q.collectItemsBetween(ctx, f, sessionTop, last, shownItems); err != nil {
			return nil, nil, err
		}
	}
	// No sort key lies between last and last with a zero byte behind it, so the page begins right
	// after last.
	return append(bytes.Clone(last), 0), sessionTop, nil
}

// nextBatch returns the next pins that the feed shows, at most n, with their sort keys. The sort
// keys are valid until the iterator is closed. A nil bound has no effect; otherwise the feed ends
// before the first sort key that is bound or greater. nextBatch sets w.ended when the feed ends. It
// returns at least one pin before that. It calls [Feed.HiddenItems] once for many pins.
//
// For a feed with [Feed.OnePerItem], nextBatch skips pins whose item is in shownItems, and adds the
// items of the pins that it does not skip.
func (w *feedIterator) nextBatch(
	ctx context.Context, n int, bound []byte, shownItems map[string]bool,
) ([]Pin, [][]byte, error) {
	// All pins of a batch may be hidden. Then the feed has not ended, so the next batch is read.
	for {
		pins := make([]Pin, 0, min(n, maxBatchAlloc))
		sortKeys := make([][]byte, 0, min(n, maxBatchAlloc))
		for len(pins) < n {
			// Look at the limit before the next pin is read: it may be below the floor, where all
			// outboxes would be opened for nothing.
			if w.remainingPins == 0 {
				w.ended = true
				break
			}
			p, sortKey, err := w.next(ctx)
			if err != nil {
				return nil, nil, err
			}
			if p == nil || bound != nil && bytes.Compare(sortKey, bound) >= 0 {
				w.ended = true
				break
			}
			w.remainingPins-- // a negative number stays negative

			if w.feed.OnePerItem {
				if shownItems[p.Item] {
					continue
				}
				shownItems[p.Item] = true
			}
			pins = append(pins, *p)
			sortKeys = append(sortKeys, sortKey)
		}

		pins, sortKeys, err := w.removeHidden(pins, sortKeys)
		if err != nil {
			return nil, nil, err
		}
		if len(pins) > 0 || w.ended {
			return pins, sortKeys, nil
		}
	}
}

// maxBatchAlloc limits the pins for which a batch allocates memory before it has read any: a caller
// may ask for many more pins than a feed has.
const maxBatchAlloc = 256

// removeHidden removes the pins whose items [Feed.HiddenItems] reports, and their sort keys. It
// asks once for all of them.
func (w *feedIterator) removeHidden(pins []Pin, sortKeys [][]byte) ([]Pin, [][]byte, error) {
	// The result of an incomplete query does not count, so asking what is hidden would be wasted.
	if w.feed.HiddenItems == nil || len(pins) == 0 || w.queries.isIncomplete() {
		return pins, sortKeys, nil
	}

	items := make([]string, len(pins))
	for i := range pins {
		items[i] = pins[i].Item
	}
	hidden, err := w.feed.HiddenItems(items)
	if err != nil {
		return nil, nil, err
	}
	if hidden == nil {
		return pins, sortKeys, nil
	}

	shown := 0
	for i := range pins {
		if !hidden[i] {
			pins[shown], sortKeys[shown] = pins[i], sortKeys[i]
			shown++
		}
	}
	return pins[:shown], sortKeys[:shown], nil
}

// collectItemsBetween adds the items that the feed now has between two sort keys, both included.
func (q *Queries) collectItemsBetween(ctx context.Context, f *Feed, first, last []byte, items map[string]bool) (err error) {
	it, err := q.newFeedIterator(f, first)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := it.close(); err == nil {
			err = closeErr
		}
	}()

	for {
		p, sortKey, err := it.next(ctx)
		if err != nil || p == nil || bytes.Compare(sortKey, last) > 0 {
			return err
		}
		items[p.Item] = true
	}
}
