package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Entry is one entry of a list. In a list of users, User, Kind and Since are set. In a list of
// boards, Owner, Board, Kind and Since are set, and in [Graph.Boards] also Title.
type Entry struct {
	User, Owner, Board, Title string
	Kind                      Kind
	Since                     events.Micros
	// Settings are the settings of the follow, in [Graph.Following] and [Graph.With]. Until is the
	// end of the mute, in [Graph.Muted].
	Settings events.FollowSettings
	Until    events.Micros
}

// BoardList chooses among the followers of a board.
type BoardList int

// The lists of [Graph.BoardFollowers].
const (
	All       BoardList = iota // everyone for whom the board appears
	OnBoard                    // those who follow the board itself
	Excluders                  // those who follow its owner and exclude the board
)

// sortEntries sorts a list by time, the newest first. Equal times are ordered by id.
func sortEntries(list []Entry) []Entry {
	slices.SortFunc(list, func(x, y Entry) int {
		return cmp.Or(
			cmp.Compare(y.Since, x.Since),
			events.CompareIDs(x.User, y.User),
			events.CompareIDs(x.Owner, y.Owner),
			events.CompareIDs(x.Board, y.Board),
		)
	})
	return list
}

// Following returns the users whom a user follows with the kind Explicit or Implicit. None means
// both.
func (g *Graph) Following(user string, k Kind) []Entry {
	list := g.listUsers(k, func(other string) Follow { return g.User(user, other) })
	for i := range list {
		list[i].Settings = g.settings(user, list[i].User)
	}
	return list
}

// Followers returns the users who follow a user with the kind Explicit or Implicit. None means
// both.
func (g *Graph) Followers(user string, k Kind) []Entry {
	return g.listUsers(k, func(other string) Follow { return g.User(other, user) })
}

// listUsers returns the users for whom follow returns a follow of the kind. None means any kind.
func (g *Graph) listUsers(k Kind, follow func(other string) Follow) []Entry {
	var list []Entry
	for _, other := range g.users {
		if f := follow(other); f.Kind != None && (k == None || k == f.Kind) {
			list = append(list, Entry{User: other, Kind: f.Kind, Since: f.Since})
		}
	}
	return sortEntries(list)
}

// Mutuals returns the followers of a user whom the viewer follows, too. The entries are about the
// follows of the viewer.
func (g *Graph) Mutuals(viewer, user string) []Entry {
	return slices.DeleteFunc(g.Following(viewer, None), func(e Entry) bool {
		return g.User(e.User, user).Kind == None
	})
}

// BoardFollowers returns the followers of a board, or the users who exclude it.
func (g *Graph) BoardFollowers(owner, board string, which BoardList) []Entry {
	var list []Entry
	for _, user := range g.users {
		f := g.Board(user, owner, board)
		switch {
		case which == All && (f.Kind == Board || f.Kind == Explicit):
		case which == OnBoard && f.Kind == Board:
			// The time is that of the follow of the board itself, even if the owner was followed
			// later.
			f.Since, _ = g.onBoard(user, BoardID{owner, board})
		case which == Excluders && f.Kind == Excluded:
		default:
			continue
		}
		list = append(list, Entry{User: user, Kind: f.Kind, Since: f.Since})
	}
	return sortEntries(list)
}

// FollowedBoards returns the boards that a user follows one by one.
func (g *Graph) FollowedBoards(user string) []Entry {
	var list []Entry
	for _, b := range g.boards {
		if since, follows := g.onBoard(user, b); follows {
			list = append(list, Entry{Owner: b.Owner, Board: b.Board, Kind: Board, Since: since})
		}
	}
	return sortEntries(list)
}

// ExcludedBoards returns the boards that a user excludes.
func (g *Graph) ExcludedBoards(user string) []Entry {
	var list []Entry
	for _, b := range g.boards {
		if since, excluded := g.excluded(user, b); excluded {
			list = append(list, Entry{Owner: b.Owner, Board: b.Board, Kind: Excluded, Since: since})
		}
	}
	return sortEntries(list)
}

// Boards returns the boards of a user that exist, without the default board.
func (g *Graph) Boards(user string) []Entry {
	var list []Entry
	for _, b := range g.boards {
		if b.Owner != user || b.Board == "" {
			continue
		}
		if created, title, exists := g.boardState(b); exists {
			list = append(list, Entry{Owner: b.Owner, Board: b.Board, Title: title, Since: created})
		}
	}
	return sortEntries(list)
}

// Blocked returns the users whom a user blocks.
func (g *Graph) Blocked(user string) []Entry { return g.listOthers(user, g.blocks) }

// Muted returns the users whom a user mutes.
func (g *Graph) Muted(user string) []Entry {
	list := g.listOthers(user, g.mutes)
	for i := range list {
		list[i].Until = g.muteUntil(user, list[i].User)
	}
	return list
}

// listOthers returns the users for whom holds returns true.
func (g *Graph) listOthers(user string, holds func(a, b string) (events.Micros, bool)) []Entry {
	var list []Entry
	for _, other := range g.users {
		if since, ok := holds(user, other); ok {
			list = append(list, Entry{User: other, Since: since})
		}
	}
	return sortEntries(list)
}

// UserCounts has the lengths of the lists of a user.
type UserCounts struct {
	Followers, ExplicitFollowers, ImplicitFollowers int
	Following, ExplicitFollowing, ImplicitFollowing int
	Boards, FollowedBoards, ExcludedBoards          int
	Blocked, Muted                                  int
}

// UserCounts returns the lengths of the lists of a user.
func (g *Graph) UserCounts(user string) UserCounts {
	return UserCounts{
		Followers:         len(g.Followers(user, None)),
		ExplicitFollowers: len(g.Followers(user, Explicit)),
		ImplicitFollowers: len(g.Followers(user, Implicit)),
		Following:         len(g.Following(user, None)),
		ExplicitFollowing: len(g.Following(user, Explicit)),
		ImplicitFollowing: len(g.Following(user, Implicit)),
		Boards:            len(g.Boards(user)),
		FollowedBoards:    len(g.FollowedBoards(user)),
		ExcludedBoards:    len(g.ExcludedBoards(user)),
		Blocked:           len(g.Blocked(user)),
		Muted:             len(g.Muted(user)),
	}
}

// BoardCounts has the lengths of the lists of a board.
type BoardCounts struct{ All, OnBoard, Excluders int }

// BoardCounts returns the lengths of the lists of a board.
func (g *Graph) BoardCounts(owner, board string) BoardCounts {
	return BoardCounts{
		All:       len(g.BoardFollowers(owner, board, All)),
		OnBoard:   len(g.BoardFollowers(owner, board, OnBoard)),
		Excluders: len(g.BoardFollowers(owner, board, Excluders)),
	}
}
