package counters

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/projections"
)

// Scope says whose list it is. The zero Scope is everybody's: all items that have a score.
type Scope struct {
	// Owner: the items that living pins of this user show.
	Owner string
	// Board: only those on this board of the owner, which may be the default board (empty); nil: on any.
	Board *string
}

func (s Scope) prefix() []byte {
	switch {
	case s.Owner == "":
		return topPrefix()
	case s.Board == nil:
		return ownerTopPrefix(s.Owner)
	}
	return boardTopPrefix(s.Owner, *s.Board)
}

// TrendingItem is an item in a list by heat.
type TrendingItem struct {
	Item string
	// Score is that at the position where the session began.
	Score int64
}

// Hot returns at most n items of a list by heat after a mark (nil: from the top), and at least one unless the list ends: the
// highest score first, equal scores by id. next is where the next page begins; nil at the end, and only there. It fails with
// [ErrExpired] and [ErrMark].
//
// Scores are those at the position where the session began, and the items are those of now (I9, see placements.go). A page
// costs as many rows as it has items, those between that are of another time, and a look-up for each widespread item of the
// list.
func (q *Queries) Hot(ctx context.Context, s Scope, after Mark, n int) (items []TrendingItem, next Mark, err error) {
	q.rows = 0
	now := q.r.Cursor()
	at := session{now.Seq, now.LastTime}
	var last []byte
	if after != nil {
		if at, last, err = parseMark(after); err != nil {
			return nil, nil, err
		}
		if at.seq > now.Seq || at.time > now.LastTime {
			return nil, nil, ErrMark
		}
		if now.LastTime-at.time > SessionLife {
			return nil, nil, ErrExpired
		}
	}
	w, err := q.walk(ctx, s.prefix(), at, last)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if cerr := w.it.Close(); err == nil {
			err = cerr
		}
	}()
	for n = max(n, 1); ; {
		place, err := w.next(ctx)
		if err != nil {
			return nil, nil, err
		}
		if place == nil {
			return items, nil, nil
		}
		if len(items) == n {
			return items, at.mark(last), nil
		}
		item, score, _, err := cutPlace(place)
		if err != nil {
			return nil, nil, err
		}
		items, last = append(items, TrendingItem{item, score}), place
	}
}

// RowsRead is how many rows the last [Queries.Hot] read.
func (q *Queries) RowsRead() int { return q.rows }

// hotWalk walks over the places of a list at a position: the versions that stand in it and the widespread items, merged.
type hotWalk struct {
	q      *Queries
	prefix []byte
	at     session
	it     projections.Iterator
	// head is the next place of a version; nil: there is none.
	head []byte
	// widespread are the places of widespread items that were not given yet, in order.
	widespread [][]byte
}

// ctxRows is how many rows are read between two looks whether somebody still waits for them.
const ctxRows = 1024

// walk begins after a place; nil: at the top. Its iterator must be closed.
func (q *Queries) walk(ctx context.Context, list []byte, at session, after []byte) (*hotWalk, error) {
	w := &hotWalk{q: q, prefix: append(bytes.Clone(list), entryVersion), at: at}
	if err := w.readWidespread(ctx, append(bytes.Clone(list), entryWidespread), after); err != nil {
		return nil, err
	}
	lower := w.prefix
	if after != nil {
		// Behind all versions that have the place.
		lower = projections.PrefixEnd(append(bytes.Clone(w.prefix), after...))
	}
	w.it = q.r.Iter(lower, projections.PrefixEnd(w.prefix))
	if err := w.advance(ctx); err != nil {
		_ = w.it.Close() // the first error is the cause
		return nil, err
	}
	return w, nil
}

// advance moves to the next version that holds at the position.
func (w *hotWalk) advance(ctx context.Context) error {
	for w.head = nil; w.it.Next(); {
		if err := w.q.count(ctx); err != nil {
			return err
		}
		rest := w.it.Key()[len(w.prefix):]
		_, _, from, err := cutVersionEntry(rest)
		if err != nil {
			return err
		}
		to, err := decodeTo(w.it.Value())
		if err != nil {
			return err
		}
		if from <= w.at.seq && w.at.seq < to {
			w.head = bytes.Clone(rest[:len(rest)-8])
			return nil
		}
	}
	return nil
}

// next returns the next place; nil: the list ends.
func (w *hotWalk) next(ctx context.Context) (place []byte, err error) {
	if len(w.widespread) > 0 && (w.head == nil || bytes.Compare(w.widespread[0], w.head) < 0) {
		place, w.widespread = w.widespread[0], w.widespread[1:]
		return place, nil
	}
	if place = w.head; place == nil {
		return nil, nil
	}
	return place, w.advance(ctx)
}

// count counts a row that was read.
func (q *Queries) count(ctx context.Context) error {
	if q.rows++; q.rows%ctxRows == 0 {
		return ctx.Err()
	}
	return nil
}

// readWidespread looks up the scores of the widespread items of a list.
func (w *hotWalk) readWidespread(ctx context.Context, prefix, after []byte) (err error) {
	var items []string
	it := w.q.r.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && err == nil {
		var item string
		if item, err = cutLast(it.Key()[len(prefix):]); err == nil {
			items = append(items, item)
			err = w.q.count(ctx)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil || len(items) == 0 {
		return err
	}
	// One iterator for all: items of one list are in many shards.
	it = w.q.r.Iter(nil, nil)
	for _, item := range items {
		var place []byte
		if place, err = w.placeAt(ctx, it, item); err != nil {
			break
		}
		if place != nil && (after == nil || bytes.Compare(place, after) > 0) {
			w.widespread = append(w.widespread, place)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	slices.SortFunc(w.widespread, bytes.Compare)
	return err
}

// placeAt returns the place of an item at the position; nil: it had no score there.
func (w *hotWalk) placeAt(ctx context.Context, it projections.Iterator, item string) ([]byte, error) {
	key := versionKey(nil, item, w.at.seq)
	found := it.SeekGE(key)
	if err := w.q.count(ctx); err != nil || !found || !bytes.HasPrefix(it.Key(), key[:len(key)-8]) {
		return nil, err
	}
	_, score, err := decodeVersion(it.Value())
	if err != nil {
		return nil, err
	}
	return appendPlace(nil, item, score), nil
}

// Scores reads scores of items as they were at a position, by one iterator: to open one for each costs more than to use it.
type Scores struct {
	it  projections.Iterator
	seq uint64
	key []byte
}

// ScoresAt returns the scores at a position that is not after that of the state, and not older than [SessionLife].
func (q *Queries) ScoresAt(seq uint64) *Scores { return &Scores{it: q.r.Iter(nil, nil), seq: seq} }

// Of returns the score of an item; ok is false where it has none.
func (s *Scores) Of(item string) (score int64, ok bool, err error) {
	s.key = binary.BigEndian.AppendUint64(projections.AppendKey(s.key[:0], tagVersion, item), ^s.seq)
	// Where it stands at the end after a failure, Close says so.
	if !s.it.SeekGE(s.key) || !bytes.HasPrefix(s.it.Key(), s.key[:len(s.key)-8]) {
		return 0, false, nil
	}
	_, score, err = decodeVersion(s.it.Value())
	return score, err == nil, err
}

// Close ends the reading.
func (s *Scores) Close() error { return s.it.Close() }
