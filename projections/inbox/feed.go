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
type walk struct {
	q     *Queries
	feed  *Feed
	merge *merge
	// floor is the sort key at which the inbox ends; empty means there is none.
	floor []byte
	// learned are the first sort keys that were merged below the floor, from one on, as many as an inbox may have. learnedAll: there are no
	// more.
	learned     [][]byte
	learnedFrom []byte
	learnedAll  bool
	// below is set once the walk has reached the floor, and merges all outboxes.
	below bool
	keys  arena
	// visibilities are the relations to the owners met so far, each read once.
	visibilities map[string]visibility
	// opened counts the outboxes.
	opened int
	// left is how many pins batch may still take; a negative number means any.
	left int
	// ended is set by batch when there is no more.
	ended bool
}

type visibility struct {
	graph.Visibility
	// boards has what was asked about single boards of the owner: whether the reader sees them.
	boards map[string]bool
}

// newWalk begins at the first sort key that is not before from; nil means at the top.
func (q *Queries) newWalk(f *Feed, from []byte) (*walk, error) {
	if q.elsewhere != nil && from == nil {
		// Elsewhere may be ahead. A page has nothing newer than its state, from which a later one counts what is new.
		from = appendNewestFirst(nil, q.r.Cursor().LastTime)
	}
	w := &walk{q: q, feed: f, left: -1, visibilities: make(map[string]visibility, 32)}
	w.merge = newMerge(q, &w.keys)
	if err := w.begin(from); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *walk) begin(from []byte) error {
	entries := w.inbox()
	if bytes.Compare(from, w.floor) >= 0 {
		return w.descend(from)
	}
	streams, err := w.pulls()
	if err != nil {
		return err
	}
	w.opened += len(streams)
	w.open(append(streams, &stream{entries: entries}), from)
	return nil
}

// inbox returns what the inbox has, and finds its floor.
func (w *walk) inbox() (entries inboxcache.List) {
	if w.q.cache == nil {
		return entries
	}
	entries, floor := w.q.cache.ReadInbox(events.AppendID(nil, w.feed.Reader), w.q.version)
	w.floor = []byte(floor)
	return entries
}

// open merges some streams, and the reader's own outbox.
func (w *walk) open(streams []*stream, from []byte) {
	if w.feed.Own {
		streams = append(streams, w.q.outboxStream(&w.keys, w.feed.Reader, nil))
		w.opened++
	}
	w.merge.restart(streams, from)
}

// descend continues at or below the floor, where all outboxes are merged.
func (w *walk) descend(from []byte) error {
	w.below, w.learnedFrom = true, from
	var streams []*stream
	explicit := map[string]bool{}
	relations := graph.Query(w.q.r)
	err := relations.EachFollowee(w.feed.Reader, func(owner string) error {
		explicit[owner] = true
		streams = append(streams, w.q.outboxStream(&w.keys, owner, nil))
		return nil
	})
	if err == nil {
		err = relations.EachFollowedBoard(w.feed.Reader, func(owner, board string) error {
			if !explicit[owner] {
				streams = append(streams, w.q.outboxStream(&w.keys, owner, &board))
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	w.opened += len(streams)
	w.open(streams, from)
	return nil
}

// next returns the next pin that the reader sees, with its sort key; nil means the feed has ended.
func (w *walk) next(ctx context.Context) (*Pin, []byte, error) {
	for step := 1; ; step++ {
		if step%1024 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		sortKey := w.merge.next()
		if w.merge.err != nil {
			return nil, nil, w.merge.err
		}
		if !w.below && string(w.floor) != inboxcache.End && (sortKey == nil || bytes.Compare(sortKey, w.floor) >= 0) {
			if err := w.descend(w.floor); err != nil {
				return nil, nil, err
			}
			continue
		}
		w.learn(sortKey)
		if sortKey == nil {
			return nil, nil, nil
		}
		p, err := w.pin(sortKey)
		if err != nil || p != nil {
			return p, sortKey, err
		}
	}
}

// pin returns the pin at a sort key, if it is there and the reader sees it.
func (w *walk) pin(sortKey []byte) (*Pin, error) {
	created, owner, id, err := cutSortKey(sortKey)
	if err != nil {
		return nil, err
	}
	p, err := w.q.living(owner, id)
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
func (w *walk) absence(owner string, p *Pin) (a Absence, err error) {
	if owner == w.feed.Reader {
		if !w.feed.Own {
			a = OwnPin
		}
		return a, nil
	}
	s, met := w.visibilities[owner]
	if !met {
		if s.Visibility, err = w.q.graph.Visibility(w.feed.Reader, owner); err != nil {
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
func (w *walk) followsBoard(s visibility, owner string, p *Pin) (bool, error) {
	if p == nil {
		f, err := w.q.graph.User(w.feed.Reader, owner)
		return f.Kind != graph.None, err
	}
	sees, known := s.boards[p.Board]
	if !known {
		var err error
		if sees, err = w.q.graph.SeesBoard(w.feed.Reader, owner, p.Board); err != nil {
			return false, err
		}
		if s.boards == nil {
			s.boards = map[string]bool{}
			w.visibilities[owner] = s
		}
		s.boards[p.Board] = sees
	}
	return sees, nil
}

// learn notes a sort key that was merged, or that there is none, for the inbox.
func (w *walk) learn(sortKey []byte) {
	if !w.below || w.learnedAll || w.q.cache == nil || len(w.learned) == w.q.cache.MostEntries {
		return
	}
	if w.learnedAll = sortKey == nil; !w.learnedAll {
		w.learned = append(w.learned, sortKey)
	}
}

// close ends the walk. What it has merged below the floor, the inbox learns.
func (w *walk) close() error {
	err := w.merge.close()
	if err != nil || !w.below || w.q.cache == nil || w.q.elsewhere != nil && w.q.elsewhere.Wanting() {
		return err
	}
	from, to := w.learnedFrom, []byte(inboxcache.End)
	if bytes.Compare(from, appendNewestFirst(nil, w.q.r.Cursor().LastTime)) <= 0 {
		from = nil // there is nothing newer
	}
	if n := len(w.learned); !w.learnedAll {
		if n == 0 {
			return nil
		}
		to = append(bytes.Clone(w.learned[n-1]), 0)
	}
	w.q.cache.LearnInbox(events.AppendID(nil, w.feed.Reader), w.q.version, from, w.learned, to)
	return nil
}
