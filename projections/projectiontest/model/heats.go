package model

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/heat" //nolint:depguard // the arithmetic only, which has its own exact tests
)

// reaction names a user, an item and the kind of a reaction. Each kind is a relation of its own.
type reaction struct{ user, item, kind string }

// reactionOf returns the reaction that an event is about.
func reactionOf(ev *events.Event) reaction { return reaction{ev.User, ev.Item, ev.Reaction} }

// isReactionKind reports whether facts of a kind decide to what the acting user reacted.
func isReactionKind(k events.Kind) bool { return k == events.Reacted || k == events.Unreacted }

// reactionHolds reports whether a reaction holds, given the facts about it: the latest is no end.
func reactionHolds(facts facts) bool { return facts.last().Kind == events.Reacted }

// Reacted reports whether a user reacted to an item with a kind.
func (g *Graph) Reacted(user, item, kind string) bool {
	return reactionHolds(g.reactionFacts[reaction{user, item, kind}])
}

// HeatSettings are what heat depends on.
type HeatSettings struct {
	// HalfLife is the time in which what was added counts half, relative to what is added then.
	HalfLife events.Micros
	// Play and Repin are the weights of one of each.
	Play, Repin uint32
	// Reactions are the weights of reactions by their kinds, "" for likes. A kind that is not here adds nothing, nor does a private one.
	Reactions map[string]uint32
}

// Heat tells the score of an item after a history in log order; not ok: nothing gave it one.
func Heat(history []events.Event, item string, s HeatSettings) (score int64, ok bool) {
	score, ok = Heats(history, s)[item]
	return score, ok
}

// minScoreGrowth is by how much heat must have grown since a score was set for it to be set anew: a quarter of a doubling.
const minScoreGrowth = heat.One / 4

// Heats reports the scores of all items that have one after a history in log order. Unlike every other answer they follow
// the order of arrival: what was added is never taken back, and history that arrives late is added when it arrives.
func Heats(history []events.Event, s HeatSettings) map[string]int64 {
	sums, scores, given := map[string]heat.Sum{}, map[string]int64{}, map[string]bool{}
	log := markCounted(history)
	for i, ev := range log {
		if !ev.accepted {
			continue
		}
		var weight uint32
		switch ev.Kind {
		case events.Played:
			weight = s.Play
		case events.Reacted:
			if !events.IsPrivateReaction(ev.Reaction) && !repeatsReaction(log[:i], ev.Event) {
				weight = s.Reactions[ev.Reaction]
			}
		case events.PinCreated:
			if isNewRepin(log, i) {
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
		if was, ok := scores[ev.Item]; !ok || now >= was+minScoreGrowth {
			scores[ev.Item] = now
		}
	}
	return scores
}

// repeatsReaction reports whether a reaction that arrives says nothing new: a live one, if it holds already; a backfilled one, if a
// backfill said so before, or if it holds by live facts.
func repeatsReaction(before []loggedEvent, ev events.Event) bool {
	var about []loggedEvent
	for _, old := range before {
		isSame := isReactionKind(old.Kind) && reactionOf(&old.Event) == reactionOf(&ev)
		if old.User == ev.User && (isSame || old.Kind == events.UserDeleted) {
			about = append(about, old)
		}
	}
	facts := orderFacts(about).where(func(f *fact) bool { return isReactionKind(f.Kind) && !f.isRelationEnded })
	if !ev.Backfill {
		return reactionHolds(facts)
	}
	return len(facts.backfilled()) > 0 || reactionHolds(facts.live())
}
