package model

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/heat" //nolint:depguard // the arithmetic only, which has its own exact tests
)

// reaction names a user, an item and the kind of a reaction. Reactions of different kinds are
// independent.
type reaction struct{ user, item, kind string }

// reactionOf returns the reaction that an event is about.
func reactionOf(ev *events.Event) reaction { return reaction{ev.User, ev.Item, ev.Reaction} }

// isReactionKind reports whether events of a kind decide to which items the acting user has
// reacted.
func isReactionKind(k events.Kind) bool { return k == events.Reacted || k == events.Unreacted }

// reactionHolds reports whether a reaction holds, given all facts about it: the latest one is not
// its end.
func reactionHolds(facts facts) bool { return facts.last().Kind == events.Reacted }

// Reacted reports whether a user reacted to an item with a kind.
func (g *Graph) Reacted(user, item, kind string) bool {
	return reactionHolds(g.reactionFacts[reaction{user, item, kind}])
}

// HeatSettings are the settings on which heat depends.
type HeatSettings struct {
	// HalfLife is the time after which an addition counts half as much as a new one.
	HalfLife events.Micros
	// Play and Repin are the weights of one play and of one re-pin.
	Play, Repin uint32
	// Reactions are the weights of reactions by their kinds, where "" is a like. Other kinds and
	// private kinds add nothing.
	Reactions map[string]uint32
}

// Heat returns the score of an item after a history in log order. ok is false if the item has no
// score.
func Heat(history []events.Event, item string, s HeatSettings) (score int64, ok bool) {
	score, ok = Heats(history, s)[item]
	return score, ok
}

// minScoreGrowth is by how much the heat of an item must exceed its score before the score is set
// to the heat: a quarter of a doubling.
const minScoreGrowth = heat.One / 4

// Heats returns the scores of all items that have one, after a history in log order. Unlike all
// other answers, scores depend on the order of arrival: nothing that was added is subtracted, and a
// backfill is added when it arrives.
func Heats(history []events.Event, s HeatSettings) map[string]int64 {
	sums := map[string]heat.Sum{}
	scores := map[string]int64{}
	isGiven := map[string]bool{} // by item_scored
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
			scores[ev.Item] = ev.Score
			isGiven[ev.Item] = true // plays and reactions no longer change the score
		}
		if weight == 0 || isGiven[ev.Item] {
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

// repeatsReaction reports whether a reaction that arrives is a repeat. A live one is if the
// reaction already holds. A backfilled one is if there was a backfill of the same reaction before,
// or if the reaction holds by live events.
func repeatsReaction(before []loggedEvent, ev events.Event) bool {
	var about []loggedEvent
	for i := range before {
		old := &before[i]
		isSame := isReactionKind(old.Kind) && reactionOf(&old.Event) == reactionOf(&ev)
		if old.User == ev.User && (isSame || old.Kind == events.UserDeleted) {
			about = append(about, *old)
		}
	}
	facts := orderFacts(about).where(func(f *fact) bool { return isReactionKind(f.Kind) && !f.isRelationEnded })
	if !ev.Backfill {
		return reactionHolds(facts)
	}
	return len(facts.backfilled()) > 0 || reactionHolds(facts.live())
}
