package counters

import (
	"bytes"
	"context"
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// Scope says which list by heat is meant: the global list, that of an owner, or that of a board.
// Only items that have a score are in a list. The zero Scope is the global list, which has all of
// these items.
type Scope struct {
	// Owner limits the list to the items that living pins of this user show. If Owner is empty, the
	// list is the global one, and Board is ignored.
	Owner string
	// Board limits the list to the items that living pins on this board of the owner show. A
	// pointer to the empty id means the default board; nil means all boards.
	Board *string
}

// TrendingItem is an item in a list by heat.
type TrendingItem struct {
	Item string
	// Score is the score that the item had at the position at which the session began.
	Score int64
}

const (
	// maxComputedPins decides how a page is made. If the owner or board has at most this many
	// living pins, the page is computed from the pins. If there are more, the page is read from the
	// rows of the owner's list.
	maxComputedPins = 256
	// maxRowsPerPin limits how many rows a page reads from the owner's list: this many for each
	// living pin of the owner or board. A page that would need more is computed from the pins
	// instead, which costs about two rows for each pin. A page needs more if the list has many rows
	// that the page does not show: items that no living pin shows any more, items on other boards,
	// scores of other positions, and items by name, because every page looks up all of these. The
	// limit is checked between items, so an item that very many pins show on other boards can
	// exceed it. A query that gathers a page from several nodes (gather.go) checks the limit
	// between its rounds, and does not count the rows that other nodes read.
	maxRowsPerPin = 2
)

// Trending returns the next page of a list by heat: at most n items after the page cursor after, or
// from the top if after is nil. The highest score comes first, and equal scores are ordered by id.
// An n below 1 counts as 1, so a page is empty only if no items are left. next is the cursor of the
// next page, or nil if this page is the last one.
//
// The page without a cursor begins a session at the position of the state, and the pages after it
// continue the session. The scores are those at the position at which the session began, and the
// items are those that are in the list now (I9; lists.go explains why this works).
//
// Trending fails with [ErrPageCursor] if after is no cursor of such a list, or is of a session that
// began later than the state. It fails with [ErrExpired] if the session is older than
// [SessionLifetime], or if the store does not have its scores.
//
// What a page costs depends on the number of living pins of the owner or board. With at most
// [maxComputedPins] of them, every page reads the row of each pin and looks up the score of each
// item that they show. With more, a page reads entries of the owner's list up to the end of the
// page, and looks up for each whether a living pin shows its item. It also looks up the scores of
// all items that the list has by name. If all this takes more than [maxRowsPerPin] rows for each
// pin, the page is computed from the pins after all. In all, a page then costs about four to six
// rows for each pin. There is no such limit for the global list, which has no pins.
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
			// The caller must pass a state that contains the position of the page before. So no
			// page of this log can have begun this session.
			return nil, nil, ErrPageCursor
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

// checkSessionScores returns [ErrExpired] if the store has another score, or none, for the last
// item of the page before than that page had. last is the sort key of this item, from the page
// cursor, and both scores are those at the position at which the session began. The scores at one
// position never change, except if the store was rebuilt with other settings between the two pages.
// With other scores, the session would repeat items and leave others out (I9). One item stands for
// all: the check does not notice a rebuild that gave this item the same score.
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

// RowsRead returns how many rows the last call of [Queries.Trending] read, as a measure of its
// cost. The number is not exact: it has one row for each entry of the list, each pin and each score
// that was looked up. It leaves out, among others, the second row that a page of a board reads for
// each pin, the ended versions that the lookup of a score passes over, and what other nodes read.
func (q *Queries) RowsRead() int { return q.rowsRead }

// readSortKeys returns the first n sort keys of a list that come after the sort key after, or the
// first n of all if after is nil. The scores are those at the position of the session.
func (q *Queries) readSortKeys(
	ctx context.Context, s Scope, at session, after []byte, n int,
) ([][]byte, error) {
	if s.Owner == "" {
		sortKeys, _, err := q.readList(ctx, s, at, after, n, 0)
		return sortKeys, err
	}

	// With few pins, the sort keys are computed from the pins, which needs no entries of the list.
	// With many, the entries are read, until that takes too many rows (see maxRowsPerPin).
	pins, err := q.countPins(s)
	if err != nil {
		return nil, err
	}
	if pins > q.maxComputedPins {
		maxRows := int(q.maxRowsPerPin * pins)
		sortKeys, ok, err := q.readList(ctx, s, at, after, n, maxRows)
		if err != nil || ok {
			return sortKeys, err
		}
	}
	return q.computeSortKeys(ctx, s, at, after, n)
}

// readList does what readSortKeys does, from the entries of the list: those of this state, or those
// of all nodes. ok is false if that took more than maxRows rows; 0 means no limit.
func (q *Queries) readList(
	ctx context.Context, s Scope, at session, after []byte, n, maxRows int,
) (sortKeys [][]byte, ok bool, err error) {
	if q.remote != nil {
		return q.gatherSortKeys(ctx, s, at, after, n, maxRows)
	}
	return q.walkSortKeys(ctx, s, at, after, n, maxRows)
}

// countPins returns how many living pins the owner of the scope has, on the board of the scope if
// it has one.
func (q *Queries) countPins(s Scope) (int64, error) {
	if s.Board != nil {
		return q.BoardPins(s.Owner, *s.Board)
	}
	u, err := q.UserCounts(s.Owner)
	return u.Pins, err
}

// computeSortKeys does what readSortKeys does, for a scope with an owner, from the pins: it looks
// up the score of every item that living pins show, for each page again, and sorts them.
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

// sortKeysOfItems returns the sort keys of those items that had a score when the session began, in
// the order of sort keys. If after is not nil, it returns only the sort keys that come after it.
func (q *Queries) sortKeysOfItems(
	ctx context.Context, items []string, at session, after []byte,
) (sortKeys [][]byte, err error) {
	scores := q.ScoresAt(at.seq)
	for i, item := range items {
		var score int64
		var ok bool
		if score, ok, err = scores.Of(item); err == nil {
			err = q.countRow(ctx)
		}
		// Few scores are fetched all at once. If there are many, the query ends here once enough
		// questions for one fetch are recorded.
		if err == nil && int64(i) >= q.maxComputedPins && q.isRemote(item) && q.remote.Full() {
			err = projections.ErrUnresolved
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

// shownItems returns the items that living pins of the owner show, on the board of the scope if it
// has one. It returns each item once.
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
		// The item comes before the pin in the key, so the rows of several pins that show one item
		// follow one another.
		if len(items) == 0 || items[len(items)-1] != item {
			items = append(items, item)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return items, err
}

// shownOnBoard returns the items that the living pins on a board show, in the order of the ids of
// the pins. An item that several pins show occurs several times.
func (q *Queries) shownOnBoard(ctx context.Context, owner, board string) (items []string, err error) {
	// Some of these rows are of pins that are not on the board, and would be only if late history
	// came. So the row of each pin is read, too.
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

// shownByPin returns the item that a pin shows on a board, or the empty string if the pin does not
// live or is not on the board. encodedPin is the id of the pin as it is encoded in keys.
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

// countRow counts a row that was read. Every [rowsPerContextCheck] rows it returns the error of the
// context, so that a query whose caller has gone ends soon.
func (q *Queries) countRow(ctx context.Context) error {
	q.rowsRead++
	if q.rowsRead%rowsPerContextCheck == 0 {
		return ctx.Err()
	}
	return nil
}

// Scores reads the scores that items had at one position.
type Scores struct {
	seq     uint64
	queries *Queries
}

// ScoresAt returns the scores at the position seq. The position must not be later than that of the
// state, and its log time must not be more than [SessionLifetime] before that of the state. This is
// not checked. At a later position, items have the scores of the state; at an older one, items
// whose score has changed since may seem to have none.
func (q *Queries) ScoresAt(seq uint64) *Scores { return &Scores{seq: seq, queries: q} }

// Of returns the score of an item. ok is false if the item had none, or if another node must be
// asked first and the query will run again (see [RemoteLookup]).
func (s *Scores) Of(item string) (score int64, ok bool, err error) {
	if s.queries.isRemote(item) {
		score, ok, _ = s.queries.remote.Score(item, s.seq)
		return score, ok, nil
	}
	return scoreAt(s.queries.state, item, s.seq)
}

// Close does nothing. Package inbox closes the scores that it is given (inbox.Scores), so *Scores
// must have this method.
func (*Scores) Close() error { return nil }
