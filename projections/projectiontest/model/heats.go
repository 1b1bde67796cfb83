package model

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/heat" //nolint:depguard // the arithmetic only, which has its own exact tests
)

// like names a user and an item.
type like struct{ user, item string }

// aboutLikes reports whether facts of a kind decide what the acting user likes.
func aboutLikes(k events.Kind) bool { return k == events.Liked || k == events.Unliked }

// holds reports whether a like holds, given the facts about it: the latest is a like.
func holds(likes facts) bool { return likes.last().Kind == events.Liked }

// Liked reports whether a user likes an item.
func (g *Graph) Liked(user, item string) bool { return holds(g.likes[like{user, item}]) }

// HeatSettings are what heat depends on.
type HeatSettings struct {
	// HalfLife is the time in which what was added counts half, relative to what is added then.
	HalfLife events.Micros
	// Play, Like and Repin are the weights of one of each.
	Play, Like, Repin uint32
}

// Heat tells the score of an item after a history in log order; not ok: nothing gave it one.
func Heat(history []events.Event, item string, s HeatSettings) (score int64, ok bool) {
	score, ok = Heats(history, s)[item]
	return score, ok
}

// moves is by how much heat must have grown since a score was set for it to be set anew: a quarter of a doubling.
const moves = heat.One / 4

// Heats reports the scores of all items that have one after a history in log order. Unlike every other answer they follow
// the order of arrival: what was added is never taken back, and history that arrives late is added when it arrives.
func Heats(history []events.Event, s HeatSettings) map[string]int64 {
	sums, scores, given := map[string]heat.Sum{}, map[string]int64{}, map[string]bool{}
	log := arrive(history)
	for i, ev := range log {
		if !ev.accepted {
			continue
		}
		var weight uint32
		switch ev.Kind {
		case events.Played:
			weight = s.Play
		case events.Liked:
			if !repeatsLike(log[:i], ev.Event) {
				weight = s.Like
			}
		case events.PinCreated:
			if repins(log, i) {
				weight = s.Repin
			}
		case events.ItemScored:
			scores[ev.Item], given[ev.Item] = ev.Score, true // from now on, whatever is added
		}
		if weight == 0 || given[ev.Item] {
			continue
		}
		sums[ev.Item] = sums[ev.Item].Add(weight, int64(ev.Time), int64(s.HalfLife))
		now := sums[ev.Item].Score()
		if was, ok := scores[ev.Item]; !ok || now >= was+moves {
			scores[ev.Item] = now
		}
	}
	return scores
}

// repeatsLike reports whether a like that arrives says nothing new: a live one, that the user likes the item already; a
// backfilled one, that a backfill said so before, or that by live facts the user likes it.
func repeatsLike(before []arrival, ev events.Event) bool {
	var about []arrival
	for _, old := range before {
		if old.User == ev.User && (aboutLikes(old.Kind) && old.Item == ev.Item || old.Kind == events.UserDeleted) {
			about = append(about, old)
		}
	}
	likes := order(about).where(func(f *fact) bool { return aboutLikes(f.Kind) && !f.relationEnded })
	if !ev.Backfill {
		return holds(likes)
	}
	return len(likes.backfilled()) > 0 || holds(likes.live())
}
