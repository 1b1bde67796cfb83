package inbox

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// walk goes over the pins of a feed, newest first.
//
//	          top ─────────────────────── floor ──────────────────────────── end
//	inbox      ███████████████████████████
//	outboxes   of pulled owners            all that the reader follows
//
// A sort key is only a candidate. Whether the reader sees the pin is decided by the pin and the relation in the same view, so an inbox may
// hold too much, but not too little (I8).
type feedIterator struct {
	queries *Queries
	feed    *Feed
	merge   *streamMerger
	// floor is the sort key at which the inbox ends; empty means there is none.
	floor []byte
	// learned are the first sort keys that were merged below the floor, from one on, as many as an inbox may have. learnedAll: there are no
	// more.
	mergedKeys  [][]byte
	mergedFrom  []byte
	mergedToEnd bool
	// below is set once the walk has reached the floor, and merges all outboxes.
	belowFloor bool
	keys       arena
	// visibilities are the relations to the owners met so far, each read once.
	visibilities map[string]visibility
	// opened counts the outboxes.
	outboxesOpened int
	// left is how many pins batch may still take; a negative number means any.
	remainingPins int
	// ended is set by batch when there is no more.
	ended bool
}

type visibility struct {
	graph.Visibility
	// boards has what was asked about single boards of the owner: whether the reader sees them.
	seesBoard map[string]bool
}

// newWalk begins at the first sort key that is not before from; nil means at the top.
func (q *Queries) newFeedIterator(f *Feed, from []byte) (*feedIterator, error) {
	if q.remoteLookup != nil && from == nil {
		// Elsewhere may be ahead. A page has nothing newer than its state, from which a later one counts what is new.
		from = appendNewestFirst(nil, q.state.Cursor().LastTime)
	}
	w := &feedIterator{queries: q, feed: f, remainingPins: -1, visibilities: make(map[string]visibility, 32)}
	w.merge = newStreamMerger(q, &w.keys)
	if err := w.start(from); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *feedIterator) start(from []byte) error {
	entries := w.readInbox()
	if bytes.Compare(from, w.floor) >= 0 {
		return w.continueBelowFloor(from)
	}
	streams, err := w.pulledOutboxes()
	if err != nil {
		return err
	}
	w.outboxesOpened += len(streams)
	w.mergeStreams(append(streams, &stream{entries: entries}), from)
	return nil
}

// inbox returns what the inbox has, and finds its floor.
func (w *feedIterator) readInbox() (entries inboxcache.List) {
	if w.queries.cache == nil {
		return entries
	}
	entries, floor := w.queries.cache.ReadInbox(events.AppendID(nil, w.feed.Reader), w.queries.version)
	w.floor = []byte(floor)
	return entries
}

// open merges some streams, and the reader's own outbox.
func (w *feedIterator) mergeStreams(streams []*stream, from []byte) {
	if w.feed.Own {
		streams = append(streams, w.queries.outboxStream(&w.keys, w.feed.Reader, nil))
		w.outboxesOpened++
	}
	w.merge.reset(streams, from)
}

