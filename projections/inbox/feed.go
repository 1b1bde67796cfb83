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
// pull rows name (pulls.go). At the floor it discards these streams, and from there on it merges
// all outboxes that the reader follows.
//
// A merged sort key is only a candidate. The pin and the reader's relation to its owner, both read
// from the same view, decide whether the reader sees the pin. So an inbox may have too many sort
// keys, but not too few (I8).
type feedIterator struct {
	queries *Queries
	feed    *Feed
	checker absenceChecker
	// merge merges the inbox and outboxes that are read at present.
	merge *streamMerger
	// keys has the memory of the sort keys that the iterator returns.
	keys arena
	// floor is the first sort key that the inbox may lack. It is empty if there is no inbox that
	// can be read. "Below the floor" means: at sort keys that are floor or greater, which are those
	// of older pins.
	floor []byte
	// belowFloor is set once the iterator merges all outboxes of the feed, and no inbox.
	belowFloor bool
	// learns is set once the iterator merges all outboxes that the reader follows, if the store has
	// a cache. The reader's inbox then learns the merged sort keys when the iterator is closed.
	learns bool
	// mergedFrom is the sort key from which on all outboxes are merged; nil means from the top.
	mergedFrom []byte
	// mergedKeys are the sort keys that the inbox will learn: all that were merged from mergedFrom
	// on, up to the number of entries that an inbox may have.
	mergedKeys [][]byte
	// mergedToEnd says that mergedKeys ends with the last sort key of the merge.
	mergedToEnd bool
	// outboxesOpened is how many outboxes were opened so far. An outbox that was merged above the
	// floor and again below it counts twice.
	outboxesOpened int
	// remainingPins is how many more pins nextBatch may read; a negative number means any number.
	remainingPins int
	// ended is set by nextBatch when it has no more pins to return.
	ended bool
}

// newFeedIterator returns an iterator over the pins whose sort keys are from or greater. A nil from
// begins with the newest pin.
func (q *Queries) newFeedIterator(ctx context.Context, f *Feed, from []byte) (*feedIterator, error) {
	if q.remoteLookup != nil && from == nil {
		// Other nodes may answer at a later position than that of the state, and so with pins that
		// are newer than the state. Leave these out: [Page.Top] is the time of the state, so a
		// caller who asks later for what is newer than Top would get them again.
		from = appendNewestFirst(nil, q.state.Cursor().LastTime)
	}

	checker := newAbsenceChecker(q, f)
	var err error
	if checker.hidden, err = q.cachedHiddenItems(ctx, f.Reader); err != nil {
		return nil, err
	}
	w := &feedIterator{queries: q, feed: f, checker: checker, remainingPins: -1}
	w.merge = newStreamMerger(q, &w.keys)

	// The merge has an open iterator, which must be closed after an error, too.
	if err := w.start(from); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// cachedHiddenItems returns the items that a reader hides. If the cache lacks them and would keep
// them, it reads them and lets the cache learn them, which costs as much as one or two pages that
// read a row for each pin. It returns nil if the caller must read the rows.
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

// start opens the streams for the first pins: the inbox and the outboxes that pull rows name, or
// all outboxes if from lies below the floor or there is no inbox.
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

// readInbox returns the sort keys of the reader's inbox and sets the floor. If there is no inbox,
// or none that can be read for this view, it returns no sort keys and leaves the floor empty.
func (w *feedIterator) readInbox() (sortKeys inboxcache.Iterator) {
	if w.queries.cache == nil {
		return sortKeys
	}
	sortKeys, floor := w.queries.cache.ReadInbox(events.AppendID(nil, w.feed.Reader), w.queries.version)
	w.floor = []byte(floor)
	return sortKeys
}

// mergeStreams replaces the merged streams by others, which it merges from a sort key on, together
// with the reader's own outbox if the feed includes own pins.
func (w *feedIterator) mergeStreams(streams []*stream, from []byte) {
	if w.feed.IncludeOwn {
		streams = append(streams, w.queries.outboxStream(&w.keys, w.feed.Reader, nil))
		w.outboxesOpened++
	}
	w.merge.reset(streams, from)
}

// continueBelowFloor replaces the merged streams by all outboxes that the reader follows. It merges
// them from a sort key on, which is the floor or lies below it.
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

// mergeSelected merges the outboxes of the selected owners of a feed with [Feed.Only], from a sort
// key on. It does not read the inbox, because most pins in the inbox are of other owners. The inbox
// learns nothing from the merge, because the merge lacks the pins of other owners.
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

// contextCheckInterval is how many sort keys next reads before it checks again whether the context
// has ended. One call of next may skip very many sort keys, for example those of an owner whom the
// reader mutes.
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

		// Discard the sort key. The merge that begins at the floor returns it again if the reader
		// follows an outbox that has it.
		if !w.belowFloor && w.reachesFloor(sortKey) {
			if err := w.continueBelowFloor(w.floor); err != nil {
				return nil, nil, err
			}
			continue
		}

		w.recordMerged(sortKey)
		if sortKey == nil {
			return nil, nil, nil
		}

		p, err := w.visiblePin(sortKey)
		if err != nil || p != nil {
			return p, sortKey, err
		}
	}
}

