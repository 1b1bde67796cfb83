package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A projection that needs to know who follows whom cannot ask another store (I4), so it folds the
// relations into its own store: it owns a Graph of out-ends ([NewOutEnds]), passes every event of
// [Graph.Kinds] to it, and learns from [Graph.Observe] what changed. The rows have the same
// contents and tags as in the graph's own store, and the queries work the same.

// FollowChange is the change of the follows of one user by another that an event made.
type FollowChange struct {
	// Follower is the user who follows or followed. Owner is the other user, whose pins and boards
	// are concerned.
	Follower, Owner string
	// FollowedBefore and FollowsAfter say whether Follower followed Owner explicitly before the
	// event and after it.
	FollowedBefore, FollowsAfter bool
	// Boards has the boards of Owner that Follower began or ceased to follow.
	Boards []BoardFollowChange
	// NoFacts says that the store has no facts of Follower about Owner any more.
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

// notifyObserver calls the observer if a follow of the user or of a board began or ended, or if the
// edge was deleted.
func (f *eventFold) notifyObserver(change *edgeChange, explicitBefore, explicitAfter bool) error {
	if f.observe == nil {
		return nil
	}

	observed := FollowChange{
		Follower:       change.follower,
		Owner:          change.followee,
		FollowedBefore: explicitBefore,
		FollowsAfter:   explicitAfter,
		NoFacts:        change.after == edge{},
	}
	for _, boardChange := range change.boardChanges {
		board := BoardFollowChange{
			Board:          boardChange.board,
			FollowedBefore: boardChange.relationBefore.kind == relationFollow,
			FollowsAfter:   boardChange.relationAfter.kind == relationFollow,
		}
		if board.FollowedBefore != board.FollowsAfter {
			observed.Boards = append(observed.Boards, board)
		}
	}

	if observed.FollowedBefore == observed.FollowsAfter && len(observed.Boards) == 0 && !observed.NoFacts {
		return nil
	}
	return f.observe(observed)
}

// ApplyPin folds an event that puts a pin on a board, and creates the board if it does not exist. If
// exists is false, the event is void: the board was deleted, and the event does not bring it back.
// That is also the case of a backfill if the board was deleted once and created again since.
func (g *Graph) ApplyPin(ev events.Event, b *projections.Batch) (exists bool, err error) {
	return g.startEvent(ev, b).createBoardOfPin()
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
	// Explicit says that the reader follows the user explicitly, and so sees the pins on all boards
	// of the user, unless Boards is set.
	Explicit bool
	// Muted says that the reader mutes the user, and so sees no pin of the user.
	Muted bool
	// RepinsHidden says that the reader follows the user or boards of the user, and sees none of
	// the user's re-pins.
	RepinsHidden bool
	// Blocked says that one of the two blocks the other, so that no follow holds.
	Blocked bool
	// Boards says that the reader may follow or exclude single boards of the user, so the caller
	// must ask [Queries.SeesBoard] about each board.
	Boards bool
}

// Visibility returns which pins of a user a reader sees, with at most one point read.
func (q *Queries) Visibility(reader, user string) (Visibility, error) {
	if cached, ok := q.cachedEdge(reader, user); ok && !cached.has(cachedTimedMute) {
		return Visibility{
			Explicit:     cached.has(cachedExplicit),
			Muted:        cached.has(cachedMuting),
			RepinsHidden: cached.has(cachedHidingRepins),
			Blocked:      cached.has(cachedBlocking) || cached.has(cachedBlockedBy),
			Boards:       cached.has(cachedBoards),
		}, nil
	}

	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, reader, user)
	_, explicit := e.explicitSince()
	return Visibility{
		Explicit:     explicit,
		Muted:        e.mute.holdsAt(q.now),
		RepinsHidden: e.followSettings().Has(events.SettingHideRepins),
		Blocked:      e.isBlocked(),
		Boards:       e.mayHaveBoardEdges,
	}, err
}
