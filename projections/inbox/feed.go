package inbox

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// feedIterator returns the pins of a feed, newest first.
//
// It works on sort keys. The sort key of a pin consists of the complement of the creation time, the
// owner and the pin id (see sortKeyOf), so newer pins have smaller sort keys. An inbox has sort
// keys in memory. An outbox is a list of rows, from which sort keys are made.
//
//	          top ─────────────────────── floor ──────────────────────────── end
//	inbox      ███████████████████████████
//	outboxes   named by pull rows          all that the reader follows
//
// Above the floor of the inbox, the iterator merges the inbox with the outboxes that the reader's
// pull rows name (pulls.go). At the floor it discards the inbox and these outboxes, and from there
// on it merges the outboxes of everyone whom, and every board that, the reader follows.
//
// A merged sort key is only a candidate. The pin and the reader's relation to its owner, both read
// from the same view, decide whether the reader sees the pin. So an inbox may have sort keys of
// pins that the reader does not see, but it must not lack one of a pin that the reader sees (I8).
type feedIterator struct {
	queries *Queries
	feed    *Feed
	checker absenceChecker
	// merge merges the streams of the current part of the feed: above the floor or below it.
	merge *streamMerger
	// keys allocates the sort keys that the iterator returns.
	keys arena
	// floor is the smallest sort key that the inbox may lack. It is empty if there is no inbox that
	// this view can use. Pins "below the floor" are those whose sort keys are floor or greater:
	// they are older than the pins above it.
	floor []byte
	// belowFloor is set once the iterator merges all outboxes of the feed, and no inbox. A feed
	// with [Feed.Only] sets it from the start.
	belowFloor bool
	// learns is set once the iterator merges all outboxes that the reader follows, if the store has
	// a cache. When the iterator is closed, the merged sort keys are then added to the reader's
	// inbox. The next three fields are used only if learns is set.
	learns bool
	// mergedFrom is the sort key at which the merge of all outboxes began; nil means at the top.
	mergedFrom []byte
	// mergedKeys are the sort keys to add to the inbox: all that the merge has returned from
	// mergedFrom on, up to the number of entries that an inbox may have.
	mergedKeys [][]byte
	// mergedToEnd says that mergedKeys has all sort keys from mergedFrom to the end of the feed.
	mergedToEnd bool
	// outboxesOpened is how many outboxes were opened so far. An outbox that was merged above the
	// floor and again below it counts twice.
	outboxesOpened int
	// lastRead is the sort key of the last pin that nextBatch has read, also if it left the pin
	// out.
	lastRead []byte
	// remainingPins is how many more pins nextBatch may read; a negative number means any number.
	remainingPins int
	// bound ends the feed before the first sort key that is bound or greater. nil means that the
	// feed ends after the last pin. It is set before the first pin is read.
	bound []byte
	// ended is set by nextBatch when it has no more pins to return.
	ended bool
}

