package inbox

import (
	"bytes"
	"context"
	"slices"
)

// readNewest reads a page of a feed in the order Newest. A session is the sequence of pages that a
// caller reads with the cursors of the pages before. Each page continues after the sort key of the
// last entry of the page before. So a pin that belongs to the feed throughout the session is shown
// once, in its place (I9).
func (q *Queries) readNewest(
	ctx context.Context, f *Feed, after PageCursor, n int,
) (page Page, err error) {
	page.Top = topCursor(q.state.Cursor().LastTime)

	// bound is an exclusive upper bound of the sort keys on the page; nil means no bound. It is the
	// encoding of a time. Newer pins have smaller sort keys, so the page has only pins that were
	// created after this time.
	var bound []byte
	if f.NewerThan != nil {
		if bound, err = parseTopCursor(f.NewerThan); err != nil {
			return Page{}, err
		}
	}

	// from is the first sort key that the page may have; nil means from the top. The other two are
	// used with OnePerItem only: shownItems are the items that the session has shown, and
	// sessionTop is the sort key of the session's first entry, or nil until there is one.
	var from, sessionTop []byte
	var shownItems map[string]bool
	if f.OnePerItem {
		shownItems = make(map[string]bool, min(n, maxBatchAlloc))
	}
	if after != nil {
		if from, sessionTop, err = q.resumeNewest(ctx, f, after, shownItems); err != nil {
			return Page{}, err
		}
	}

	it, err := q.newFeedIterator(ctx, f, from)
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
	it.bound = bound

	var lastSortKey []byte
	for {
		// Read one pin more than the page needs, because the page has a cursor of the next page
		// only if there is a further pin. If HiddenItems may remove some of the pins, read an
		// eighth more to make up for the removed ones. Otherwise a second batch would often be
		// needed, and another call of HiddenItems costs as much as reading several pins.
		missing := n - len(page.Pins)
		wanted := missing + 1
		if f.HiddenItems != nil {
			wanted += missing / 8
		}
		batch, sortKeys, err := it.nextBatch(ctx, wanted, shownItems)
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

// resumeNewest decodes the cursor after. It returns the smallest sort key that the page may have
// and, for a feed with OnePerItem, the sort key of the session's first entry. For such a feed it
// also adds to shownItems the items that earlier pages of the session have shown.
func (q *Queries) resumeNewest(
	ctx context.Context, f *Feed, after PageCursor, shownItems map[string]bool,
) (from, sessionTop []byte, err error) {
	last, sessionTop, err := parseNewestCursor(after)
	if err != nil {
		return nil, nil, err
	}

	// A cursor has the sort key of the session's first entry if and only if it belongs to a feed
	// with OnePerItem.
	if f.OnePerItem != (len(sessionTop) > 0) {
		return nil, nil, ErrPageCursor
	}

	// The cursor does not list the items that were shown, because they may be many. Find them by
	// reading the pins of the earlier pages again.
	if f.OnePerItem {
		if err := q.collectItemsBetween(ctx, f, sessionTop, last, shownItems); err != nil {
			return nil, nil, err
		}
	}

	// No sort key lies between last and last with a zero byte appended, so the page begins right
	// after last.
	return append(bytes.Clone(last), 0), sessionTop, nil
}

// nextBatch returns the next pins that the feed shows, at most n, and their sort keys.
//
// nextBatch sets w.ended if it has reached the end of the feed or read w.remainingPins pins. It
// returns no pins only if w.ended is set. It calls [Feed.HiddenItems] with up to n items at a time.
//
// For a feed with [Feed.OnePerItem], nextBatch skips pins whose item is in shownItems, and adds the
// items of the other pins to shownItems. For other feeds, shownItems is not used.
func (w *feedIterator) nextBatch(
	ctx context.Context, n int, shownItems map[string]bool,
) ([]Pin, [][]byte, error) {
	// HiddenItems may hide all pins of a batch. That is not the end of the feed, so the loop then
	// reads another batch.
	for {
		pins := make([]Pin, 0, min(n, maxBatchAlloc))
		sortKeys := make([][]byte, 0, min(n, maxBatchAlloc))
		for len(pins) < n {
			// Check the limit before reading the next pin. The next pin may be below the floor of
			// the inbox, so reading it could open all outboxes for nothing.
			if w.remainingPins == 0 {
				w.ended = true
				break
			}

			p, sortKey, err := w.next(ctx)
			if err != nil {
				return nil, nil, err
			}
			if p == nil {
				w.ended = true
				break
			}
			w.lastRead = sortKey
			w.remainingPins-- // a negative number means no limit, and stays negative

			if w.feed.OnePerItem {
				before := len(shownItems)
				shownItems[p.Item] = true
				if len(shownItems) == before {
					continue // another pin has shown the item
				}
			}
			pins = append(pins, *p)
			sortKeys = append(sortKeys, sortKey)
		}

		// The items of the pins that removeHidden removes stay in shownItems. This does no harm:
		// HiddenItems decides by the item, so the other pins of such an item are hidden, too.
		pins, sortKeys, err := w.removeHidden(pins, sortKeys)
		if err != nil {
			return nil, nil, err
		}
		if len(pins) > 0 || w.ended {
			return pins, sortKeys, nil
		}
	}
}

// maxBatchAlloc is the largest number of pins for which nextBatch allocates memory before it has
// read any. A caller may ask for many more pins than the feed has.
const maxBatchAlloc = 256

// removeHidden removes the pins whose items [Feed.HiddenItems] reports, and their sort keys. It
// calls HiddenItems once, with the items of all pins.
func (w *feedIterator) removeHidden(pins []Pin, sortKeys [][]byte) ([]Pin, [][]byte, error) {
	// The result of an incomplete query is discarded, so a call of HiddenItems would be wasted.
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

	// Move the pins that stay to the front, in place.
	shown := 0
	for i := range pins {
		if !hidden[i] {
			pins[shown], sortKeys[shown] = pins[i], sortKeys[i]
			shown++
		}
	}
	return pins[:shown], sortKeys[:shown], nil
}

// collectItemsBetween adds to items the items of all pins that the reader now sees and whose sort
// keys are first, last or between the two. It does not call [Feed.HiddenItems].
func (q *Queries) collectItemsBetween(
	ctx context.Context, f *Feed, first, last []byte, items map[string]bool,
) (err error) {
	it, err := q.newFeedIterator(ctx, f, first)
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
