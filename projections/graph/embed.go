package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A projection that needs to know who follows whom, and cannot ask another store (I4), folds the relations into its own:
// it owns a Graph, hands it every event of [Graph.Kinds], and hears of what changed by [Graph.Observe]. The rows are the
// same, under the same tags, and the queries too.

// Change is what an event changed between two users.
type Change struct {
	Follower, Owner string
	// Was and Is tell whether follower followed owner explicitly before, and does now.
	Was, Is bool
	// Boards are the boards of owner that follower began or ceased to follow.
	Boards []BoardChange
	// Gone: nothing is kept about the two any more.
	Gone bool
}

// BoardChange is the begin or end of a board follow.
type BoardChange struct {
	Board   string
	Was, Is bool
}

// Observe makes a function hear of every change, once its rows are written. It may read and write the batch, but not
// rows of the graph, and must not call Step. An event that a crash has cut is told again in part.
func (g *Graph) Observe(f func(Change) error) { g.t.observe = f }

// tell tells the observer what became of a pair.
func (t *txn) tell(p *pair, was, is bool) error {
	if t.observe == nil {
		return nil
	}
	c := Change{Follower: p.a, Owner: p.b, Was: was, Is: is, Gone: p.after == edge{}}
	for _, change := range p.changes {
		b := BoardChange{change.board, change.old.kind == relationFollow, change.new.kind == relationFollow}
		if b.Was != b.Is {
			c.Boards = append(c.Boards, b)
		}
	}
	if was == is && len(c.Boards) == 0 && !c.Gone {
		return nil
	}
	return t.observe(c)
}

// Pinned folds an event that puts a pin on a board, and reports whether the board exists then: if not, a live event is
// void.
func (g *Graph) Pinned(ev events.Event, b *projections.Batch) (exists bool, err error) {
	return g.begin(&ev, b).pinned()
}

// Erased reports whether a user was deleted, so that no backfill may bring anything of theirs back.
func (g *Graph) Erased(ev events.Event, b *projections.Batch, user string) (bool, error) {
	return g.begin(&ev, b).tombstoned(user)
}

// Prefixes of row lists for a fold that walks them. What follows the prefix in a key is read by the function named.

// FollowersPrefix appends the prefix of the explicit followers of a user, read by [CutUser].
func FollowersPrefix(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagFollowers, user)
}

// BoardFollowersPrefix appends the prefix of those who follow a board itself, read by [CutUser].
func BoardFollowersPrefix(dst []byte, owner, board string) []byte {
	return projections.AppendKey(dst, tagBoardFollowers, owner, board)
}

// FollowedBoardsPrefix appends the prefix of the boards that a user follows, read by [CutBoard].
func FollowedBoardsPrefix(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagFollowedBoards, user)
}

// CutUser reads the user of a row of a list of users.
func CutUser(rest []byte) (string, error) { return cutListUser(rest) }

// CutUserKey is [CutUser] for who needs the key encoding of the id alone. It shares the memory of the row.
func CutUserKey(rest []byte) ([]byte, error) {
	_, id, err := cutSince(rest)
	return id, err
}

// CutBoard reads the board of a row of a list of boards.
func CutBoard(rest []byte) (owner, board string, err error) {
	_, rest, err = cutSince(rest)
	if err != nil {
		return "", "", err
	}
	if owner, rest, err = events.CutID(rest); err != nil {
		return "", "", err
	}
	board, _, err = events.CutID(rest)
	return owner, board, err
}

// Sight is what decides whether a reader sees the pins of a user.
type Sight struct {
	// Explicit: all boards, if Boards does not tell otherwise of one.
	Explicit bool
	// Muted: none.
	Muted bool
	// Boards: the reader has relations to single boards of the user, see [Queries.Board].
	Boards bool
}

// Sight tells what decides whether a reader sees the pins of a user, with one point read at most.
func (q *Queries) Sight(reader, user string) (Sight, error) {
	if v, ok := q.hotEdge(reader, user); ok {
		return Sight{Explicit: v.has(hotExplicit), Muted: v.has(hotMuting), Boards: v.has(hotBoards)}, nil
	}
	e, err := readEdge(q.r, q.key(), reader, user)
	_, explicit := e.explicit()
	return Sight{Explicit: explicit, Muted: e.mute.holds(), Boards: e.boards}, err
}

// EachFollowed calls do with whom a reader follows explicitly, the newest first, until it returns an error.
func (q *Queries) EachFollowed(reader string, do func(user string) error) (err error) {
	prefix := projections.AppendKey(nil, tagFollowing, reader)
	it := q.following(reader)
	for err == nil && it.Next() {
		var user string
		if user, err = cutListUser(it.Key()[len(prefix):]); err == nil {
			err = do(user)
		}
	}
	return errors.Join(err, it.Close())
}

// Explicit returns how many follow a user explicitly, and, with board not nil, one of the user's boards itself.
func (q *Queries) Explicit(user string, board *string) (int64, error) {
	if board == nil {
		c, err := q.UserCounts(user)
		return c.Followers, err
	}
	var c BoardCounts
	err := readCounts(q.r, projections.AppendKey(q.key(), tagBoardCounts, user, *board), c.fields())
	return c.Followers, err
}
