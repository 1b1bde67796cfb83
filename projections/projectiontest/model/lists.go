package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Entry is one entry of a list: of a list of users User, Kind and Since are set, of a list of boards Owner, Board,
// Kind and Since, and in [Graph.Boards] the Title.
type Entry struct {
	User, Owner, Board, Title string
	Kind                      Kind
	Since                     events.Micros
	// Settings are those of the follow in [Graph.Following] and [Graph.With], and Until is the end of the mute in [Graph.Muted].
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

// sortEntries puts a list newest first, equal times by id.
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

// Following lists whom a user follows: explicitly, implicitly, or (None) both.
func (g *Graph) Following(user string, k Kind) []Entry {
	list := g.listUsers(k, func(other string) Follow { return g.User(user, other) })
	for i := range list {
		list[i].Settings = g.settings(user, list[i].User)
	}
	return list
}

// Followers lists who follows a user: explicitly, implicitly, or (None) both.
func (g *Graph) Followers(user string, k Kind) []Entry {
	return g.listUsers(k, func(other string) Follow { return g.User(other, user) })
}

func (g *Graph) listUsers(k Kind, follow func(other string) Follow) []Entry {
	var list []Entry
	for _, other := range g.users {
		if f := follow(other); f.Kind != None && (k == None || k == f.Kind) {
			list = append(list, Entry{User: other, Kind: f.Kind, Since: f.Since})
		}
	}
	return sortEntries(list)
}

// Mutuals lists the followers of a user whom the viewer follows, as the viewer follows them.
func (g *Graph) Mutuals(viewer, user string) []Entry {
	return slices.DeleteFunc(g.Following(viewer, None), func(e Entry) bool {
		return g.User(e.User, user).Kind == None
	})
}

// BoardFollowers lists followers of a board, or its excluders.
func (g *Graph) BoardFollowers(owner, board string, which BoardList) []Entry {
	var list []Entry
	for _, user := range g.users {
		f := g.Board(user, owner, board)
		switch {
		case which == All && (f.Kind == Board || f.Kind == Explicit):
		case which == OnBoard && f.Kind == Board:
			// The time of the follow of the board itself, also where its owner was followed later.
			f.Since, _ = g.onBoard(user, BoardID{owner, board})
		case which == Excluders && f.Kind == Excluded:
		default:
			continue
		}
		list = append(list, Entry{User: user, Kind: f.Kind, Since: f.Since})
	}
	return sortEntries(list)
}

// FollowedBoards lists the boards that a user follows one by one.
func (g *Graph) FollowedBoards(user string) []Entry {
	var list []Entry
	for _, b := range g.boards {
		if since, follows := g.onBoard(user, b); follows {
			list = append(list, Entry{Owner: b.Owner, Board: b.Board, Kind: Board, Since: since})
		}
	}
	return sortEntries(list)
}

// ExcludedBoards lists the boards that a user excludes.
func (g *Graph) ExcludedBoards(user string) []Entry {
	var list []Entry
	for _, b := range g.boards {
		if since, excluded := g.excluded(user, b); excluded {
			list = append(list, Entry{Owner: b.Owner, Board: b.Board, Kind: Excluded, Since: since})
		}
	}
	return sortEntries(list)
}

// Boards lists the living boards of a user, without the default board.
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

// Blocked lists whom a user blocks.
func (g *Graph) Blocked(user string) []Entry { return g.listOthers(user, g.blocks) }

// Muted lists whom a user mutes.
func (g *Graph) Muted(user string) []Entry {
	list := g.listOthers(user, g.mutes)
	for i := range list {
		list[i].Until = g.muteUntil(user, list[i].User)
	}
	return list
}

func (g *Graph) listOthers(user string, holds func(a, b string) (events.Micros, bool)) []Entry {
	var list []Entry
	for _, other := range g.users {
		if since, ok := holds(user, other); ok {
			list = append(list, Entry{User: other, Since: since})
		}
	}
	return sortEntries(list)
}

// UserCounts are the lengths of a user's lists.
type UserCounts struct {
	Followers, ExplicitFollowers, ImplicitFollowers int
	Following, ExplicitFollowing, ImplicitFollowing int
	Boards, FollowedBoards, ExcludedBoards          int
	Blocked, Muted                                  int
}

// UserCounts counts the lists of a user.
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

// BoardCounts are the lengths of a board's lists.
type BoardCounts struct{ All, OnBoard, Excluders int }

// BoardCounts counts the lists of a board.
func (g *Graph) BoardCounts(owner, board string) BoardCounts {
	return BoardCounts{
		All:       len(g.BoardFollowers(owner, board, All)),
		OnBoard:   len(g.BoardFollowers(owner, board, OnBoard)),
		Excluders: len(g.BoardFollowers(owner, board, Excluders)),
	}
}
