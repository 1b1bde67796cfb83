package counters

import (
	"bytes"
	"context"
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// Scope says whose list it is. The zero Scope is everybody's: all items that have a score.
type Scope struct {
	// Owner: the items that living pins of this user show.
	Owner string
	// Board: only those on this board of the owner, which may be the default board (empty); nil means on any.
	Board *string
}

// TrendingItem is an item in a list by heat.
type TrendingItem struct {
	Item string
	// Score is that at the position where the session began.
	Score int64
}

const (
	// computed is the number of pins up to which a list is computed from them when it is read. With more pins, its rows are read.
	maxComputedPins = 256
	// patience bounds the rows of a list that are read, by the pins that it has. Beyond it most of the rows are of items that no pin
	// shows any more, and to compute the list is cheaper.
	maxRowsPerPin = 2
)

// Trending returns at most n items of a list by heat after a page cursor (nil: from the top), and at least one unless the list ends: the
// highest score first, equal scores by id. next is where the next page begins; nil at the end, and only there. It fails with
// [ErrExpired] and [ErrPageCursor].
//
// Scores are those at the position where the session began, and the items are those of now (I9, see lists.go). A page of a list
// of few pins costs a lookup for each of them. Of a longer one it costs as many rows as it has items, as many lookups whether a
// living pin shows them, what stands between and is not shown, and a lookup for each item that the list has by its name: in all
// no more than a lookup or two for each pin.
func (q *Queries) Trending(ctx context.Context, s Scope, after PageCursor, n int) (items []TrendingItem, next PageCursor, err error) {
	q.rowsRead = 0
	now := q.state.Cursor()
	at := session{now.Seq, now.LastTime}
	var last []byte
	if after != nil {
		if at, last, err = parseTrendingCursor(after); err != nil {
			return nil, nil, err
		}
		if at.seq > now.Seq || at.time > now.LastTime {
			return nil, nil, ErrPageCursor
		}
		if now.LastTime-at.time > SessionLife {
			return nil, nil, ErrExpired
		}
	}
	n = max(n, 1)
	sortKeys, err := q.readSortKeys(ctx, s, at, last, n+1)
	if err != nil {
		return nil, nil, err
	}
	more := len(sortKeys) > n
	for _, sortKey := range sortKeys[:min(n, len(sortKeys))] {
		item, score, _, err := cutSortKey(sortKey)
		if err != nil {
			return nil, nil, err
		}
		items = append(items, TrendingItem{item, score})
	}
	if more {
		next = at.cursor(sortKeys[n-1])
	}
	return items, next, nil
}

// RowsRead is how many rows the last [Queries.Trending] read.
func (q *Queries) RowsRead() int { return q.rowsRead }

// sortKeys returns the first n sort keys of a list after one; nil means from the top.
func (q *Queries) readSortKeys(ctx context.Context, s Scope, at session, after []byte, n int) ([][]byte, error) {
	if s.Owner == "" {
		if q.remote != nil {
			return q.gatherSortKeys(ctx, s, at, after, n)
		}
		sortKeys, _, err := q.walkSortKeys(ctx, s, at, after, n, 0)
		return sortKeys, err
	}
	pins, err := q.countPins(s)
	if err != nil {
		return nil, err
	}
	if pins > q.maxComputedPins && q.remote != nil {
		return q.gatherSortKeys(ctx, s, at, after, n)
	}
	if pins > q.maxComputedPins {
		sortKeys, ok, err := q.walkSortKeys(ctx, s, at, after, n, int(q.maxRowsPerPin*pins))
		if err != nil || ok {
			return sortKeys, err
		}
	}
	return q.computeSortKeys(ctx, s, at, after, n)
}

// pinsOf returns how many living pins an owner has, or has on a board.
func (q *Queries) countPins(s Scope) (int64, error) {
	if s.Board != nil {
		return q.BoardPins(s.Owner, *s.Board)
	}
	u, err := q.User(s.Owner)
	return u.Pins, err
}

// compute looks up the scores of all that is shown.
func (q *Queries) computeSortKeys(ctx context.Context, s Scope, at session, after []byte, n int) (sortKeys [][]byte, err error) {
	items, err := q.shownItems(ctx, s)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	sortKeys, err = q.sortKeysOfItems(ctx, items, at, after)
	return sortKeys[:min(n, len(sortKeys))], err
}

// sortKeysOf returns the sort keys of some items after one, in order, without those that had no score.
func (q *Queries) sortKeysOfItems(ctx context.Context, items []string, at session, after []byte) (sortKeys [][]byte, err error) {
	scores := q.ScoresAt(at.seq)
	for _, item := range items {
		var score int64
		var ok bool
		if score, ok, err = scores.Of(item); err == nil {
			err = q.countRow(ctx)
		}
		if err != nil {
			break
		}
		if sortKey := appendSortKey(nil, item, score); ok && (after == nil || bytes.Compare(sortKey, after) > 0) {
			sortKeys = append(sortKeys, sortKey)
		}
	}
	if cerr := scores.Close(); err == nil {
		err = cerr
	}
	slices.SortFunc(sortKeys, bytes.Compare)
	return sortKeys, err
}

// shownItems returns the items that living pins show, each once.
func (q *Queries) shownItems(ctx context.Context, s Scope) (items []string, err error) {
	if s.Board != nil {
		items, err = q.shownOnBoard(ctx, s.Owner, *s.Board)
		slices.Sort(items)
		return slices.Compact(items), err
	}
	prefix := projections.AppendKey(nil, tagShownItem, s.Owner)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && it.Next() {
		var item string
		if item, _, err = cutLastTwoIDs(it.Key()[len(prefix):]); err == nil {
			err = q.countRow(ctx)
		}
		if len(items) == 0 || items[len(items)-1] != item {
			items = append(items, item)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return items, err
}

// shownOnBoard returns the items of the living pins on a board.
func (q *Queries) shownOnBoard(ctx context.Context, owner, board string) (items []string, err error) {
	prefix := projections.AppendKey(nil, tagPossibleBoard, owner, board)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && it.Next() {
		var item string
		if item, err = q.shownByPin(owner, it.Key()[len(prefix):], board); err == nil {
			err = q.countRow(ctx)
		}
		if item != "" {
			items = append(items, item)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return items, err
}

// shownByPin returns the item that a pin shows on a board, given what follows the owner in its key; empty means it is not there.
func (q *Queries) shownByPin(owner string, id []byte, board string) (item string, err error) {
	pin, err := cutLastID(id)
	if err != nil {
		return "", err
	}
	key := append(projections.AppendKey(nil, tagPin, owner), id...)
	value, ok, err := q.state.Get(key)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", projections.RowError("pin of a board", key)
	}
	row, err := pinfacts.Decode(value, pin)
	if err != nil {
		return "", err
	}
	if now := row.State(); now.Made != nil && now.Board == board {
		item = now.Made.Item
	}
	return item, nil
}

// ctxRows is the number of rows that are read between two checks of the context.
const rowsPerContextCheck = 1024

// count counts a row that was read.
func (q *Queries) countRow(ctx context.Context) error {
	if q.rowsRead++; q.rowsRead%rowsPerContextCheck == 0 {
		return ctx.Err()
	}
	return nil
}

// Scores reads the scores of items at a position. It uses one iterator for all, because opening an iterator costs more than a seek.
type Scores struct {
	it      projections.Iterator
	seq     uint64
	key     []byte
	queries *Queries
}

// ScoresAt returns the scores at a position that is not after that of the state, and not older than [SessionLife].
func (q *Queries) ScoresAt(seq uint64) *Scores {
	return &Scores{it: q.state.Iter(nil, nil), seq: seq, queries: q}
}

// Of returns the score of an item. ok is false if it has none.
func (s *Scores) Of(item string) (score int64, ok bool, err error) {
	if s.queries.isRemote(item) {
		score, ok, _ = s.queries.remote.Score(item, s.seq)
		return score, ok, nil
	}
	s.key = versionKey(s.key[:0], item, s.seq)
	if !s.it.SeekGE(s.key) || !bytes.HasPrefix(s.it.Key(), s.key[:len(s.key)-8]) {
		return 0, false, s.it.Error()
	}
	_, score, err = decodeVersion(s.it.Value())
	return score, err == nil, err
}

// Close ends the reading.
func (s *Scores) Close() error { return s.it.Close() }
