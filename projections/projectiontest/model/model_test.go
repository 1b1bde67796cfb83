package model_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// formatAnswers formats every answer of a graph about some users and boards.
func formatAnswers(g *model.Graph, users []string, boards []model.BoardID) string {
	var b strings.Builder
	for _, u := range users {
		fmt.Fprintf(&b, "%s: following %s; followers %s\n", u, formatEntries(g.Following(u, model.None)), formatEntries(g.Followers(u, model.None)))
		fmt.Fprintf(&b, "\tboards %s; followed %s; excluded %s; users blocked %s; muted %s\n", formatEntries(g.Boards(u)),
			formatEntries(g.FollowedBoards(u)), formatEntries(g.ExcludedBoards(u)), formatEntries(g.Blocked(u)), formatEntries(g.Muted(u)))
		fmt.Fprintf(&b, "\tpins %s; feed %s\n", formatPins(g.Pins(u)), formatPins(g.Feed(u, false)))

		fmt.Fprintf(&b, "\tplayed %d; in months", g.PlaysBy(u))
		for months := range 6 {
			fmt.Fprintf(&b, " %v", g.Played(u, histories.Start+events.Micros(30*24*3600*1_000_000*months), 2))
		}
		fmt.Fprintf(&b, "; served %v\n", g.Served(u))
		for _, kind := range []string{"", "save", "_bookmark"} {
			fmt.Fprintf(&b, "reactions of kind %q: %+v\n", kind, g.Reactions(u, kind))
		}
		for _, other := range users {
			fmt.Fprintf(&b, "%s and %s: %+v; mutuals %s\n", u, other, g.Relationship(u, other), formatEntries(g.Mutuals(u, other)))
		}
		for _, board := range boards {
			fmt.Fprintf(&b, "%s on %v: %s\n", u, board, formatFollow(g.Board(u, board.Owner, board.Board)))
		}
	}
	for _, item := range g.Items() {
		// The number of re-pins depends on the order of the log, so it is not among the answers.
		fmt.Fprintf(&b, "%s: plays %d, reactions %+v\n", item, g.Plays(item), g.ReactionCounts(item))
	}
	for _, board := range boards {
		for _, which := range []model.BoardList{model.All, model.OnBoard, model.Excluders} {
			fmt.Fprintf(&b, "%v, list %d: %s\n", board, which, formatEntries(g.BoardFollowers(board.Owner, board.Board, which)))
		}
	}
	return b.String()
}

// TestArrivalOfBackfillsDoesNotMatter demands that the answers do not depend on when backfills
// arrive, in what order, and between which live events. Only deletions of users and ends of imports
// make a difference, so these histories have none.
func TestArrivalOfBackfillsDoesNotMatter(t *testing.T) {
	opt := histories.Options{Without: events.Kinds(events.UserDeleted, events.BackfillClosed), RisingOffsets: true}
	rapid.Check(t, func(t *rapid.T) {
		opt := opt
		opt.Feeds = rapid.Bool().Draw(t, "feeds")
		opt.Plays = rapid.Bool().Draw(t, "plays")
		history := histories.History(t, opt)
		moved := moveBackfills(t, history)

		g := model.New(history)
		want := formatAnswers(g, g.Users(), g.BoardsMentioned())
		if got := formatAnswers(model.New(moved), g.Users(), g.BoardsMentioned()); got != want {
			t.Fatalf("in the order of the log:\n%s\nwith the backfills moved:\n%s\nlog %s\nmoved %s",
				want, got, formatHistory(history), formatHistory(moved))
		}
	})
}

// moveBackfills returns a history with its backfills in another order and at other places between
// the live events.
func moveBackfills(t *rapid.T, history []events.Event) (moved []events.Event) {
	var live, past []events.Event
	for _, ev := range history {
		if ev.Backfill {
			past = append(past, ev)
		} else {
			live = append(live, ev)
		}
	}

	past = rapid.Permutation(past).Draw(t, "past")
	for len(live)+len(past) > 0 {
		if len(live) == 0 || len(past) > 0 && rapid.Bool().Draw(t, "past next") {
			ev := past[0]
			ev.Offset = uint64(len(moved)) + 1
			moved = append(moved, ev)
			past = past[1:]
			continue
		}
		moved = append(moved, live[0])
		live = live[1:]
	}
	return moved
}

