package model

import (
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

// TestHistoriesWithPlaysReachTheHardCases checks the same as [TestHistoriesReachTheHardCases], for
// histories with plays.
func TestHistoriesWithPlaysReachTheHardCases(t *testing.T) {
	expectHistoriesReach(t, 100, func(seed uint64) []events.Event { return histories.FixedPlays(seed, 80) }, []string{
		"played this month", "played 1 months ago", "played 2 months ago", "played 3 months ago",
		"played 4 months ago",
		"played 5 months ago", "played 6 months ago", "played years ago", "fell out of the window",
		"played in the last moment of a month", "played in the first moment of a month",
		"history in the last moment of a month", "history in the first moment of a month",
		"two months in one envelope", "half a year without an event", "history of this month",
		"history of an earlier month of the window", "history past the retention", "played in two months",
		"cleared plays", "cleared history", "cleared serves", "played after a clearing",
		"play void by a clearing",
		"serve void by a clearing", "play void by a deletion", "played by a deleted user",
		"cleared plays of several months",
		"one served", "100 served", "fell off the 100", "history fell off the 100", "served again",
		"served again by history", "named twice in a serve",
		"late history beneath live serves", "history of what was served live", "history of one moment",
		"history of one moment and index", "history of one item in one moment",
	}, func(record recordFunc, history []events.Event) {
		recordMonthCases(record, history)
		recordServeCases(record, history)
		recordClearingCases(record, history)
	})
}

// TestHistoriesReachTheHardCasesOfCounters checks the same for the histories that test counters.
func TestHistoriesReachTheHardCasesOfCounters(t *testing.T) {
	names := []string{
		"play", "play of history", "play of a closed import", "played by a deleted user", "like",
		"liked by two", "unliked", "like ended with its user",
		"scored", "scored only", "re-pin", "re-pin again", "repeated re-pin",
		"re-pin of what is shown elsewhere", "re-pin of a living pin", "pin ends with its board", "re-created",
		"pin moved", "pin ends with its user", "item shown by two pins of a board",
		"item on two boards of an owner", "item on three boards",
		"item loses its last pin on a board", "item without a pin", "pin without a score",
		"2 on the list of a board", "equal scores", "negative score",
	}
	t.Run("plays", func(t *testing.T) {
		expectHistoriesReach(t, 100, func(seed uint64) []events.Event { return histories.FixedPlays(seed, 80) }, names, recordCounterCases)
	})
	t.Run("feeds", func(t *testing.T) {
		expectHistoriesReach(t, 100, func(seed uint64) []events.Event { return histories.FixedFeeds(seed, 80) }, names, recordCounterCases)
	})
}

// recordMonthCases records the cases of plays in months, at every position.
func recordMonthCases(record recordFunc, history []events.Event) {
	n := 0
	last := histories.Start
	for _, env := range histories.Envelopes(history) {
		now := env.Cursor.LastTime
		record("half a year without an event", now-last > 180*24*3600*1_000_000)
		last = now
		n += len(env.Events)
		g := New(history[:n])

		// The months in which the items were played, seen from the end of the envelope.
		for _, user := range g.users {
			months := map[string]int{}
			for _, f := range g.countedSeen(user, events.Played) {
				ago := monthNumber(now) - monthNumber(f.Time)
				record([...]string{
					"played this month", "played 1 months ago", "played 2 months ago", "played 3 months ago",
					"played 4 months ago", "played 5 months ago", "played 6 months ago", "played years ago",
				}[min(ago, 7)], true)
				record("fell out of the window", ago > 3 && !g.Played(user, now, 4)[f.Item])
				months[f.Item] |= 1 << min(ago, 7)
				record("played in two months", months[f.Item]&(months[f.Item]-1) != 0)
			}
		}

		first, end := env.Events[0], env.Events[len(env.Events)-1]
		record("two months in one envelope", !first.Backfill && !end.Backfill && monthNumber(first.Time) != monthNumber(end.Time))

		for _, ev := range env.Events {
			if ev.Kind != events.Played {
				continue
			}
			edge := "played in the "
			if ev.Backfill {
				edge = "history in the "
				ago := monthNumber(now) - monthNumber(ev.Time)
				record("history of this month", ago == 0)
				record("history of an earlier month of the window", 0 < ago && ago < 4)
				record("history past the retention", ago >= 6)
			}
			record(edge+"last moment of a month", monthNumber(ev.Time+1) != monthNumber(ev.Time))
			record(edge+"first moment of a month", monthNumber(ev.Time-1) != monthNumber(ev.Time))
		}
	}
}

// recordServeCases compares what was served before and after every serve that counts.
func recordServeCases(record recordFunc, history []events.Event) {
	for n, ev := range history {
		if ev.Kind != events.Served || !isAccepted(history[:n], ev) {
			continue
		}
		before := New(history[:n])
		after := New(history[:n+1])
		servedBefore := before.Served(ev.User)
		served := after.Served(ev.User)
		if len(after.countedSeen(ev.User, events.Served)) == len(before.countedSeen(ev.User, events.Served)) {
			continue
		}

		record("one served", len(served) == 1)
		record("100 served", len(served) == ServedItems)
		for _, item := range servedBefore {
			record("fell off the 100", !slices.Contains(served, item))
		}

		live := before.countedSeen(ev.User, events.Served).live()
		for i, item := range ev.Items {
			record("named twice in a serve", slices.Contains(ev.Items[:i], item))
			record("history fell off the 100", ev.Backfill && !slices.Contains(served, item))
			rank := slices.Index(servedBefore, item)
			record("served again", rank > len(ev.Items) && !ev.Backfill)
			record("served again by history", rank >= 0 && ev.Backfill && slices.Index(served, item) < rank)
			wasLive := slices.ContainsFunc(live, func(f *fact) bool { return slices.Contains(f.Items, item) })
			record("history of what was served live",
				rank >= 0 && ev.Backfill && slices.Index(served, item) <= rank && wasLive)
		}
		record("late history beneath live serves", ev.Backfill && len(live) > 0 && len(served) > len(servedBefore))

		for _, f := range before.countedSeen(ev.User, events.Served).backfilled() {
			if !ev.Backfill || f.Time != ev.Time {
				continue
			}
			record("history of one moment", true)
			record("history of one moment and index", f.Items[0] != ev.Items[0])
			for i, item := range ev.Items {
				index := slices.Index(f.Items, item)
				record("history of one item in one moment", index >= 0 && index != i)
			}
		}
	}
}

// recordClearingCases records the cases of deleted users and cleared lists.
func recordClearingCases(record recordFunc, history []events.Event) {
	cleared := map[string]bool{}
	deleted := map[string]bool{}
	for n, ev := range history {
		switch {
		case ev.Kind == events.UserDeleted:
			record("played by a deleted user", New(history[:n]).PlaysBy(ev.User) > 0)
			deleted[ev.User] = true
		case ev.Kind == events.SeenCleared:
			before := New(history[:n])
			plays := before.countedSeen(ev.User, events.Played)
			record("cleared plays", len(plays.live()) > 0)
			record("cleared history", len(plays.backfilled()) > 0)
			record("cleared serves", len(before.Served(ev.User)) > 0)
			for _, f := range plays {
				record("cleared plays of several months", monthNumber(f.Time) != monthNumber(plays[0].Time))
			}
			cleared[ev.User] = true
		case ev.Backfill && deleted[ev.User]:
			record("play void by a deletion", ev.Kind == events.Played)
		case ev.Backfill && cleared[ev.User] && isAccepted(history[:n], ev):
			record("play void by a clearing", ev.Kind == events.Played)
			record("serve void by a clearing", ev.Kind == events.Served)
		case ev.Kind == events.Played && cleared[ev.User]:
			record("played after a clearing", !ev.Backfill)
		}
	}
}

// recordCounterCases records the cases of counters, of lists by heat at every eighth position.
func recordCounterCases(record recordFunc, history []events.Event) {
	log := markCounted(history)
	heat := HeatSettings{HalfLife: 1_000_000, Play: 1, Repin: 8, Reactions: map[string]uint32{"": 4}}
	existed := map[[2]string]bool{}
	repinned := map[[2]string]bool{}
	after := New(nil)
	for n, ev := range log {
		before := after
		record("play of a closed import", !ev.counts && ev.Kind == events.Played)
		if !ev.counts {
			continue
		}
		after = New(history[:n+1])

		switch ev.Kind {
		case events.Played:
			record("play", !ev.Backfill)
			record("play of history", ev.Backfill)
		case events.Reacted, events.Unreacted:
			likersBefore := before.Likers(ev.Item)
			likers := after.Likers(ev.Item)
			record("like", likers > likersBefore)
			record("liked by two", likers > 1)
			record("unliked", likers < likersBefore)
		case events.ItemScored:
			record("scored", true)
			record("scored only", before.Plays(ev.Item) == 0)
			record("negative score", ev.Score < 0)
		case events.UserDeleted:
			record("played by a deleted user", before.PlaysBy(ev.User) > 0)
			record("pin ends with its user", len(before.Pins(ev.User)) > 0)
			for _, item := range before.items {
				record("like ended with its user", after.Likers(item) < before.Likers(item))
			}
		case events.BoardDeleted:
			record("pin ends with its board", len(after.Pins(ev.User)) < len(before.Pins(ev.User)))
		case events.PinCreated, events.PinMoved, events.PinDeleted:
			pin := [2]string{ev.User, ev.Pin}
			pinBefore, existedBefore := pinOf(before, ev.Event)
			pinAfter, existsAfter := pinOf(after, ev.Event)
			moved := existedBefore && existsAfter && pinBefore.Board != pinAfter.Board
			record("re-created", !existedBefore && existsAfter && existed[pin])
			record("pin moved", moved)
			existed[pin] = existed[pin] || existsAfter

			isNew := isNewRepin(log, n)
			isShown := isNew && slices.ContainsFunc(before.users, func(user string) bool {
				return before.isInScope(Scope{Owner: user}, ev.Item)
			})
			record("re-pin", isNew)
			record("re-pin again", isNew && repinned[pin])
			record("repeated re-pin", ev.RepinUser != "" && !isNew)
			record("re-pin of a living pin", ev.RepinUser != "" && existedBefore)
			record("re-pin of what is shown elsewhere", isShown)
			repinned[pin] = repinned[pin] || isNew

			leftBoard := existedBefore && (!existsAfter || pinAfter.Board != pinBefore.Board)
			record("item loses its last pin on a board",
				leftBoard && !after.isInScope(Scope{pinBefore.Owner, &pinBefore.Board}, pinBefore.Item))
		}

		if n%8 == 7 {
			recordTopCases(record, after, Heats(history[:n+1], heat))
		}
	}
}

// recordTopCases records the cases of lists by heat.
func recordTopCases(record recordFunc, g *Graph, heats map[string]int64) {
	for i, h := range g.Top(Scope{}, heats) {
		record("equal scores", i > 0 && g.Top(Scope{}, heats)[i-1].Score == h.Score)
		boards := 0
		for _, user := range g.users {
			pinsOnBoard := map[string]int{}
			for _, p := range g.Pins(user) {
				if p.Item == h.Item {
					pinsOnBoard[p.Board]++
					record("item shown by two pins of a board", pinsOnBoard[p.Board] > 1)
				}
			}
			record("item on two boards of an owner", len(pinsOnBoard) > 1)
			boards += len(pinsOnBoard)
		}
		record("item without a pin", boards == 0)
		record("item on three boards", boards >= 3)
	}

	for _, b := range g.boards {
		record("2 on the list of a board", len(g.Top(Scope{b.Owner, &b.Board}, heats)) >= 2)
		for _, p := range g.BoardPins(b.Owner, b.Board) {
			_, ok := heats[p.Item]
			record("pin without a score", !ok)
		}
	}
}
