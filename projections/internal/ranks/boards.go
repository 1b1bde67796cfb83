package ranks

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// boardState says whether a board exists.
type boardState int64

const (
	// boardNone: no event has mentioned the board.
	boardNone boardState = iota
	boardLives
	boardDeleted
	// boardAgain: the board lives, but was deleted before. No history about it counts.
	boardAgain
)

func (s boardState) exists() bool { return s == boardLives || s == boardAgain }

// boardTally has the counts of a board, or their change by an event.
type boardTally [3]int64

// Indexes of a boardTally. The row of a board has its state before these numbers.
const (
	boardFollowers = iota
	boardExcluders
	// boardOnly are the followers who do not follow the owner explicitly.
	boardOnly
)

// boardRow is the row of a board. The default board exists without one.
type boardRow struct {
	state boardState
	boardTally
}

func (r *boardRow) append(dst []byte) []byte {
	return fields.AppendCounts(dst, append([]int64{int64(r.state)}, r.boardTally[:]...))
}

func decodeBoard(row []byte, board string) (r boardRow, err error) {
	var counts [1 + len(r.boardTally)]int64
	if err := fields.ReadCounts(row, counts[:]); err != nil {
		return r, err
	}
	r.state, r.boardTally = boardState(counts[0]), boardTally(counts[1:])
	switch {
	case len(row) == 0, r.state > boardAgain, (r.state != boardNone) != (board != ""),
		r.state == boardDeleted && r.boardTally != boardTally{}, r.boardTally[boardOnly] > r.boardTally[boardFollowers]:
		return r, projections.RowError("board", row)
	}
	return r, nil
}

func readBoard(r projections.Reader, key []byte, board string) (row boardRow, err error) {
	value, ok, err := r.Get(key)
	if err != nil || !ok {
		return boardRow{}, err
	}
	return decodeBoard(value, board)
}

// readBoard leaves the key of the board in c.key.
func (c *Ranks) readBoard(owner, board string) (boardRow, error) {
	c.key = projections.AppendKey(c.key[:0], tagBoardRelations, owner, board)
	return readBoard(c.b, c.key, board)
}

func (c *Ranks) writeBoard(owner, board string, r boardRow) {
	c.key = projections.AppendKey(c.key[:0], tagBoardRelations, owner, board)
	c.value = r.append(c.value[:0])
	c.keep(c.key, c.value)
}

// countBoard adds to the counts of a board, which must exist.
func (c *Ranks) countBoard(owner, board string, delta boardTally) error {
	r, err := c.readBoard(owner, board)
	if err != nil {
		return err
	}
	if board != "" && !r.state.exists() {
		return projections.RowError("relation to a board that does not exist", c.key)
	}
	if err := fields.AddCounts(r.boardTally[:], delta[:], c.key); err != nil {
		return err
	}
	c.writeBoard(owner, board, r)
	return nil
}

// mentioned folds a mention of a board in the event, and returns the board's state. The first mention creates a board; only a live
// board_created creates a deleted board again.
func (c *Ranks) mentioned(owner, board string) (boardState, error) {
	if board == "" {
		return boardLives, nil
	}
	r, err := c.readBoard(owner, board)
	if err != nil {
		return 0, err
	}
	state := r.state
	switch {
	case state == boardNone, state == boardAgain && c.b.BackfillsClosed():
		state = boardLives
	case state == boardDeleted && !c.ev.Backfill && c.ev.Kind == events.BoardCreated:
		state = boardAgain
		if c.b.BackfillsClosed() {
			state = boardLives
		}
	}
	if state == r.state {
		return state, nil
	}
	began := !r.state.exists()
	r.state = state
	c.writeBoard(owner, board, r)
	if began {
		return state, c.countUser(owner, userTally{userBoards: 1})
	}
	return state, nil
}

// boardDeleted ends a board and all relations to it. It works in steps, since a board may have any number of followers.
func (c *Ranks) boardDeleted() error {
	owner, board := c.ev.User, c.ev.Board
	err := c.drain(projections.AppendKey(nil, tagBoardEdge, owner, board), func(rest []byte) error {
		user, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.endEdge(user, owner, board)
	})
	if err != nil {
		return err
	}
	r, err := c.readBoard(owner, board)
	if err != nil {
		return err
	}
	if r.boardTally != (boardTally{}) {
		return projections.RowError("board without edges has followers", c.key)
	}
	existed := r.state.exists()
	r.state = boardDeleted
	c.writeBoard(owner, board, r)
	if existed {
		return c.countUser(owner, userTally{userBoards: -1})
	}
	return nil
}
