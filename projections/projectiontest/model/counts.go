package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Plays reports how often an item was played, ever.
func (g *Graph) Plays(item string) int {
	n := 0
	for _, ev := range g.log {
		if ev.counts && ev.Kind == events.Played && ev.Item == item {
			n++
		}
	}
	return n
}

// PlaysBy reports how often a user has played something.
func (g *Graph) PlaysBy(user string) int { return len(g.watched[user].of(events.Played)) }

// Likers reports how many users like an item.
func (g *Graph) Likers(item string) int {
	n := 0
	for of, likes := range g.likes {
		if of.item == item && holds(likes) {
			n++
		}
	}
	return n
}

// Like is an item that a user likes.
type Like struct {
	Item  string
	Since events.Micros
}

// Likes lists what a user likes, newest first, equal times by id.
func (g *Graph) Likes(user string) (list []Like) {
	for of, likes := range g.likes {
		if since, likesIt := standing(likes.of(events.Liked), likes.of(events.Unliked), nil); of.user == user && likesIt {
			list = append(list, Like{of.item, since})
		}
	}
	slices.SortFunc(list, func(x, y Like) int {
		return cmp.Or(cmp.Compare(y.Since, x.Since), events.CompareIDs(x.Item, y.Item))
	})
	return list
}

// Repins reports how many pins have re-pinned an item, ever.
func (g *Graph) Repins(item string) int {
	n := 0
	for at, ev := range g.log {
		if ev.Item == item && repins(g.log, at) {
			n++
		}
	}
	return n
}

// repins reports whether the event at an index of the log is a re-pin of an item that its pin had not re-pinned before, or not since its
// owner was deleted.
func repins(log []arrival, at int) bool {
	ev := log[at]
	if !isRepin(ev) {
		return false
	}
	for _, old := range slices.Backward(log[:at]) {
		switch {
		case old.User != ev.User:
		case old.Kind == events.UserDeleted:
			return true
		case isRepin(old) && old.Pin == ev.Pin && old.Item == ev.Item:
			return false
		}
	}
	return true
}

// isRepin reports whether an event is accepted and is a re-pin. Whether it creates a pin, repeats one that lives, or names a deleted board
// does not matter.
func isRepin(ev arrival) bool {
	return ev.accepted && ev.Kind == events.PinCreated && ev.RepinUser != ""
}

// ItemCounts is what is counted of an item.
type ItemCounts struct{ Plays, Likes, Repins int }

// ItemCounts counts what happened to an item.
func (g *Graph) ItemCounts(item string) ItemCounts {
	return ItemCounts{Plays: g.Plays(item), Likes: g.Likers(item), Repins: g.Repins(item)}
}

// Scope chooses the items of [Graph.Top]: all (zero), those that pins of an owner show, or those that pins on one of the
// owner's boards show; the empty board is the default board.
type Scope struct {
	Owner string
	Board *string
}

// TrendingItem is an item and its score.
type TrendingItem struct {
	Item  string
	Score int64
}

// Top lists the items of a scope that have a score, given the scores that [Heats] tells: the highest first, equal scores by
// id.
func (g *Graph) Top(s Scope, heats map[string]int64) []TrendingItem {
	var list []TrendingItem
	for item, score := range heats {
		if g.shows(s, item) {
			list = append(list, TrendingItem{item, score})
		}
	}
	slices.SortFunc(list, func(x, y TrendingItem) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), events.CompareIDs(x.Item, y.Item))
	})
	return list
}

// shows reports whether an item belongs to a scope: everybody's has every item, also what no pin shows.
func (g *Graph) shows(s Scope, item string) bool {
	if s.Owner == "" {
		return true
	}
	return slices.ContainsFunc(g.Pins(s.Owner), func(p Pin) bool {
		return p.Item == item && (s.Board == nil || p.Board == *s.Board)
	})
}