// reachesFloor reports whether the merge of the inbox has reached the floor: it has returned a sort
// key at or below the floor, or nil, because it has ended.
func (w *feedIterator) reachesFloor(sortKey []byte) bool {
	// An inbox with this floor has the whole feed, so the end of the merge is the end of the feed.
	if string(w.floor) == inboxcache.FloorAtEnd {
		return false
	}
	return sortKey == nil || bytes.Compare(sortKey, w.floor) >= 0
}

// visiblePin returns the pin with a sort key. It returns nil if the pin does not live, now has
// another sort key, or is not visible to the reader.
func (w *feedIterator) visiblePin(sortKey []byte) (*Pin, error) {
	created, owner, id, err := cutSortKey(sortKey)
	if err != nil {
		return nil, err
	}

	// Check the owner before reading the pin. The checker caches the relation to each owner, so the
	// pins of a muted owner cost no reads but that of the relation.
	hidden, err := w.checker.hidesOwner(owner)
	if err != nil || hidden {
		return nil, err
	}

	p, err := w.queries.livingPin(owner, id)
	if err != nil {
		return nil, err
	}

	// An inbox keeps the sort key of a pin that was deleted. And the pin may live with another
	// creation time, because a backfill arrived or because it was created a second time. Then it is
	// in the feed under another sort key.
	if p == nil || p.Created != created {
		return nil, nil //nolint:nilnil // there is none
	}

	reasons, err := w.checker.reasons(owner, p)
	if err != nil || reasons != 0 {
		return nil, err
	}
	return p, nil
}

// recordMerged records a sort key that the merge has returned, or the end of the merge (nil), for
// the inbox to learn when the iterator is closed. It records sort keys of pins that the reader does
// not see, too: an inbox must have them, because the reader may see the pins later.
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

// close ends the iteration and returns the first error of the merge. If there was none, the
// reader's inbox learns the sort keys that were merged below the floor.
func (w *feedIterator) close() error {
	if err := w.merge.close(); err != nil || !w.learns {
		return err
	}
	if w.queries.isIncomplete() {
		return nil // the merge may lack outboxes of other nodes
	}

	// No pin in this view is newer than the log time of the view. So a range that begins there or
	// above begins at the top, and nil says so to the inbox.
	from := w.mergedFrom
	if bytes.Compare(from, appendNewestFirst(nil, w.queries.state.Cursor().LastTime)) <= 0 {
		from = nil
	}

	// The end of the range is exclusive. No sort key lies between the last one and the same with a
	// zero byte behind it, so the latter is the end that includes the last one and no other.
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