// TestEndOfBlockRestoresNothing demands that, after a block has ended, only those follows and
// exclusions hold that were made after its end, in whatever order the block, backfilled or live,
// its end and the follows arrived.
func TestEndOfBlockRestoresNothing(t *testing.T) {
	opt := histories.Options{Users: 3, Without: events.Kinds(events.UserDeleted, events.BackfillClosed), RisingOffsets: true}
	rapid.Check(t, func(t *rapid.T) {
		history := moveBackfills(t, histories.History(t, opt))
		g := model.New(history)
		for unblocker, ends := range blockEnds(history) {
			a, b := unblocker.user, unblocker.peer
			for _, since := range append(relationTimes(g, a, b), relationTimes(g, b, a)...) {
				if since <= ends {
					t.Fatalf("%s unblocked %s at %d, and a relation between them holds since %d, want a later time\nlog %s",
						a, b, ends-histories.Start, since-histories.Start, formatHistory(history))
				}
			}
		}
	})
}

// direction identifies the user who blocks, and the other.
type direction struct{ user, peer string }

// blockEnds returns when the latest ended block of one user by another ended. It applies backfills
// before live events, because all backfilled blocks end with the first live unblock.
func blockEnds(history []events.Event) map[direction]events.Micros {
	blocked := map[direction]bool{}
	ends := map[direction]events.Micros{}
	for _, backfill := range []bool{true, false} {
		for _, ev := range history {
			pair := direction{ev.User, ev.Peer}
			switch {
			case ev.Backfill != backfill:
			case ev.Kind == events.UserBlocked:
				blocked[pair] = true
			case ev.Kind == events.UserUnblocked && blocked[pair]:
				blocked[pair] = false
				ends[pair] = ev.Time
			}
		}
	}
	return ends
}

// relationTimes returns since when a user follows another, each board of the other that the user
// follows, and each that the user excludes.
func relationTimes(g *model.Graph, user, other string) (times []events.Micros) {
	if f := g.User(user, other); f.Kind != model.None {
		times = append(times, f.Since)
	}
	for _, e := range slices.Concat(g.FollowedBoards(user), g.ExcludedBoards(user)) {
		if e.Owner == other {
			times = append(times, e.Since)
		}
	}
	return times
}

// TestRepeatedImportChangesNothing demands that an import that is run a second time changes no
// answer.
func TestRepeatedImportChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{
			Feeds: rapid.Bool().Draw(t, "feeds"), Plays: rapid.Bool().Draw(t, "plays"),
		})

		// Import all backfills once more.
		twice := slices.Clone(history)
		for _, ev := range history {
			if ev.Backfill {
				twice = append(twice, ev)
			}
		}

		g := model.New(history)
		want := formatAnswers(g, g.Users(), g.BoardsMentioned())
		if got := formatAnswers(model.New(twice), g.Users(), g.BoardsMentioned()); got != want {
			t.Fatalf("once:\n%s\ntwice:\n%s\nlog %s", want, got, formatHistory(history))
		}

		again := model.New(twice)
		for _, item := range g.Items() {
			if got, want := again.ItemCounts(item), g.ItemCounts(item); got != want {
				t.Fatalf("counts of %s after two imports: got %+v, want %+v as after one", item, got, want)
			}
		}
		if got, want := model.Heats(twice, scenarioHeat), model.Heats(history, scenarioHeat); !maps.Equal(got, want) {
			t.Fatalf("heats after two imports: got %v, want %v as after one", got, want)
		}
	})
}

// TestFollowAnswersAgreeAtEveryPosition demands that the answers about follows, exclusions, blocks
// and counts agree with each other.
func TestFollowAnswersAgreeAtEveryPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{})
		for n := range history {
			expectFollowAnswersAgree(t, model.New(history[:n+1]))
			if t.Failed() {
				t.Fatalf("after %s", formatHistory(history[:n+1]))
			}
		}
	})
}

