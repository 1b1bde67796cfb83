package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A projection that needs to know who follows whom, and cannot ask another store (I4), folds the relations into its own:
// it owns a Graph of out-ends ([NewOut]), hands it every event of [Graph.Kinds], and hears of what changed by [Graph.Observe].
// The rows are the same, under the same tags, and the queries too.

// Change is what an event changed between two users.
type Change struct {
	Follower, Owner string
	// Was and Is report whether follower followed owner explicitly before, and does now.
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

// Observe sets a function that is called for every change, once its rows are written. It may read and write the batch, but not
// rows of the graph, and must not call Step. After a crash within an event, it is called again for a part of the changes.
func (g *Graph) Observe(f func(Change) error) { g.txn.observe = f }

// tell tells the observer what became of an edge.
func (t *txn) notifyObserver(h *edgeEnd, was, is bool) error {
	if t.observe == nil {
		return nil
	}
	c := Change{Follower: h.follower, Owner: h.followee, Was: was, Is: is, Gone: h.after == edge{}}
	for _, change := range h.boardChanges {
		b := BoardChange{change.board, change.relationBefore.kind == relationFollow, change.relationAfter.kind == relationFollow}
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
	return g.startEvent(ev, b).mentionBoardOfPin()
}

// Erased reports whether a user was deleted, so that no backfill may bring anything of theirs back.
func (g *Graph) Erased(ev events.Event, b *projections.Batch, user string) (bool, error) {
	return g.startEvent(ev, b).isAnyUserErased(user)
}

// FollowersPrefix appends the prefix of the rows of the explicit followers of a user.
func FollowersPrefix(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagFollowers, user)
}

// Visibility has the facts that decide whether a reader sees the pins of a user.
type Visibility struct {
	// Explicit: all boards, if Boards does not tell otherwise of one.
	Explicit bool
	// Muted: none.
	Muted bool
	// RepinsHidden: no re-pins.
	RepinsHidden bool
	// Blocked: a block by either stands, so that no follow does.
	Blocked bool
	// Boards: the reader has relations to single boards of the user, see [Queries.Board].
	Boards bool
}

// Visibility returns the facts that decide whether a reader sees the pins of a user, with at most one point read.
func (q *Queries) Visibility(reader, user string) (Visibility, error) {
	if v, ok := q.cachedEdge(reader, user); ok {
		return Visibility{
			Explicit: v.has(cachedExplicit), Muted: v.has(cachedMuting), Boards: v.has(cachedBoards),
			Blocked: v.has(cachedBlocking) || v.has(cachedBlockedBy), RepinsHidden: v.has(cachedHidingRepins),
		}, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, reader, user)
	_, explicit := e.explicitSince()
	return Visibility{
		Explicit: explicit, Muted: e.mute.holds(), Boards: e.hasBoards, Blocked: e.isBlocked(), RepinsHidden: e.hideRepins.holds(),
	}, err
}
