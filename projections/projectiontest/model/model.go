package model

import (
	"slices"

	"github.com/skein-feed/skein/events"
)

// Kind is the way in which a user follows another user or a board.
type Kind int

// The kinds of follows. Only users are followed implicitly. Only boards are followed with the kinds
// Board and Excluded.
const (
	None Kind = iota
	Explicit
	Implicit
	Board
	Excluded
)

// String returns the name of the kind.
func (k Kind) String() string {
	return [...]string{"none", "explicit", "implicit", "board", "excluded"}[k]
}

// Follow is how, and since when, a user follows another user or a board. The zero Follow means not
// at all.
type Follow struct {
	Kind  Kind
	Since events.Micros
}

// BoardID names a board.
type BoardID struct{ Owner, Board string }

// Graph answers questions about one history. Its facts are in the order of facts, and do not have
// those that a deletion of a user has ended.
type Graph struct {
	relationFacts map[pair]facts    // relations of two users, in the order of facts
	boardFacts    map[BoardID]facts // the lives of a board: mentions and deletions, in the order of facts
	pinFacts      map[string]facts  // what a user did with the own pins and boards, in the order of facts
	// reactions has the facts about each reaction, in the order of facts.
	reactionFacts map[reaction]facts
	hidingFacts   map[hiding]facts // hidden items and their ends, in the order of facts
	seenFacts     map[string]facts // plays and serves of a user, in the order of facts
	log           []loggedEvent    // all of the history, in log order
	users         []string
	boards        []BoardID
	items         []string
	// now is the log time at the end of the history.
	now events.Micros
}

// At sets the log time at which questions are answered, and returns g. Mutes end by that time. By
// default it is the time of the last live event.
func (g *Graph) At(now events.Micros) *Graph {
	g.now = now
	return g
}

// New returns the answers about a history in log order. The history must not have repeats of event
// ids, because the reader of the log drops these before any projection sees them.
func New(history []events.Event) *Graph {
	g := &Graph{
		relationFacts: map[pair]facts{}, boardFacts: map[BoardID]facts{}, pinFacts: map[string]facts{}, reactionFacts: map[reaction]facts{},
		seenFacts: map[string]facts{}, hidingFacts: map[hiding]facts{}, log: markCounted(history),
	}
	for _, f := range orderFacts(g.log) {
		if f.Peer != "" && !f.isRelationEnded {
			p := pairOf(f.User, f.Peer)
			g.relationFacts[p] = append(g.relationFacts[p], f)
		}
		if board, ok := boardOf(&f.Event); ok && !f.isBoardEnded {
			g.boardFacts[board] = append(g.boardFacts[board], f)
		}
		if isPinKind(f.Kind) && !f.isRelationEnded {
			g.pinFacts[f.User] = append(g.pinFacts[f.User], f)
		}
		if isReactionKind(f.Kind) && !f.isRelationEnded {
			of := reactionOf(&f.Event)
			g.reactionFacts[of] = append(g.reactionFacts[of], f)
		}
		if isHidingKind(f.Kind) && !f.isRelationEnded {
			of := hiding{f.User, f.Item}
			g.hidingFacts[of] = append(g.hidingFacts[of], f)
		}
		if isSeenKind(f.Kind) && !f.isRelationEnded {
			g.seenFacts[f.User] = append(g.seenFacts[f.User], f)
		}
	}
	g.collectIDs(history)
	for i := range history {
		if ev := &history[i]; !ev.Backfill {
			g.now = ev.Time
		}
	}
	return g
}

// collectIDs collects all ids in the history, including those of events that do not count, and the
// default board of every user.
func (g *Graph) collectIDs(history []events.Event) {
	users, boards, items := map[string]bool{}, map[BoardID]bool{}, map[string]bool{}
	for i := range history {
		ev := &history[i]
		for _, user := range [...]string{ev.User, ev.Peer, ev.RepinUser} {
			if user != "" && !users[user] {
				users[user] = true
				boards[BoardID{Owner: user}] = true
			}
		}
		if board, ok := boardOf(ev); ok {
			boards[board] = true
		}
		if ev.Item != "" {
			items[ev.Item] = true
		}
		for _, item := range ev.Items {
			if item != "" {
				items[item] = true
			}
		}
	}
	for item := range items {
		g.items = append(g.items, item)
	}
	for user := range users {
		g.users = append(g.users, user)
	}
	for board := range boards {
		g.boards = append(g.boards, board)
	}
	slices.SortFunc(g.items, events.CompareIDs)
	slices.SortFunc(g.users, events.CompareIDs)
	slices.SortFunc(g.boards, func(x, y BoardID) int {
		if c := events.CompareIDs(x.Owner, y.Owner); c != 0 {
			return c
		}
		return events.CompareIDs(x.Board, y.Board)
	})
}

// Users returns all users in the history, sorted by id.
func (g *Graph) Users() []string { return slices.Clone(g.users) }

// BoardsMentioned returns all boards in the history, whether or not they exist, and the default
// board of every user, sorted by owner and id.
func (g *Graph) BoardsMentioned() []BoardID { return slices.Clone(g.boards) }

// Items returns all items in the history, sorted by id.
func (g *Graph) Items() []string { return slices.Clone(g.items) }
