package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A projection that needs to know who follows whom cannot ask another store (I4), so it folds the
// relations into its own store: it owns a Graph of out-ends ([NewOutEnds]), passes every event of
// [Graph.Kinds] to it, and learns from [Graph.Observe] what changed. The rows have the same
// contents and tags as in the graph's own store, and the queries work the same.

// FollowChange is what an event changed between two users.
type FollowChange struct {
	Follower, Owner string
	// FollowedBefore and FollowsAfter say whether Follower followed Owner explicitly before the
	// event and after it.
	FollowedBefore, FollowsAfter bool
	// Boards are the boards of Owner that Follower began or ceased to follow.
	Boards []BoardFollowChange
	// NoFacts says that the store has no facts about the two users any more.
	NoFacts bool
}

// BoardFollowChange is the beginning or end of a board follow.
type BoardFollowChange struct {
	Board                        string
	FollowedBefore, FollowsAfter bool
}

// Observe sets a function that is called for every change, after its rows are written. The function
// may read the batch and write rows to it, except rows of the graph. It must not call
// [projections.Batch.Step]. After a crash within an event it is called again for some of the
// changes.
func (g *Graph) Observe(f func(FollowChange) error) { g.fold.observe = f }

// notifyObserver calls the observer if a follow began or ended, or if the edge is gone.
func (t *eventFold) notifyObserver(e *edgeEnd, explicitBefore, explicitAfter bool) error {
	if t.observe == nil {
		return nil
	}

	c := FollowChange{
		Follower:       e.follower,
		Owner:          e.followee,
		FollowedBefore: explicitBefore,
		FollowsAfter:   explicitAfter,
		NoFacts:        e.after == edge{},
	}
	for _, change := range e.boardChanges {
		b := BoardFollowChange{
			Board:          change.board,
			FollowedBefore: change.relationBefore.kind == relationFollow,
			FollowsAfter:   change.relationAfter.kind == relationFollow,
		}
		if b.FollowedBefore != b.FollowsAfter {
			c.Boards = append(c.Boards, b)
		}
	}

	if c.FollowedBefore == c.FollowsAfter && len(c.Boards) == 0 && !c.NoFacts {
		return nil
	}
	return t.observe(c)
}

// ApplyPin folds an event that puts a pin on a board, and reports whether the board exists then. If
// it does not exist, the board is deleted, and a live event about it is void.
func (g *Graph) ApplyPin(ev events.Event, b *projections.Batch) (exists bool, err error) {
	return g.startEvent(ev, b).mentionBoardOfPin()
}

// IsErased reports whether a user was deleted. No backfill may bring back anything about such a
// user.
func (g *Graph) IsErased(ev events.Event, b *projections.Batch, user string) (bool, error) {
	return g.startEvent(ev, b).isAnyUserDeleted(user)
}

// FollowersPrefix appends the prefix of the rows of the explicit followers of a user.
func FollowersPrefix(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagFollowersExplicit, user)
}

// Visibility says which pins of a user a reader sees, as far as the edge between the two decides.
type Visibility struct {
	// Explicit: the reader follows the user, and so sees all boards, except those that Boards is
	// about.
	Explicit bool
	// Muted: the reader sees no pin of the user.
	Muted bool
	// RepinsHidden: the reader follows the user or boards of the user, and sees none of the user's
	// re-pins.
	RepinsHidden bool
	// Blocked: one of the two blocks the other, so that no follow holds.
	Blocked bool
	// Boards: the reader has relations to single boards of the user. [Queries.SeesBoard] decides
	// about each of them.
	Boards bool
}

// Visibility returns which pins of a user a reader sees, with at most one point read.
func (q *Queries) Visibility(reader, user string) (Visibility, error) {
	if v, ok := q.cachedEdge(reader, user); ok && !v.has(cachedTimedMute) {
		return Visibility{
			Explicit:     v.has(cachedExplicit),
			Muted:        v.has(cachedMuting),
			RepinsHidden: v.has(cachedHidingRepins),
			Blocked:      v.has(cachedBlocking) || v.has(cachedBlockedBy),
			Boards:       v.has(cachedBoards),
		}, nil
	}

	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, reader, user)
	_, explicit := e.explicitSince()
	return Visibility{
		Explicit:     explicit,
		Muted:        e.mute.holdsAt(q.now),
		RepinsHidden: e.followSettings().Has(events.SettingHideRepins),
		Blocked:      e.isBlocked(),
		Boards:       e.hasBoards,
	}, err
}
