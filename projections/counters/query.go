package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// State is the rows of a counters store at one position, as a [projections.View] is.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	r State
	// rows counts what [Queries.Hot] reads.
	rows int
}

// Query returns the queries over a state of a counters store.
func Query(r State) *Queries { return &Queries{r: r} }

// ItemCounts is what is counted of an item.
type ItemCounts struct {
	// Plays are all that ever counted, Repins how often a re-pin brought a pin to life that shows it. Nothing is taken back.
	Plays int64
	// Likes is how many users like it.
	Likes  int64
	Repins int64
}

// User returns what is counted of a user; of one who never occurred, zeros.
func (q *Queries) User(id string) (UserCounts, error) {
	var u UserCounts
	if err := q.userRelations(id, &u); err != nil {
		return UserCounts{}, err
	}
	d, err := readDoings(q.r, projections.AppendKey(nil, tagDoings, id))
	if err != nil {
		return UserCounts{}, err
	}
	u.Pins, u.Plays = d[ownPins], d[ownPlays]
	return u, nil
}

// Board returns what is counted of a board.
func (q *Queries) Board(owner, board string) (BoardCounts, error) {
	var b BoardCounts
	err := q.boardRelations(owner, board, &b)
	if err != nil {
		return BoardCounts{}, err
	}
	b.Pins, err = readCount(q.r, projections.AppendKey(nil, tagBoardPins, owner, board))
	return b, err
}

// Item returns what is counted of an item.
func (q *Queries) Item(id string) (ItemCounts, error) {
	it, err := readItem(q.r, projections.AppendKey(nil, tagItem, id))
	return ItemCounts{Plays: it.plays, Likes: it.likes, Repins: it.repins}, err
}