// expectFollowAnswersAgree compares the answers of a graph with each other.
func expectFollowAnswersAgree(t *rapid.T, g *model.Graph) {
	for _, b := range g.BoardsMentioned() {
		exists := b.Board == "" || slices.ContainsFunc(g.Boards(b.Owner), func(e model.Entry) bool { return e.Board == b.Board })
		all := g.BoardFollowers(b.Owner, b.Board, model.All)
		on := g.BoardFollowers(b.Owner, b.Board, model.OnBoard)
		excluders := g.BoardFollowers(b.Owner, b.Board, model.Excluders)
		if !exists && len(all)+len(on)+len(excluders) > 0 {
			t.Errorf("%v does not exist: got followers %s and excluders %s, want none",
				b, formatEntries(slices.Concat(all, on)), formatEntries(excluders))
		}

		// Every explicit follower of the owner sees the board or excludes it. Followers of the board
		// come on top.
		if exists {
			explicit := g.Followers(b.Owner, model.Explicit)
			seen := map[string]bool{}
			for _, e := range slices.Concat(explicit, on) {
				seen[e.User] = true
			}
			if len(seen) != len(all)+len(excluders) {
				t.Errorf("%v: got followers %s and excluders %s, want the %d explicit followers of the owner %s and of the board %s",
					b, formatEntries(all), formatEntries(excluders), len(seen), formatEntries(explicit), formatEntries(on))
			}
		}

		for _, e := range on {
			entry := model.Entry{Owner: b.Owner, Board: b.Board, Kind: model.Board, Since: e.Since}
			if !slices.Contains(g.FollowedBoards(e.User), entry) {
				t.Errorf("%s follows %v, want it in the list of followed boards %s", e.User, b, formatEntries(g.FollowedBoards(e.User)))
			}
		}
		for _, e := range excluders {
			entry := model.Entry{Owner: b.Owner, Board: b.Board, Kind: model.Excluded, Since: e.Since}
			if !slices.Contains(g.ExcludedBoards(e.User), entry) {
				t.Errorf("%s excludes %v, want it in the list of excluded boards %s", e.User, b, formatEntries(g.ExcludedBoards(e.User)))
			}
		}
	}

	for _, a := range g.Users() {
		for _, b := range g.Users() {
			r := g.Relationship(a, b)
			separated := r.Blocking || r.BlockedBy || a == b
			if separated && (r.Following.Kind != model.None || r.FollowedBy.Kind != model.None) {
				t.Errorf("%s and %s are one user, or separated by a block: got %+v, want no follow", a, b, r)
			}
			onBoards := slices.ContainsFunc(g.FollowedBoards(a), func(e model.Entry) bool { return e.Owner == b })
			if onBoards && r.Following.Kind == model.None {
				t.Errorf("%s follows boards %s: got no follow of %s, want one", a, formatEntries(g.FollowedBoards(a)), b)
			}
			if !onBoards && r.Following.Kind == model.Implicit {
				t.Errorf("%s follows no board of %s: got %s, want no implicit follow", a, b, formatFollow(r.Following))
			}
		}
		c := g.UserCounts(a)
		if c.Followers != c.ExplicitFollowers+c.ImplicitFollowers {
			t.Errorf("%s: got %d followers, want the sum of explicit and implicit ones: %+v", a, c.Followers, c)
		}
		if c.Following != c.ExplicitFollowing+c.ImplicitFollowing {
			t.Errorf("%s: got %d followees, want the sum of explicit and implicit ones: %+v", a, c.Following, c)
		}
	}
}

// formatHistory returns a history as text, with one event per line.
func formatHistory(history []events.Event) string {
	var b strings.Builder
	for _, ev := range history {
		fmt.Fprintf(&b, "\n\t%d.%d %d", ev.Seq, ev.Slot, ev.Time-histories.Start)
		if ev.Backfill {
			fmt.Fprintf(&b, " %s#%d", ev.Source, ev.Offset)
		}
		fmt.Fprintf(&b, " %s %s", ev.User, ev.Kind)
		if ev.Peer != "" {
			fmt.Fprintf(&b, " of %s", ev.Peer)
		}
		if board := ev.Board; board != "" {
			fmt.Fprintf(&b, " board %s %q", board, ev.Title)
		}
		if len(ev.Items) > 0 {
			fmt.Fprintf(&b, " %v", ev.Items)
		}
		if ev.Pin+ev.Item != "" {
			fmt.Fprintf(&b, " pin %s item %s %s", ev.Pin, ev.Item, ev.RepinUser)
		}
	}
	return b.String()
}

// TestMentionedBoardsAndUsersAreListed checks that all boards and users that a history mentions are
// listed, each once and in order.
func TestMentionedBoardsAndUsersAreListed(t *testing.T) {
	g := model.New([]events.Event{
		{Kind: events.PinCreated, User: "bob", Board: "art", Pin: "p", Item: "p", RepinUser: "cid", RepinPin: "q"},
		{Kind: events.BoardFollowed, User: "7", Peer: "ann", Board: "9"},
	})
	want := []model.BoardID{{"7", ""}, {"ann", "9"}, {"ann", ""}, {"bob", ""}, {"bob", "art"}, {"cid", ""}}
	if got := g.BoardsMentioned(); !slices.Equal(got, want) {
		t.Errorf("got the boards %v, want %v", got, want)
	}
	if got, want := g.Users(), []string{"7", "ann", "bob", "cid"}; !slices.Equal(got, want) {
		t.Errorf("got the users %v, want %v", got, want)
	}
}
