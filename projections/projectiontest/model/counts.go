package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Plays returns how often an item was played.
func (g *Graph) Plays(item string) int {
	n := 0
	for i := range g.log {
		if ev := &g.log[i]; ev.counts && ev.Kind == events.Played && ev.Item == item {
			n++
		}
	}
	return n
}

// PlaysBy returns how often a user has played any item.
func (g *Graph) PlaysBy(user string) int { return len(g.seenFacts[user].of(events.Played)) }

// Likers returns how many users like an item.
func (g *Graph) Likers(item string) int { return len(g.Reactors(item, "")) }

// ReactionCount is how many users reacted to an item with one kind. As in events, the kind of a
// like is "".
type ReactionCount struct {
	Reaction string
	Count    int
}

// ReactionCounts returns the kinds with which users reacted to an item, sorted by name, without
// private kinds.
func (g *Graph) ReactionCounts(item string) (list []ReactionCount) {
	kinds := map[string]bool{}
	for of, facts := range g.reactionFacts {
		if of.item == item && reactionHolds(facts) && !events.IsPrivateReaction(of.kind) {
			kinds[of.kind] = true
		}
	}
	for kind := range kinds {
		list = append(list, ReactionCount{kind, len(g.Reactors(item, kind))})
	}
	slices.SortFunc(list, func(x, y ReactionCount) int {
		return cmp.Compare(events.ReactionName(x.Reaction), events.ReactionName(y.Reaction))
	})
	return list
}

// Reaction is an item to which a user reacted.
type Reaction struct {
	Item  string
	Since events.Micros
}

// Reactions returns the items to which a user reacted with one kind, the newest first. Equal times
// are ordered by id.
func (g *Graph) Reactions(user, kind string) (list []Reaction) {
	for of, facts := range g.reactionFacts {
		if since, holds := reactedSince(facts); of.user == user && of.kind == kind && holds {
			list = append(list, Reaction{of.item, since})
		}
	}
	slices.SortFunc(list, func(x, y Reaction) int {
		return cmp.Or(cmp.Compare(y.Since, x.Since), events.CompareIDs(x.Item, y.Item))
	})
	return list
}

// Reactor is a user who reacted to an item.
type Reactor struct {
	User  string
	Since events.Micros
}

// Reactors returns the users who reacted to an item with one kind, the newest first. Equal times
// are ordered by id. It returns nil for a private kind.
func (g *Graph) Reactors(item, kind string) (list []Reactor) {
	if events.IsPrivateReaction(kind) {
		return nil
	}
	for of, facts := range g.reactionFacts {
		if since, holds := reactedSince(facts); of.item == item && of.kind == kind && holds {
			list = append(list, Reactor{of.user, since})
		}
	}
	slices.SortFunc(list, func(x, y Reactor) int {
		return cmp.Or(cmp.Compare(y.Since, x.Since), events.CompareIDs(x.User, y.User))
	})
	return list
}

// reactedSince returns since when a reaction holds, and whether it does, given all facts about it.
func reactedSince(facts facts) (since events.Micros, holds bool) {
	return stateSince(facts.of(events.Reacted), facts.of(events.Unreacted), nil)
}

// OwnReactions returns the kinds with which a user reacted to an item, sorted by name, including
// private kinds.
func (g *Graph) OwnReactions(user, item string) (kinds []string) {
	for of, facts := range g.reactionFacts {
		if of.user == user && of.item == item && reactionHolds(facts) {
			kinds = append(kinds, of.kind)
		}
	}
	slices.SortFunc(kinds, func(x, y string) int { return cmp.Compare(events.ReactionName(x), events.ReactionName(y)) })
	return kinds
}

// Repins returns how many pins have re-pinned an item.
func (g *Graph) Repins(item string) int {
	n := 0
	for at := range g.log {
		if g.log[at].Item == item && isNewRepin(g.log, at) {
			n++
		}
	}
	return n
}

// isNewRepin reports whether the event at an index of the log is a re-pin that counts: its pin has
// not re-pinned the item before, or only before its owner was deleted.
func isNewRepin(log []loggedEvent, at int) bool {
	ev := &log[at]
	if !isRepin(ev) {
		return false
	}
	for i := range slices.Backward(log[:at]) {
		old := &log[i]
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

// isRepin reports whether an event is an accepted re-pin. It does not matter whether it creates a
// pin: it may also name a pin that lives, or a deleted board.
func isRepin(ev *loggedEvent) bool {
	return ev.accepted && ev.Kind == events.PinCreated && ev.RepinUser != ""
}

// ItemCounts has the counts of an item.
type ItemCounts struct{ Plays, Likes, Repins int }

// ItemCounts returns the counts of an item.
func (g *Graph) ItemCounts(item string) ItemCounts {
	return ItemCounts{Plays: g.Plays(item), Likes: g.Likers(item), Repins: g.Repins(item)}
}

// Scope chooses the items of [Graph.Top]. The zero Scope means all items. With an owner, it means
// the items that the owner's pins show, and with a board, those that pins on this board of the
// owner show. The empty board is the default board.
type Scope struct {
	Owner string
	Board *string
}

// TrendingItem is an item with its score.
type TrendingItem struct {
	Item  string
	Score int64
}

// Top returns the items of a scope that have a score, given the scores that [Heats] has returned.
// The highest score comes first, and equal scores are ordered by id.
func (g *Graph) Top(s Scope, heats map[string]int64) []TrendingItem {
	var list []TrendingItem
	for item, score := range heats {
		if g.isInScope(s, item) {
			list = append(list, TrendingItem{item, score})
		}
	}
	slices.SortFunc(list, func(x, y TrendingItem) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), events.CompareIDs(x.Item, y.Item))
	})
	return list
}

// isInScope reports whether an item belongs to a scope. The zero Scope also has items that no pin
// shows.
func (g *Graph) isInScope(s Scope, item string) bool {
	if s.Owner == "" {
		return true
	}
	return slices.ContainsFunc(g.Pins(s.Owner), func(p Pin) bool {
		return p.Item == item && (s.Board == nil || p.Board == *s.Board)
	})
}