// newFeedIterator returns an iterator over the pins whose sort keys are from or greater. A nil from
// begins with the newest pin.
func (q *Queries) newFeedIterator(ctx context.Context, f *Feed, from []byte) (*feedIterator, error) {
	if q.remoteLookup != nil && from == nil {
		// Other nodes may answer at a later position than that of q.state, and so return pins that
		// are newer than the state. Leave these pins out: [Page.Top] is the time of the state, so a
		// caller who asks later for pins that are newer than Top would get them again.
		from = appendNewestFirst(nil, q.state.Cursor().LastTime)
	}

	checker := newAbsenceChecker(q, f)
	var err error
	if checker.hidden, err = q.cachedHiddenItems(ctx, f.Reader); err != nil {
		return nil, err
	}
	w := &feedIterator{queries: q, feed: f, checker: checker, remainingPins: -1}
	w.merge = newStreamMerger(q, &w.keys)

	// w.merge has an open iterator, so close w if start fails.
	if err := w.start(from); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// cachedHiddenItems returns the set of the items that a reader hides, which is empty if the reader
// hides none. If the set is not cached but the cache has an inbox of the reader, cachedHiddenItems
// reads the items and caches them. This costs about as much as checking every pin of one or two
// pages by a row. It returns nil if the set is not in memory, and each pin must then be checked by
// a row.
func (q *Queries) cachedHiddenItems(ctx context.Context, reader string) (*inboxcache.HiddenItems, error) {
	if q.cache == nil {
		return nil, nil //nolint:nilnil // nothing is in memory
	}
	key := events.AppendID(nil, reader)
	cached, wanted := q.cache.HiddenItems(key, q.version)
	if cached != nil || !wanted {
		return cached, nil
	}

	count, err := hiddenItems.CountOf(q.state, reader)
	if err != nil || count > inboxcache.MaxHiddenItems {
		return nil, err
	}
	rows, _, err := hiddenItems.Page(ctx, q.state, reader, nil, int(count))
	if err != nil {
		return nil, err
	}
	items := make([]string, len(rows))
	for i := range rows {
		items[i] = rows[i].Item
	}
	hidden := q.cache.NewHiddenItems(items)
	q.cache.LearnHiddenItems(key, q.version, hidden)
	return hidden, nil
}

// start opens the streams for the first pins. These are the inbox and the outboxes that pull rows
// name, or all outboxes if from lies below the floor or there is no inbox. For a feed with
// [Feed.Only], they are the outboxes of the selected owners.
func (w *feedIterator) start(from []byte) error {
	if w.feed.Only != 0 {
		return w.mergeSelected(from)
	}

	// Without an inbox the floor is empty, so every from, even nil, is at or below it.
	inboxKeys := w.readInbox()
	if bytes.Compare(from, w.floor) >= 0 {
		return w.continueBelowFloor(from)
	}

	streams, err := w.pulledOutboxes()
	if err != nil {
		return err
	}
	w.outboxesOpened += len(streams)
	w.mergeStreams(append(streams, &stream{inboxKeys: inboxKeys}), from)
	return nil
}

// readInbox returns the sort keys of the reader's inbox and sets w.floor. If there is no inbox, or
// if this view is too old for it, readInbox returns no sort keys and leaves w.floor empty.
func (w *feedIterator) readInbox() (sortKeys inboxcache.Iterator) {
	if w.queries.cache == nil {
		return sortKeys
	}
	sortKeys, floor := w.queries.cache.ReadInbox(events.AppendID(nil, w.feed.Reader), w.queries.version)
	w.floor = []byte(floor)
	return sortKeys
}

// mergeStreams discards the current streams and merges the given ones, beginning at the sort key
// from. It adds the reader's own outbox if the feed includes own pins.
func (w *feedIterator) mergeStreams(streams []*stream, from []byte) {
	if w.feed.IncludeOwn {
		streams = append(streams, w.queries.outboxStream(&w.keys, w.feed.Reader, nil))
		w.outboxesOpened++
	}
	w.merge.reset(streams, from)
}

// continueBelowFloor discards the current streams and merges all outboxes that the reader follows,
// beginning at the sort key from, which must be the floor or lie below it.
func (w *feedIterator) continueBelowFloor(from []byte) error {
	w.belowFloor = true
	w.learns = w.queries.cache != nil
	w.mergedFrom = from

	var streams []*stream
	followedOwners := map[string]bool{}
	relations := graph.NewQueries(w.queries.state)
	err := relations.EachFollowee(w.feed.Reader, func(owner string) error {
		followedOwners[owner] = true
		streams = append(streams, w.queries.outboxStream(&w.keys, owner, nil))
		return nil
	})
	if err != nil {
		return err
	}

	// The outbox of an owner has the pins of all boards of the owner. So the outboxes of boards are
	// needed only for owners whom the reader does not follow explicitly.
	err = relations.EachFollowedBoard(w.feed.Reader, func(owner, board string) error {
		if !followedOwners[owner] {
			streams = append(streams, w.queries.outboxStream(&w.keys, owner, &board))
		}
		return nil
	})
	if err != nil {
		return err
	}

	w.outboxesOpened += len(streams)
	w.mergeStreams(streams, from)
	return nil
}

// mergeSelected merges the outboxes of the selected owners of a feed with [Feed.Only], beginning at
// the sort key from. It does not read the inbox, because most pins in the inbox are of other
// owners. Nothing is added to the inbox, because the merge lacks the pins of other owners.
func (w *feedIterator) mergeSelected(from []byte) error {
	w.belowFloor = true // next must not look for the floor of an inbox

	selected, err := w.checker.selectedOwners()
	if err != nil {
		return err
	}
	var streams []*stream
	relations := graph.NewQueries(w.queries.state)
	for owner := range selected {
		relation, err := relations.Visibility(w.feed.Reader, owner)
		if err != nil {
			return err
		}

		// As in continueBelowFloor, the outbox of the owner has the pins of all boards.
		if relation.Explicit {
			streams = append(streams, w.queries.outboxStream(&w.keys, owner, nil))
			continue
		}
		err = relations.EachFollowedBoardOf(w.feed.Reader, owner, func(board string) error {
			streams = append(streams, w.queries.outboxStream(&w.keys, owner, &board))
			return nil
		})
		if err != nil {
			return err
		}
	}

	w.outboxesOpened += len(streams)
	w.mergeStreams(streams, from)
	return nil
}

// contextCheckInterval is how many sort keys next, or how many pins [Queries.Outbox], reads before
// it checks again whether the context has ended. One call of next may skip very many sort keys, for
// example those of an owner whom the reader mutes.
const contextCheckInterval = 1024

// next returns the next pin that the reader sees, with its sort key, or nil at the end of the feed.
func (w *feedIterator) next(ctx context.Context) (*Pin, []byte, error) {
	for candidates := 1; ; candidates++ {
		if candidates%contextCheckInterval == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}

		sortKey := w.merge.next()
		if w.merge.err != nil {
			return nil, nil, w.merge.err
		}

		// Do not use this sort key. The merge that begins at the floor returns it again if the
		// reader follows an outbox that has it.
		if !w.belowFloor && w.reachesFloor(sortKey) {
			if w.isAtBound(w.floor) {
				return nil, nil, nil
			}
			if err := w.continueBelowFloor(w.floor); err != nil {
				return nil, nil, err
			}
			continue
		}

		w.recordMerged(sortKey)
		if sortKey == nil || w.isAtBound(sortKey) {
			return nil, nil, nil
		}

		p, err := w.visiblePin(sortKey)
		if err != nil || p != nil {
			return p, sortKey, err
		}
	}
}

