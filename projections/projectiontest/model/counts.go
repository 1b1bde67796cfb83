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
func (g *Graph) PlaysBy(user string) int { return len(g.seenFacts[user].of(events.Played)) }

// Likers reports how many users like an item.
func (g *Graph) Likers(item string) int { return len(g.Reactors(item, "")) }

// ReactionCount is how many users reacted to an item with one kind. Like events, it has no text for likes.
type ReactionCount struct {
	Reaction string
	Count    int
}

// ReactionCounts lists the kinds with which users reacted to an item, by their names, without private kinds.
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

// Reactions lists the items to which a user reacted with one kind, newest first, equal times by id.
func (g *Graph) Reactions(user, kind string) (list []Reaction) {
	for of, facts := range g.reactionFacts {
		if since, stands := reactedSince(facts); of.user == user && of.kind == kind && stands {
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

// Reactors lists the users who reacted to an item with one kind, newest first, equal times by id. Of a private kind there is no list.
func (g *Graph) Reactors(item, kind string) (list []Reactor) {
	if events.IsPrivateReaction(kind) {
		return nil
	}
	for of, facts := range g.reactionFacts {
		if since, stands := reactedSince(facts); of.item == item && of.kind == kind && stands {
			list = append(list, Reactor{of.user, since})
		}
	}
	slices.SortFunc(list, func(x, y Reactor) int {
		return cmp.Or(cmp.Compare(y.Since, x.Since), events.CompareIDs(x.User, y.User))
	})
	return list
}

// reactedSince reports since when a reaction holds, given the facts about it.
func reactedSince(facts facts) (since events.Micros, stands bool) {
	return stateSince(facts.of(events.Reacted), facts.of(events.Unreacted), nil)
}

// OwnReactions lists the kinds with which a user reacted to an item, by their names, with private kinds.
func (g *Graph) OwnReactions(user, item string) (kinds []string) {
	for of, facts := range g.reactionFacts {
		if of.user == user && of.item == item && reactionHolds(facts) {
			kinds = append(kinds, of.kind)
		}
	}
	slices.SortFunc(kinds, func(x, y string) int { return cmp.Compare(events.ReactionName(x), events.ReactionName(y)) })
	return kinds
}

// Repins reports how many pins have re-pinned an item, ever.
func (g *Graph) Repins(item string) int {
	n := 0
	for at, ev := range g.log {
		if ev.Item == item && isNewRepin(g.log, at) {
			n++
		}
	}
	return n
}

// isNewRepin reports whether the event at an index of the log is a re-pin of an item that its pin had not re-pinned before, or not since its
// owner was deleted.
func isNewRepin(log []loggedEvent, at int) bool {
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
func isRepin(ev loggedEvent) bool {
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
		if g.isInScope(s, item) {
			list = append(list, TrendingItem{item, score})
		}
	}
	slices.SortFunc(list, func(x, y TrendingItem) int {
		return cmp.Or(cmp.Compare(y.Score, x.Score), events.CompareIDs(x.Item, y.Item))
	})
	return list
}

// isInScope reports whether an item belongs to a scope: everybody's has every item, also what no pin shows.
func (g *Graph) isInScope(s Scope, item string) bool {
	if s.Owner == "" {
		return true
	}
	return slices.ContainsFunc(g.Pins(s.Owner), func(p Pin) bool {
		return p.Item == item && (s.Board == nil || p.Board == *s.Board)
	})
}
