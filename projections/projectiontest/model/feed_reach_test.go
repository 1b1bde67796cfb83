package model

import (
	"bytes"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

// TestHistoriesWithFeedsReachTheHardCases checks the same as [TestHistoriesReachTheHardCases], for
// histories with pins and feeds.
func TestHistoriesWithFeedsReachTheHardCases(t *testing.T) {
	expectHistoriesReach(t, 200, func(seed uint64) []events.Event { return histories.FixedFeeds(seed, 80) }, []string{
		"feed", "feed of 20 pins", "own pins", "hidden by a mute", "hidden as a re-pin",
		"hidden as a re-pin of a deleted user", "hidden as a re-pin of a muted user",
		"hidden as a re-pin of a blocked user", "hidden item", "own hidden item", "item hidden by history",
		"history hides no item that was shown again", "read in part", "read, but not as far as before",
		"read ahead of the log", "read marker ends with its user", "hidden by an exclusion",
		"by a board follow only",
		"pins of one item", "user with 3 explicit followers", "board with 3 followers of its own",
		"equal times of two owners", "equal times of one owner", "pin of the past", "pin on the default board",
		"pin moved", "pin edited", "edit ignored", "edit of an edited pin", "edit ends with its pin",
		"edit before its history arrives", "attributes", "pins of a board that was created again",
		"pin of a user who was deleted before",
		"pin void", "creation ignored", "move ignored", "re-created", "pin ends with its board",
		"history ends with its board",
		"late history is moved", "late history takes the place of a pin", "history saved by a move",
		"history revives a live creation",
		"order by encoding", "large envelope", "large envelope of history",
		"play", "like", "reaction that is no like", "private reaction",
		"reactions of several kinds by one user", "re-pin", "repeated like", "repeated backfilled like",
		"re-pin of a living pin", "re-pin by late history",
		"scored after plays", "played after a score", "like ended with its user",
		"liked and unliked and liked",
		"backfilled like of what was unliked", "pins with and without scores",
	}, func(record recordFunc, history []events.Event) {
		for n := 8; n <= len(history); n += 8 {
			recordFeedCases(record, New(history[:n]))
		}
		recordPinCases(record, history)
		recordHeatCases(record, history)
	})
}

// recordFeedCases records the cases of feeds, at one position.
func recordFeedCases(record recordFunc, g *Graph) {
	for _, b := range g.boards {
		record("board with 3 followers of its own", len(g.BoardFollowers(b.Owner, b.Board, OnBoard)) >= 3)
	}

	for _, reader := range g.users {
		record("user with 3 explicit followers", len(g.Followers(reader, Explicit)) >= 3)
		feed := g.Feed(reader, false)
		record("feed", len(feed) > 0)
		record("feed of 20 pins", len(feed) >= 20)
		unread := After(g.Read(reader), feed)
		record("read in part", len(unread) > 0 && len(unread) < len(feed))
		record("own pins", len(feed) > 0 && len(g.Feed(reader, true)) > len(feed))
		record("pins of one item", len(OnePerItem(feed)) < len(feed))
		for i, p := range feed {
			_, explicit := g.explicit(reader, p.Owner)
			record("by a board follow only", !explicit)
			if i > 0 && feed[i-1].Created == p.Created {
				record("equal times of two owners", feed[i-1].Owner != p.Owner)
				record("equal times of one owner", feed[i-1].Owner == p.Owner)
			}
		}

		// Pins that are hidden from the reader, or hidden items.
		for _, owner := range g.users {
			_, muted := g.mutes(reader, owner)
			repins := g.hidesRepins(reader, owner)
			for _, p := range g.Pins(owner) {
				kind := g.Board(reader, owner, p.Board).Kind
				record("hidden by a mute", muted && (kind == Board || kind == Explicit))
				record("hidden as a re-pin", repins && p.Repin && (kind == Board || kind == Explicit))
				origin := g.originOf(reader, p)
				_, itemHidden := g.hidesItem(reader, p.Item)
				record("hidden item", itemHidden && (kind == Board || kind == Explicit))
				record("hidden as a re-pin of a deleted user", origin.Deleted && (kind == Board || kind == Explicit))
				record("hidden as a re-pin of a muted user", origin.Muted && (kind == Board || kind == Explicit))
				record("hidden as a re-pin of a blocked user", origin.Blocked && (kind == Board || kind == Explicit))
				record("hidden by an exclusion", kind == Excluded)
			}
		}

		for of, facts := range g.hidingFacts {
			_, hides := g.hidesItem(of.user, of.item)
			record("item hidden by history", hides && len(facts.live()) == 0)
			record("history hides no item that was shown again", !hides && len(facts.backfilled()) > 0)
		}

		// The reader's own pins.
		for _, p := range g.Pins(reader) {
			_, hidden := g.hidesItem(reader, p.Item)
			record("own hidden item", hidden)
			record("pin of the past", p.Created < histories.Start)
			record("pin on the default board", p.Board == "")
			record("attributes", len(p.Attributes) > 0)
			record("edit before its history arrives", p.Edited != 0 && arrivedAfter(g.log, p))
			record("pins of a board that was created again", len(g.deletions(BoardID{reader, p.Board})) > 0)
		}
	}
}

// recordPinCases compares what a pin is after every event with what it was before.
func recordPinCases(record recordFunc, history []events.Event) {
	pinsIn := map[uint64]int{}
	deleted := map[string]bool{}
	existed := map[[2]string]bool{}
	after := New(nil)
	for n, ev := range history {
		deleted[ev.User] = deleted[ev.User] || ev.Kind == events.UserDeleted
		before := after
		after = New(history[:n+1])
		readBefore := before.Read(ev.User)
		if ev.Kind == events.FeedRead {
			record("read, but not as far as before", ev.Read < readBefore)
			record("read ahead of the log", ev.Read > ev.Time)
		} else {
			record("read marker ends with its user", ev.Kind == events.UserDeleted && readBefore > 0)
		}
		if !isPinKind(ev.Kind) {
			continue
		}

		counts := isAccepted(history[:n], ev) && !isVoid(history[:n], ev)
		if ev.Kind == events.BoardDeleted {
			for _, p := range before.BoardPins(ev.User, ev.Board) {
				record("pin ends with its board", true)
				record("history ends with its board", p.Created <= histories.Start)
			}
			continue
		}

		pinBefore, existedBefore := pinOf(before, ev)
		pinAfter, existsAfter := pinOf(after, ev)
		record("pin void", !counts && !ev.Backfill)
		record("creation ignored", counts && ev.Kind == events.PinCreated && !ev.Backfill && existedBefore)
		record("move ignored", counts && ev.Kind == events.PinMoved && !existedBefore)
		moved := existedBefore && existsAfter && pinBefore.Board != pinAfter.Board
		record("pin moved", moved && ev.Kind == events.PinMoved)
		edited := existsAfter && pinAfter.Edited != pinBefore.Edited && pinAfter.Edited != 0
		record("pin edited", edited && ev.Kind == events.PinEdited)
		record("edit ignored", ev.Kind == events.PinEdited && !existedBefore)
		editedBefore := existedBefore && pinBefore.Edited != 0
		record("edit of an edited pin", editedBefore && ev.Kind == events.PinEdited)
		record("edit ends with its pin", editedBefore && !existsAfter)
		record("re-created", existsAfter && !existedBefore && existed[[2]string{ev.User, ev.Pin}])
		record("pin of a user who was deleted before", existsAfter && deleted[ev.User])
		existed[[2]string{ev.User, ev.Pin}] = existed[[2]string{ev.User, ev.Pin}] || existsAfter

		if ev.Kind != events.PinCreated || !counts {
			continue
		}

		pinsIn[ev.Seq]++
		if pinsIn[ev.Seq] >= 20 {
			record("large envelope", true)
			record("large envelope of history", ev.Backfill)
		}
		if ev.Backfill {
			recordBackfilledPinCases(record, after, ev, pinBefore, existedBefore, pinAfter, existsAfter)
		}
	}
}

// arrivedAfter reports whether the history that created a pin arrived after its last edit.
func arrivedAfter(log []loggedEvent, p Pin) bool {
	edited := false
	for _, ev := range log {
		if ev.User != p.Owner || ev.Pin != p.ID || !ev.counts {
			continue
		}
		if edited && ev.Kind == events.PinCreated && ev.Backfill && ev.Time == p.Created {
			return true
		}
		edited = edited || ev.Kind == events.PinEdited && ev.Time == p.Edited
	}
	return false
}

// pinOf returns the pin of an event.
func pinOf(g *Graph, ev events.Event) (Pin, bool) { return findPin(g.pinFacts[ev.User], ev.Pin) }

// recordBackfilledPinCases records what an accepted backfilled creation does to a pin.
func recordBackfilledPinCases(
	record recordFunc, g *Graph, ev events.Event, pinBefore Pin, existedBefore bool, pinAfter Pin, existsAfter bool,
) {
	facts := g.pinFacts[ev.User].where(func(f *fact) bool { return f.Pin == ev.Pin })
	deletions := g.pinFacts[ev.User].of(events.BoardDeleted).on(ev.Board)
	fromHistory := existsAfter && pinAfter.Created == ev.Time
	record("late history is moved", fromHistory && pinAfter.Board != ev.Board)
	record("late history takes the place of a pin", fromHistory && existedBefore && pinBefore.Created != ev.Time)
	record("history saved by a move", fromHistory && pinAfter.Board != ev.Board && len(deletions) > 0)
	record("history revives a live creation",
		existedBefore && existsAfter && pinAfter.Created != pinBefore.Created && pinAfter.Created != ev.Time)
	for _, f := range facts.of(events.PinCreated).backfilled() {
		record("order by encoding", f.Time == ev.Time && !bytes.Equal(f.Encoded, ev.Encoded))
	}
}

// recordHeatCases records the cases of plays, reactions, re-pins and scores.
func recordHeatCases(record recordFunc, history []events.Event) {
	log := markCounted(history)
	touched := map[string]bool{}
	scored := map[string]bool{}
	for n, ev := range log {
		if !ev.counts {
			continue
		}

		switch ev.Kind {
		case events.Played:
			record("play", true)
			record("played after a score", scored[ev.Item])
		case events.Reacted:
			before := New(history[:n])
			reacted := before.Reacted(ev.User, ev.Item, ev.Reaction)
			facts := before.reactionFacts[reactionOf(&ev.Event)]
			repeats := repeatsReaction(log[:n], ev.Event)
			record("like", !repeats && ev.Reaction == "")
			record("reaction that is no like", !repeats && ev.Reaction != "")
			record("private reaction", events.IsPrivateReaction(ev.Reaction))
			record("reactions of several kinds by one user", len(before.OwnReactions(ev.User, ev.Item)) > 1)
			record("repeated like", repeats && !ev.Backfill)
			record("repeated backfilled like", repeats && ev.Backfill)
			record("liked and unliked and liked", !ev.Backfill && !reacted && len(facts.of(events.Reacted)) > 0)
			record("backfilled like of what was unliked", ev.Backfill && facts.live().last().Kind == events.Unreacted)
		case events.PinCreated:
			if ev.RepinUser != "" {
				isNew := isNewRepin(log, n)
				_, exists := pinOf(New(history[:n]), ev.Event)
				record("re-pin", isNew)
				record("re-pin by late history", isNew && ev.Backfill)
				record("re-pin of a living pin", exists)
			}
		case events.ItemScored:
			record("scored after plays", touched[ev.Item])
			scored[ev.Item] = true
		case events.UserDeleted:
			for of, facts := range New(history[:n]).reactionFacts {
				record("like ended with its user", of.user == ev.User && reactionHolds(facts))
			}
		}
		if ev.Kind == events.Played || ev.Kind == events.Reacted {
			touched[ev.Item] = true
		}
	}

	// Feeds at the end of the history.
	heats := Heats(history, HeatSettings{HalfLife: 1, Play: 1, Repin: 1, Reactions: map[string]uint32{"": 1}})
	g := New(history)
	for _, reader := range g.users {
		withScore := false
		withoutScore := false
		for _, p := range g.Feed(reader, false) {
			if _, ok := heats[p.Item]; ok {
				withScore = true
			} else {
				withoutScore = true
			}
		}
		record("pins with and without scores", withScore && withoutScore)
	}
}
