package inbox

import (
	"bytes"
	"context"
	"slices"
)

// newest reads a page of a feed, newest first. A session continues after the sort key of the last entry, so what belongs to the
// feed throughout comes once, in its place (I9).
func (q *Queries) readNewest(ctx context.Context, f *Feed, after PageCursor, n int) (page Page, err error) {
	page.Newest = topCursor(q.state.Cursor().LastTime)
	var bound, from, top []byte
	if f.Above != nil {
		if bound, err = parseTopCursor(f.Above); err != nil {
			return Page{}, err
		}
	}
	shown := map[string]bool{}
	if after != nil {
		if from, top, err = q.resumeNewest(ctx, f, after, shown); err != nil {
			return Page{}, err
		}
	}
	w, err := q.newFeedIterator(f, from)
	if err != nil {
		return Page{}, err
	}
	defer func() {
		if cerr := w.close(); err == nil {
			err = cerr
		}
	}()
	if page.Read, err = readMarker(q.state, f.Reader); err != nil {
		return Page{}, err
	}
	if f.Unread && page.Read > 0 {
		bound = appendNewestFirst(nil, page.Read)
	}
	var last []byte
	for {
		batch, sortKeys, err := w.nextBatch(ctx, n-len(page.Pins)+1, bound, shown)
		if err != nil {
			return Page{}, err
		}
		page.Outboxes = w.outboxesOpened
		page.Pins = slices.Grow(page.Pins, min(len(batch), n-len(page.Pins)))
		for i := range batch {
			if len(page.Pins) == n {
				page.Next = newestCursor(last, top)
				return page, nil
			}
			page.Pins, last = append(page.Pins, batch[i]), sortKeys[i]
			if top == nil && f.OnePerItem {
				top = sortKeys[i]
			}
		}
		if w.ended {
			return page, nil
		}
	}
}

// resume reads a page cursor: where to continue, where the session began, and, of a feed with one entry per item, what it has shown.
func (q *Queries) resumeNewest(ctx context.Context, f *Feed, after PageCursor, shown map[string]bool) (from, top []byte, err error) {
	last, top, err := parseNewestCursor(after)
	if err != nil || f.OnePerItem != (len(top) > 0) {
		return nil, nil, ErrPageCursor
	}
	if f.OnePerItem {
		if err := q.collectItemsBetween(ctx, f, top, last, shown); err != nil {
			return nil, nil, err
		}
	}
	return append(bytes.Clone(last), 0), top, nil
}

// batch returns up to n pins that are shown, at least one unless the feed ends, and asks once what is hidden of them.
// shown are the items that were, of a feed with one entry per item.
func (w *feedIterator) nextBatch(ctx context.Context, n int, bound []byte, shown map[string]bool) ([]Pin, [][]byte, error) {
	for {
		pins, sortKeys := make([]Pin, 0, min(n, maxBatchAlloc)), make([][]byte, 0, min(n, maxBatchAlloc))
		for len(pins) < n {
			if w.remainingPins == 0 { // the next pin may be below the floor
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
			w.remainingPins--
			if w.feed.OnePerItem {
				if shown[p.Item] {
					continue
				}
				shown[p.Item] = true
			}
			pins, sortKeys = append(pins, *p), append(sortKeys, sortKey)
		}
		if err := w.removeHidden(&pins, &sortKeys); err != nil {
			return nil, nil, err
		}
		if len(pins) > 0 || w.ended {
			return pins, sortKeys, nil
		}
	}
}

// mostAtOnce bounds the room that a batch allocates at its start: a caller may ask for many more pins than a feed has.
const maxBatchAlloc = 256

// hide removes the pins that the feed is asked to hide, by one question for all.
func (w *feedIterator) removeHidden(pins *[]Pin, sortKeys *[][]byte) error {
	if w.feed.Hide == nil || len(*pins) == 0 || w.queries.remoteLookup != nil && w.queries.remoteLookup.Wanting() {
		return nil
	}
	items := make([]string, len(*pins))
	for i := range *pins {
		items[i] = (*pins)[i].Item
	}
	hidden, err := w.feed.Hide(items)
	if err != nil || hidden == nil {
		return err
	}
	kept := 0
	for i := range *pins {
		if !hidden[i] {
			(*pins)[kept], (*sortKeys)[kept] = (*pins)[i], (*sortKeys)[i]
			kept++
		}
	}
	*pins, *sortKeys = (*pins)[:kept], (*sortKeys)[:kept]
	return nil
}

// itemsBetween collects the items that the feed now has between two sort keys, both included.
func (q *Queries) collectItemsBetween(ctx context.Context, f *Feed, first, last []byte, items map[string]bool) (err error) {
	w, err := q.newFeedIterator(f, first)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := w.close(); err == nil {
			err = cerr
		}
	}()
	for {
		p, sortKey, err := w.next(ctx)
		if err != nil || p == nil || bytes.Compare(sortKey, last) > 0 {
			return err
		}
		items[p.Item] = true
	}
}
