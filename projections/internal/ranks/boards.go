package ranks

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// boardState is what became of a board.
type boardState int64

const (
	// boardNone: it was never mentioned.
	boardNone boardState = iota
	boardLives
	boardDeleted
	// boardAgain: it lives, but was deleted before: nothing that history says of it counts.
	boardAgain
)

func (s boardState) exists() bool { return s == boardLives || s == boardAgain }

// boardTally is what is counted of a board, and what an event changes of it.
type boardTally [3]int64

// The indexes of the numbers in a boardTally. Its row has the state before them.
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

// countBoard adds to what is counted of a board, which exists.
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

// mentioned folds that the event mentions a board, and returns its state: a first mention creates the board, and a live board_created a
// deleted one again.
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

// boardDeleted ends a board and all relations to it, in steps.
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
