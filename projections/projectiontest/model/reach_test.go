package model

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

// TestHistoriesReachTheHardCases checks that generated histories reach the hard cases often.
// Otherwise the tests that use them would prove little.
func TestHistoriesReachTheHardCases(t *testing.T) {
	expectHistoriesReach(t, 100, func(seed uint64) []events.Event { return histories.Fixed(seed, 60) }, []string{
		"backfill not accepted", "void follow of a user", "void follow of a board", "void unfollow",
		"void pin",
		"explicit", "implicit", "board", "excluded", "board and explicit", "excluded in the past",
		"explicit in the past",
		"default board excluded", "mutuals", "equal times", "followers of a board that was created again",
		"title",
		"block by backfills only", "hidden by a backfilled block", "muted", "blocked",
		"exclusion older than a repeated follow", "board follow older than a repeat",
		"follow ended by the end of a backfilled block", "follow repeated after an unblock",
	}, func(record recordFunc, history []events.Event) {
		recordEventCases(record, history)
		for n := 6; n <= len(history); n += 6 {
			recordFollowCases(record, New(history[:n]))
		}
	})
}

// recordFunc records whether a history reaches the case with a name. A case counts as reached if it
// was reached once.
type recordFunc func(name string, reached bool)

// expectHistoriesReach demands that enough of the histories of a number of seeds reach each of the
// named cases.
func expectHistoriesReach(
	t *testing.T, seeds uint64, history func(seed uint64) []events.Event, names []string,
	recordCases func(recordFunc, []events.Event),
) {
	t.Helper()
	hits := map[string]int{}
	for seed := range seeds {
		reachedCases := map[string]bool{}
		record := func(name string, reached bool) {
			if reached {
				reachedCases[name] = true
			}
		}
		recordCases(record, history(seed))
		for name := range reachedCases {
			hits[name]++
		}
	}

	for _, name := range names {
		t.Logf("%3d of %d: %s", hits[name], seeds, name)
		if uint64(hits[name]) < seeds/50 {
			t.Errorf("got %d of %d histories that reach this case, want at least %d: %s", hits[name], seeds, seeds/50, name)
		}
	}
}

// recordEventCases records backfills that are not accepted, and events that are void.
func recordEventCases(record recordFunc, history []events.Event) {
	for i, ev := range history {
		record("backfill not accepted", !isAccepted(history[:i], ev))
		if !isVoid(history[:i], ev) {
			continue
		}
		switch ev.Kind {
		case events.UserFollowed:
			record("void follow of a user", true)
		case events.BoardFollowed:
			record("void follow of a board", true)
		case events.BoardUnfollowed:
			record("void unfollow", true)
		default:
			record("void pin", true)
		}
	}
}

// recordFollowCases records the cases of follows, boards and blocks at one position.
func recordFollowCases(record recordFunc, g *Graph) {
	for _, a := range g.Users() {
		record("blocked", len(g.Blocked(a)) > 0)
		record("muted", len(g.Muted(a)) > 0)

		list := g.Following(a, None)
		for i, e := range list {
			record(e.Kind.String(), true)
			record("explicit in the past", e.Kind == Explicit && e.Since <= histories.Start)
			record("equal times", i > 0 && list[i-1].Since == e.Since)
			record("mutuals", len(g.Mutuals(a, e.User)) > 0)
		}

		for _, e := range g.ExcludedBoards(a) {
			record("excluded", true)
			record("excluded in the past", e.Since <= histories.Start)
			record("default board excluded", e.Board == "")
			follows := g.relations(a, e.Owner).of(events.UserFollowed).by(a)
			record("exclusion older than a repeated follow", !follows.last().Backfill && follows.last().Time > e.Since)
		}

		for _, e := range g.FollowedBoards(a) {
			record("board", true)
			_, explicit := g.explicit(a, e.Owner)
			record("board and explicit", explicit)
			record("followers of a board that was created again", len(g.deletions(BoardID{e.Owner, e.Board})) > 0)
			follows := g.relations(a, e.Owner).by(a).on(e.Board).of(events.BoardFollowed)
			record("board follow older than a repeat", follows.last().Time > e.Since)
		}

		for _, e := range g.Boards(a) {
			record("title", e.Title != "")
		}

		for _, b := range g.Users() {
			live := g.relations(a, b).by(a).of(events.UserBlocked).live()
			_, blocks := g.blocks(a, b)
			record("block by backfills only", blocks && len(live) == 0)
			_, follows := stateSince(g.relations(a, b).by(a).of(events.UserFollowed), g.unfollows(a, b), nil)
			record("hidden by a backfilled block", follows && g.hasBlockBetween(a, b))
			recordUnblockCases(record, g, a, b)
		}
	}
}

// recordUnblockCases records the cases of unblocks between two users.
func recordUnblockCases(record recordFunc, g *Graph, a, b string) {
	follows := g.relations(a, b).of(events.UserFollowed).by(a).live()
	for _, unblock := range g.unfollows(a, b).of(events.UserUnblocked) {
		others := g.unfollows(a, b).live().where(func(f *fact) bool { return f.rank != unblock.rank })
		record("follow ended by the end of a backfilled block", follows.before(unblock.rank).last().rank > others.last().rank)
	}
	for _, unblock := range g.possibleEnds(a, b) {
		before := follows.before(unblock.rank).last().rank
		record("follow repeated after an unblock", before > g.unfollows(a, b).last().rank && len(follows.after(unblock.rank)) > 0)
	}
}
