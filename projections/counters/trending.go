package counters

import (
	"bytes"
	"context"
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// Scope names a list by heat. The zero Scope is the global list of all items that have a score.
type Scope struct {
	// Owner limits the list to the items that living pins of this user show.
	Owner string
	// Board limits the list to the pins on this board of the owner. The empty id is the default
	// board; nil means all boards.
	Board *string
}

// TrendingItem is an item in a list by heat.
type TrendingItem struct {
	Item string
	// Score is the score at the position at which the session began.
	Score int64
}

const (
	// maxComputedPins is the largest number of pins of a list that is computed from the pins. With
	// more pins, the rows of the list are read.
	maxComputedPins = 256
	// maxRowsPerPin limits how many rows of a list are read, for each of its pins. If a page needs
	// more, most of the rows are of items that no pin shows any more, and computing the list is
	// cheaper.
	maxRowsPerPin = 2
)

// Trending returns at most n items of a list by heat after a page cursor, or from the top if after
// is nil. The highest score comes first, equal scores are ordered by id. A page is only empty if
// the list ends, also if n is 0. next is where the next page begins, or nil at the end. Trending
// fails with [ErrExpired] and [ErrPageCursor].
//
// The scores are those at the position at which the session began, and the items are those that are
// in the list now (I9, see lists.go). A page of a list of few pins costs a lookup for each pin. A
// page of a longer list costs the rows of its items, a lookup for each of whether a living pin
// shows it, the same for items in between that are not shown, and a lookup of the score for each
// item that the list has by name. In all, that is not more than a lookup or two for each pin.
func (q *Queries) Trending(
	ctx context.Context, s Scope, after PageCursor, n int,
) (items []TrendingItem, next PageCursor, err error) {
	q.rowsRead = 0

	// The first page begins a session at the position of the state. The others continue it.
	now := q.state.Cursor()
	at := session{seq: now.Seq, time: now.LastTime}
	var last []byte
	if after != nil {
		if at, last, err = parseTrendingCursor(after); err != nil {
			return nil, nil, err
		}
		if at.seq > now.Seq || at.time > now.LastTime {
			return nil, nil, ErrPageCursor // no page of this log can have begun later than now
		}
		if now.LastTime-at.time > SessionLifetime {
			return nil, nil, ErrExpired
		}
	}

	// One more item than asked for shows whether there is a next page.
	n = max(n, 1)
	sortKeys, err := q.readSortKeys(ctx, s, at, last, n+1)
	if err != nil {
		return nil, nil, err
	}
	if last != nil {
		if err := q.checkSessionScores(last, at); err != nil {
			return nil, nil, err
		}
	}
	for _, sortKey := range sortKeys[:min(n, len(sortKeys))] {
		item, score, _, err := cutSortKey(sortKey)
		if err != nil {
			return nil, nil, err
		}
		items = append(items, TrendingItem{item, score})
	}
	if len(sortKeys) > n {
		next = at.cursor(sortKeys[n-1])
	}
	return items, next, nil
}

// checkSessionScores returns [ErrExpired] if the last item of the page before had another score
// when that page was read. The scores of a session never change, except if the store was rebuilt
// with other settings between the two pages. With such scores, the session would repeat items and
// leave others out (I9).
func (q *Queries) checkSessionScores(last []byte, at session) error {
	item, want, _, err := cutSortKey(last)
	if err != nil {
		return err
	}
	score, ok, err := q.ScoresAt(at.seq).Of(item)
	if err == nil && (!ok || score != want) {
		err = ErrExpired
	}
	return err
}

// RowsRead returns how many rows the last [Queries.Trending] read.
func (q *Queries) RowsRead() int { return q.rowsRead }

// readSortKeys returns the first n sort keys of a list after one, or from the top if after is nil.
func (q *Queries) readSortKeys(
	ctx context.Context, s Scope, at session, after []byte, n int,
) ([][]byte, error) {
	if s.Owner == "" {
		if q.remote != nil {
			return q.gatherSortKeys(ctx, s, at, after, n)
		}
		sortKeys, _, err := q.walkSortKeys(ctx, s, at, after, n, 0)
		return sortKeys, err
	}

	// The list of few pins is computed from the pins, which needs no rows of the list. A long list
	// is walked, unless most of its rows are of items that no pin shows any more.
	pins, err := q.countPins(s)
	if err != nil {
		return nil, err
	}
	if pins > q.maxComputedPins {
		if q.remote != nil {
			return q.gatherSortKeys(ctx, s, at, after, n)
		}
		maxRows := int(q.maxRowsPerPin * pins)
		sortKeys, ok, err := q.walkSortKeys(ctx, s, at, after, n, maxRows)
		if err != nil || ok {
			return sortKeys, err
		}
	}
	return q.computeSortKeys(ctx, s, at, after, n)
}

// countPins returns how many living pins an owner has, or has on the board.
func (q *Queries) countPins(s Scope) (int64, error) {
	if s.Board != nil {
		return q.BoardPins(s.Owner, *s.Board)
	}
	u, err := q.UserCounts(s.Owner)
	return u.Pins, err
}

// computeSortKeys is readSortKeys from the pins: it looks up the score of every item that they
// show.
func (q *Queries) computeSortKeys(
	ctx context.Context, s Scope, at session, after []byte, n int,
) (sortKeys [][]byte, err error) {
	items, err := q.shownItems(ctx, s)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	sortKeys, err = q.sortKeysOfItems(ctx, items, at, after)
	return sortKeys[:min(n, len(sortKeys))], err
}

// sortKeysOfItems returns the sort keys of those items that had a score when the session began. It
// returns them in order, and only those after the sort key after, if that is not nil.
func (q *Queries) sortKeysOfItems(
	ctx context.Context, items []string, at session, after []byte,
) (sortKeys [][]byte, err error) {
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

		sortKey := appendSortKey(nil, item, score)
		if ok && (after == nil || bytes.Compare(sortKey, after) > 0) {
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
		// The rows of several pins that show one item follow one another.
		if len(items) == 0 || items[len(items)-1] != item {
			items = append(items, item)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return items, err
}

// shownOnBoard returns the items that the living pins on a board show. An item may occur several
// times.
func (q *Queries) shownOnBoard(ctx context.Context, owner, board string) (items []string, err error) {
	// These rows also name pins that only late history would put on the board, so each pin is read.
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

// shownByPin returns the item that a pin shows on a board, or the empty string if the pin is not on
// the board. encodedPin is the id of the pin in its key encoding.
func (q *Queries) shownByPin(owner string, encodedPin []byte, board string) (item string, err error) {
	pin, err := cutLastID(encodedPin)
	if err != nil {
		return "", err
	}

	key := append(projections.AppendKey(nil, tagPin, owner), encodedPin...)
	value, ok, err := q.state.Get(key)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", projections.RowError("pin of a board", key)
	}
	row, err := pinstore.Decode(value, pin)
	if err != nil {
		return "", err
	}

	state := row.State()
	if state.Creation != nil && state.Board == board {
		item = state.Creation.Item
	}
	return item, nil
}

// rowsPerContextCheck is the number of rows that are read between two checks of the context.
const rowsPerContextCheck = 1024

// countRow counts a row that was read, and now and then returns the error of the context.
func (q *Queries) countRow(ctx context.Context) error {
	q.rowsRead++
	if q.rowsRead%rowsPerContextCheck == 0 {
		return ctx.Err()
	}
	return nil
}

// Scores reads the scores of items at one position.
type Scores struct {
	seq     uint64
	queries *Queries
}

// ScoresAt returns the scores at a position. The position must not be later than that of the state,
// nor older than [SessionLifetime].
func (q *Queries) ScoresAt(seq uint64) *Scores { return &Scores{seq: seq, queries: q} }

// Of returns the score of an item. ok is false if the item has none.
func (s *Scores) Of(item string) (score int64, ok bool, err error) {
	if s.queries.isRemote(item) {
		score, ok, _ = s.queries.remote.Score(item, s.seq)
		return score, ok, nil
	}
	return scoreAt(s.queries.state, item, s.seq)
}

// Close implements the interface of package inbox.
func (*Scores) Close() error { return nil }
