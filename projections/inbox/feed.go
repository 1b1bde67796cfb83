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
//	          top ─────────────────────── floor ──────────────────────────── end
//	inbox      ███████████████████████████
//	outboxes   of pulled owners            all that the reader follows
//
// Above the floor of the inbox it merges the inbox with the outboxes that pull rows name. At the
// floor it replaces both by all outboxes that the reader follows.
//
// A merged sort key is only a candidate. The pin and the relation to its owner, read from the same
// view, decide whether the reader sees the pin. So an inbox may hold too much, but not too little
// (I8).
type feedIterator struct {
	queries *Queries
	feed    *Feed
	checker absenceChecker
	merge   *streamMerger
	keys    arena
	// floor is the sort key up to which the inbox is read. It is empty if there is no inbox. "Below
	// the floor" means: of older pins, whose sort keys are floor or greater.
	floor []byte
	// belowFloor is set once the iterator has reached the floor and merges all outboxes.
	belowFloor bool
	// learns is set while all outboxes are merged below the floor, so that the inbox can learn the
	// merged sort keys.
	learns bool
	// mergedKeys are the sort keys that were merged below the floor for the inbox to learn: all
	// from mergedFrom on, up to the number of entries that an inbox may have. mergedToEnd says that
	// the feed has no more.
	mergedKeys  [][]byte
	mergedFrom  []byte
	mergedToEnd bool
	// outboxesOpened is the number of outboxes that were merged so far.
	outboxesOpened int
	// remainingPins is how many more pins nextBatch may read; a negative number means any number.
	remainingPins int
	// ended is set by nextBatch when there are no more pins.
	ended bool
}

// newFeedIterator returns an iterator over the pins whose sort keys are from or greater. A nil from
// begins with the newest pin.
func (q *Queries) newFeedIterator(f *Feed, from []byte) (*feedIterator, error) {
	if q.remoteLookup != nil && from == nil {
		// Other nodes may be at a later position than this state. A page cursor counts what is new
		// from the position of the state, so a page must have nothing newer, or it would be counted
		// again.
		from = appendNewestFirst(nil, q.state.Cursor().LastTime)
	}
	w := &feedIterator{queries: q, feed: f, checker: newAbsenceChecker(q, f), remainingPins: -1}
	w.merge = newStreamMerger(q, &w.keys)
	if err := w.start(from); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *feedIterator) start(from []byte) error {
	if w.feed.Only != 0 {
		return w.mergeSelected(from)
	}
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

// readInbox returns the sort keys of the reader's inbox and sets the floor.
func (w *feedIterator) readInbox() (sortKeys inboxcache.Iterator) {
	if w.queries.cache == nil {
		return sortKeys
	}
	sortKeys, floor := w.queries.cache.ReadInbox(events.AppendID(nil, w.feed.Reader), w.queries.version)
	w.floor = []byte(floor)
	return sortKeys
}

// mergeStreams merges streams from a sort key on, together with the reader's own outbox if the feed
// shows it.
func (w *feedIterator) mergeStreams(streams []*stream, from []byte) {
	if w.feed.IncludeOwn {
		streams = append(streams, w.queries.outboxStream(&w.keys, w.feed.Reader, nil))
		w.outboxesOpened++
	}
	w.merge.reset(streams, from)
}

// continueBelowFloor merges all outboxes that the reader follows, from a sort key at or below the
// floor on.
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

	// The outbox of an owner contains those of all boards, so boards matter only where the owner is
	// not followed.
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

// mergeSelected merges the outboxes of the owners of a feed with [Feed.Only], from a sort key on.
// The inbox is not used, because it has the pins of all owners, and it learns nothing.
func (w *feedIterator) mergeSelected(from []byte) error {
	w.belowFloor = true

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
// has ended. One call may skip very many sort keys, if the reader mutes or hides many pins.
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

// reachesFloor reports whether a merged sort key, or the end of the merge (nil), is at or below the
// floor. An inbox whose floor is [inboxcache.FloorAtEnd] has the whole feed, so its end is the end
// of the feed.
func (w *feedIterator) reachesFloor(sortKey []byte) bool {
	if string(w.floor) == inboxcache.FloorAtEnd {
		return false
	}
	return sortKey == nil || bytes.Compare(sortKey, w.floor) >= 0
}

// visiblePin returns the pin at a sort key, or nil if it is no longer there or the reader does not
// see it.
func (w *feedIterator) visiblePin(sortKey []byte) (*Pin, error) {
	created, owner, id, err := cutSortKey(sortKey)
	if err != nil {
		return nil, err
	}

	// This decides about most pins of muted owners without reading them, because the checker
	// remembers the relation to each owner.
	hidden, err := w.checker.hidesOwner(owner)
	if err != nil || hidden {
		return nil, err
	}

	p, err := w.queries.livingPin(owner, id)
	if err != nil {
		return nil, err
	}
	// An entry of an inbox outlives its pin. If history or a second creation gave the pin another
	// time, then its place is elsewhere.
	if p == nil || p.Created != created {
		return nil, nil //nolint:nilnil // there is none
	}
	reasons, err := w.checker.reasons(owner, p)
	if err != nil || reasons != 0 {
		return nil, err
	}
	return p, nil
}

// recordMerged records a merged sort key, or the end of the merge (nil), for the inbox to learn
// when the iterator is closed.
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

// close ends the iteration and returns its first error. If there was none, the inbox learns what
// was merged below the floor.
func (w *feedIterator) close() error {
	if err := w.merge.close(); err != nil || !w.learns {
		return err
	}
	if w.queries.isIncomplete() {
		return nil // outboxes of other nodes may be missing from what was merged
	}

	// All views up to this one have no sort key before the one of the newest log time. So a range
	// from there is one from the top.
	from := w.mergedFrom
	if bytes.Compare(from, appendNewestFirst(nil, w.queries.state.Cursor().LastTime)) <= 0 {
		from = nil
	}

	// The end of the range is exclusive: a zero byte behind the last sort key makes the range
	// include it.
	to := []byte(inboxcache.FloorAtEnd)
	if !w.mergedToEnd {
		if len(w.mergedKeys) == 0 {
			return nil
		}
		to = append(bytes.Clone(w.mergedKeys[len(w.mergedKeys)-1]), 0)
	}
	w.queries.cache.LearnInbox(events.AppendID(nil, w.feed.Reader), w.queries.version, from, w.mergedKeys, to)
	return nil
}