// descend continues at or below the floor, where all outboxes are merged.
func (w *feedIterator) continueBelowFloor(from []byte) error {
	w.belowFloor, w.mergedFrom = true, from
	var streams []*stream
	explicit := map[string]bool{}
	relations := graph.Query(w.queries.state)
	err := relations.EachFollowee(w.feed.Reader, func(owner string) error {
		explicit[owner] = true
		streams = append(streams, w.queries.outboxStream(&w.keys, owner, nil))
		return nil
	})
	if err == nil {
		err = relations.EachFollowedBoard(w.feed.Reader, func(owner, board string) error {
			if !explicit[owner] {
				streams = append(streams, w.queries.outboxStream(&w.keys, owner, &board))
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	w.outboxesOpened += len(streams)
	w.mergeStreams(streams, from)
	return nil
}

// next returns the next pin that the reader sees, with its sort key; nil means the feed has ended.
func (w *feedIterator) next(ctx context.Context) (*Pin, []byte, error) {
	for step := 1; ; step++ {
		if step%1024 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		sortKey := w.merge.next()
		if w.merge.err != nil {
			return nil, nil, w.merge.err
		}
		if !w.belowFloor && string(w.floor) != inboxcache.FloorAtEnd && (sortKey == nil || bytes.Compare(sortKey, w.floor) >= 0) {
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

// pin returns the pin at a sort key, if it is there and the reader sees it.
func (w *feedIterator) visiblePin(sortKey []byte) (*Pin, error) {
	created, owner, id, err := cutSortKey(sortKey)
	if err != nil {
		return nil, err
	}
	p, err := w.queries.livingPin(owner, id)
	if err != nil || p == nil || p.Created != created {
		return nil, err
	}
	absence, err := w.absence(owner, p)
	if err != nil || absence != 0 {
		return nil, err
	}
	return p, nil
}

// absence returns the reasons for which the reader does not see a pin that exists; none means that the reader sees it. Without a pin it
// returns the reasons that hold for all pins of the owner. Feeds and ExplainPin both ask here, so they cannot disagree.
func (w *feedIterator) absence(owner string, p *Pin) (a Absence, err error) {
	if owner == w.feed.Reader {
		if !w.feed.Own {
			a = OwnPin
		}
		return a, nil
	}
	s, met := w.visibilities[owner]
	if !met {
		if s.Visibility, err = w.queries.graph.Visibility(w.feed.Reader, owner); err != nil {
			return 0, err
		}
		w.visibilities[owner] = s
	}
	if s.Muted {
		a |= OwnerMuted
	}
	if s.RepinsHidden && p != nil && p.Repin {
		a |= RepinsHidden
	}
	if s.Blocked {
		a |= Blocked
	}
	follows := s.Explicit
	if s.Boards {
		if follows, err = w.followsBoard(s, owner, p); err != nil {
			return 0, err
		}
	}
	switch {
	case follows:
	case s.Explicit:
		a |= BoardExcluded
	default:
		a |= NotFollowed
	}
	return a, nil
}

// followsBoard reports whether a reader with relations to single boards of an owner follows that of a pin, or, without a pin, the owner in
// any way.
func (w *feedIterator) followsBoard(s visibility, owner string, p *Pin) (bool, error) {
	if p == nil {
		f, err := w.queries.graph.User(w.feed.Reader, owner)
		return f.Kind != graph.None, err
	}
	sees, known := s.seesBoard[p.Board]
	if !known {
		var err error
		if sees, err = w.queries.graph.SeesBoard(w.feed.Reader, owner, p.Board); err != nil {
			return false, err
		}
		if s.seesBoard == nil {
			s.seesBoard = map[string]bool{}
			w.visibilities[owner] = s
		}
		s.seesBoard[p.Board] = sees
	}
	return sees, nil
}

// learn notes a sort key that was merged, or that there is none, for the inbox.
func (w *feedIterator) recordMerged(sortKey []byte) {
	if !w.belowFloor || w.mergedToEnd || w.queries.cache == nil || len(w.mergedKeys) == w.queries.cache.MaxEntries {
		return
	}
	if w.mergedToEnd = sortKey == nil; !w.mergedToEnd {
		w.mergedKeys = append(w.mergedKeys, sortKey)
	}
}

// close ends the walk. What it has merged below the floor, the inbox learns.
func (w *feedIterator) close() error {
	err := w.merge.close()
	if err != nil || !w.belowFloor || w.queries.cache == nil || w.queries.remoteLookup != nil && w.queries.remoteLookup.Wanting() {
		return err
	}
	from, to := w.mergedFrom, []byte(inboxcache.FloorAtEnd)
	if bytes.Compare(from, appendNewestFirst(nil, w.queries.state.Cursor().LastTime)) <= 0 {
		from = nil // there is nothing newer
	}
	if n := len(w.mergedKeys); !w.mergedToEnd {
		if n == 0 {
			return nil
		}
		to = append(bytes.Clone(w.mergedKeys[n-1]), 0)
	}
	w.queries.cache.LearnInbox(events.AppendID(nil, w.feed.Reader), w.queries.version, from, w.mergedKeys, to)
	return nil
}