// reachesFloor reports whether the merge of the inbox has reached the floor. sortKey is what the
// merge has just returned: a sort key, or nil at its end.
func (w *feedIterator) reachesFloor(sortKey []byte) bool {
	// With this floor, the inbox and the pulled outboxes have the whole feed, so the end of the
	// merge is the end of the feed.
	if string(w.floor) == inboxcache.FloorAtEnd {
		return false
	}
	return sortKey == nil || bytes.Compare(sortKey, w.floor) >= 0
}

// isAtBound reports whether the feed ends before a sort key.
func (w *feedIterator) isAtBound(sortKey []byte) bool {
	return w.bound != nil && bytes.Compare(sortKey, w.bound) >= 0
}

// visiblePin returns the pin with a sort key. It returns nil if the pin does not live, now has
// another sort key, or is not visible to the reader.
func (w *feedIterator) visiblePin(sortKey []byte) (*Pin, error) {
	created, owner, id, err := cutSortKey(sortKey)
	if err != nil {
		return nil, err
	}

	// Check the owner before reading the pin. The checker caches the relation to each owner, so all
	// pins of a muted owner together cost one read, that of the relation.
	hidden, err := w.checker.hidesOwner(owner)
	if err != nil || hidden {
		return nil, err
	}

	p, err := w.queries.livingPin(owner, id)
	if err != nil {
		return nil, err
	}

	// An inbox keeps the sort key of a pin that was deleted. The pin may also live with another
	// creation time, because a backfill arrived or because the pin was created a second time. In
	// that case the pin is in the feed under another sort key.
	if p == nil || p.Created != created {
		return nil, nil //nolint:nilnil // there is none
	}

	reasons, err := w.checker.reasons(owner, p)
	if err != nil || reasons != 0 {
		return nil, err
	}
	return p, nil
}

// recordMerged records a sort key that the merge has returned, or the end of the merge if sortKey
// is nil, so that close can add it to the inbox. It also records sort keys of pins that the reader
// does not see: an inbox must have them, because the reader may see the pins later.
func (w *feedIterator) recordMerged(sortKey []byte) {
	if !w.learns || w.mergedToEnd || len(w.mergedKeys) == w.queries.cache.MaxEntries {
		return
	}
	if sortKey == nil {
		w.mergedToEnd = true
		return
	}
	w.mergedKeys = append(w.mergedKeys, sortKey)
}

// close ends the iteration and returns the first error of the merge. If there was none, close adds
// the sort keys that were merged below the floor to the reader's inbox.
func (w *feedIterator) close() error {
	if err := w.merge.close(); err != nil || !w.learns {
		return err
	}
	if w.queries.isIncomplete() {
		return nil // the merge may lack outboxes of other nodes
	}

	// No pin in this view is newer than the log time of the view. So a range that begins at this
	// time or above has the newest pins, and LearnInbox expects a nil from for such a range.
	from := w.mergedFrom
	if bytes.Compare(from, appendNewestFirst(nil, w.queries.state.Cursor().LastTime)) <= 0 {
		from = nil
	}

	// LearnInbox excludes the end of the range. No sort key lies between the last one and the last
	// one with a zero byte appended, so the range that ends at the latter ends with the last one.
	to := []byte(inboxcache.FloorAtEnd)
	if !w.mergedToEnd {
		if len(w.mergedKeys) == 0 {
			return nil
		}
		to = append(bytes.Clone(w.mergedKeys[len(w.mergedKeys)-1]), 0)
	}

	reader := events.AppendID(nil, w.feed.Reader)
	w.queries.cache.LearnInbox(reader, w.queries.version, from, w.mergedKeys, to)
	return nil
}
