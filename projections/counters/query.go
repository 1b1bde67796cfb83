package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// State is the rows of a counters store at one position. A [projections.View] is one.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	// maxComputedPins and maxRowsPerPin are the constants of the same names. Tests set others.
	maxComputedPins, maxRowsPerPin int64
	// rowsRead counts the rows that [Queries.Trending] reads.
	rowsRead int
	// remote answers for homes whose rows the state does not have. nil means that the state has all
	// rows.
	remote RemoteLookup
}

// RemoteLookup answers for homes whose rows are not in the state that is queried. known is false
// for an answer that must be fetched first; the query then continues with the zero value, and its
// result does not count (see [projections.RemoteLookup]). Lists of a user's or owner's items are at
// the homes of the items, so each of the other nodes has a part of them.
type RemoteLookup interface {
	projections.RemoteLookup
	// Score returns the score of an item as of a position.
	Score(item string, seq uint64) (score int64, scored, known bool)
	// OwnReactions is [Queries.OwnReactions].
	OwnReactions(user, item string) (kinds []string, known bool)
	// Reactions returns [Queries.LocalReactions] of each node that has rows which the state lacks.
	// An item may be in several parts.
	Reactions(user, kind string, after PageCursor, n int) (parts []ReactionPart, known bool)
	// Reactors returns [Queries.LocalReactors] of a node that has the rows of the item.
	Reactors(item, kind string, after PageCursor, n int) (part ReactorPart, known bool)
	// Candidates returns [Queries.Candidates] of each such node. owner is empty for the global
	// list.
	Candidates(owner string, seq uint64, after []byte, n int) (parts []CandidatePart, known bool)
}

// WithRemote makes the queries ask e about homes whose rows the state does not have. It returns q.
func (q *Queries) WithRemote(e RemoteLookup) *Queries {
	q.remote = e
	return q
}

// isRemote reports whether the rows of an item must be asked from q.remote.
func (q *Queries) isRemote(item string) bool { return q.remote != nil && !q.remote.Holds(item) }

// NewQueries returns the queries over a state of a counters store.
func NewQueries(s State) *Queries {
	return &Queries{state: s, maxComputedPins: maxComputedPins, maxRowsPerPin: maxRowsPerPin}
}

// ItemCounts are the counts of an item.
type ItemCounts struct {
	// Plays is the number of all plays that ever counted, and Repins the number of pins that were
	// re-pins of the item. Neither ever falls.
	Plays int64
	// Likes is the number of users who like the item. OtherKinds is the number of other kinds that
	// are not private with which users react to it; [Queries.ReactionCounts] counts those.
	Likes, OtherKinds int64
	Repins            int64
}

// UserCounts are the counts of a user.
type UserCounts struct {
	// Pins is the number of the user's living pins.
	Pins int64
	// Plays is the number of plays by the user.
	Plays int64
}

// UserCounts returns the counts of a user. They are 0 for an unknown user.
func (q *Queries) UserCounts(id string) (UserCounts, error) {
	tallies, err := readUserTallies(q.state, projections.AppendKey(nil, tagUserTallies, id))
	return UserCounts{Pins: tallies[tallyPins], Plays: tallies[tallyPlays]}, err
}

// BoardPins returns how many living pins are on a board.
func (q *Queries) BoardPins(owner, board string) (int64, error) {
	return readCount(q.state, projections.AppendKey(nil, tagBoardPins, owner, board))
}

// ItemCounts returns the counts of an item.
func (q *Queries) ItemCounts(id string) (ItemCounts, error) {
	item, err := readItem(q.state, projections.AppendKey(nil, tagItem, id))
	return ItemCounts{Plays: item.plays, Likes: item.likes, Repins: item.repins, OtherKinds: item.otherKinds}, err
}
