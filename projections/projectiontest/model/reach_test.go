package model

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

// The generated histories must meet the hard cases often, or the tests that use them prove little.
func TestHistoriesReachTheHardCases(t *testing.T) {
	const seeds = 200
	hits := map[string]int{}
	for seed := range uint64(seeds) {
		history := histories.Fixed(seed, 60)
		here := map[string]bool{}
		noteFacts(here, history)
		for n := 6; n <= len(history); n += 6 {
			noteState(here, New(history[:n]))
		}
		for name := range here {
			hits[name]++
		}
	}
	for _, name := range []string{
		"backfill not accepted", "void follow of a user", "void follow of a board", "void unfollow", "void pin",
		"explicit", "implicit", "board", "excluded", "board and explicit", "excluded in the past", "explicit in the past",
		"default board excluded", "mutuals", "equal times", "followers of a board in a later life", "title",
		"block by backfills only", "hidden by a backfilled block", "muted", "blocked",
		"exclusion older than a repeated follow", "board follow older than a repeat",
		"follow ended by the end of a backfilled block", "follow repeated after an unblock",
	} {
		t.Logf("%3d of %d: %s", hits[name], seeds, name)
		if hits[name] < seeds/50 {
			t.Errorf("only %d of %d histories reach: %s", hits[name], seeds, name)
		}
	}
}

func noteFacts(here map[string]bool, history []events.Event) {
	for i, ev := range history {
		here["backfill not accepted"] = here["backfill not accepted"] || !isAccepted(history[:i], ev)
		if !isVoid(history[:i], ev) {
			continue
		}
		switch ev.Kind {
		case events.UserFollowed:
			here["void follow of a user"] = true
		case events.BoardFollowed:
			here["void follow of a board"] = true
		case events.BoardUnfollowed:
			here["void unfollow"] = true
		default:
			here["void pin"] = true
		}
	}
	for name, reached := range here {
		if !reached {
			delete(here, name)
		}
	}
}

func noteState(here map[string]bool, g *Graph) {
	note := func(name string, reached bool) {
		if reached {
			here[name] = true
		}
	}
	for _, a := range g.Users() {
		note("blocked", len(g.Blocked(a)) > 0)
		note("muted", len(g.Muted(a)) > 0)
		list := g.Following(a, None)
		for i, e := range list {
			note(e.Kind.String(), true)
			note("explicit in the past", e.Kind == Explicit && e.Since <= histories.Start)
			note("equal times", i > 0 && list[i-1].Since == e.Since)
			note("mutuals", len(g.Mutuals(a, e.User)) > 0)
		}
		for _, e := range g.ExcludedBoards(a) {
			note("excluded", true)
			note("excluded in the past", e.Since <= histories.Start)
			note("default board excluded", e.Board == "")
			follows := g.relations(a, e.Owner).of(events.UserFollowed).by(a)
			note("exclusion older than a repeated follow", !follows.last().Backfill && follows.last().Time > e.Since)
		}
		for _, e := range g.FollowedBoards(a) {
			note("board", true)
			_, both := g.explicit(a, e.Owner)
			note("board and explicit", both)
			note("followers of a board in a later life", len(g.deletions(BoardID{e.Owner, e.Board})) > 0)
			follows := g.relations(a, e.Owner).by(a).on(e.Board).of(events.BoardFollowed)
			note("board follow older than a repeat", follows.last().Time > e.Since)
		}
		for _, e := range g.Boards(a) {
			note("title", e.Title != "")
		}
		for _, b := range g.Users() {
			live := g.relations(a, b).by(a).of(events.UserBlocked).live()
			_, blocks := g.blocks(a, b)
			note("block by backfills only", blocks && len(live) == 0)
			_, follows := stateSince(g.relations(a, b).by(a).of(events.UserFollowed), g.unfollows(a, b), nil)
			note("hidden by a backfilled block", follows && g.hasBlockBetween(a, b))
			noteUnblocks(note, g, a, b)
		}
	}
}

func noteUnblocks(note func(name string, reached bool), g *Graph, a, b string) {
	follows := g.relations(a, b).of(events.UserFollowed).by(a).live()
	for _, unblock := range g.unfollows(a, b).of(events.UserUnblocked) {
		others := g.unfollows(a, b).live().where(func(f *fact) bool { return f.rank != unblock.rank })
		note("follow ended by the end of a backfilled block", follows.before(unblock.rank).last().rank > others.last().rank)
	}
	for _, unblock := range g.possibleEnds(a, b) {
		before := follows.before(unblock.rank).last().rank
		note("follow repeated after an unblock", before > g.unfollows(a, b).last().rank && len(follows.after(unblock.rank)) > 0)
	}
}
