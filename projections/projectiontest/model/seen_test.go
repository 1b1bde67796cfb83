package model_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// seenState is what one user has seen, updated event by event. The model, which reads the whole
// history for each answer, must give the same answers.
type seenState struct {
	// rejectsBackfills is set when a deletion or a clearing has made older backfills void.
	rejectsBackfills bool
	// plays has strings such as "2024-01 item".
	plays map[string]bool
	// liveServes are the items that live events served, newest first.
	liveServes []string
	// pastServes are the serves of backfills, newest first, each item once.
	pastServes []pastServe
}

type pastServe struct {
	time  events.Micros
	index int
	item  string
}

// apply applies an event of the user.
func (w *seenState) apply(ev events.Event) {
	switch {
	case ev.Kind == events.SeenCleared || ev.Kind == events.UserDeleted:
		*w = seenState{rejectsBackfills: true, plays: map[string]bool{}}
	case ev.Backfill && w.rejectsBackfills:
	case ev.Kind == events.Played:
		w.plays[ev.Time.Time().Format("2006-01 ")+ev.Item] = true
	case ev.Kind == events.Served && !ev.Backfill:
		for _, item := range slices.Backward(ev.Items) {
			w.liveServes = slices.Insert(slices.DeleteFunc(w.liveServes, func(s string) bool { return s == item }), 0, item)
		}
		w.liveServes = w.liveServes[:min(len(w.liveServes), model.ServedItems)]
	case ev.Kind == events.Served:
		for index, item := range ev.Items {
			w.pastServes = append(w.pastServes, pastServe{ev.Time, index, item})
		}
		slices.SortFunc(w.pastServes, func(x, y pastServe) int {
			return cmp.Or(cmp.Compare(y.time, x.time), cmp.Compare(x.index, y.index), events.CompareIDs(x.item, y.item))
		})
		found := map[string]bool{}
		w.pastServes = slices.DeleteFunc(w.pastServes, func(s pastServe) bool {
			isRepeated := found[s.item]
			found[s.item] = true
			return isRepeated
		})
		w.pastServes = w.pastServes[:min(len(w.pastServes), model.ServedItems)]
	}
}

// played returns the items that were played in the months of a window.
func (w *seenState) played(now events.Micros, window int) map[string]bool {
	items := map[string]bool{}
	for back := range window {
		t := now.Time()
		month := t.AddDate(0, -back, 1-t.Day()).Format("2006-01 ")
		for play := range w.plays {
			if item, ok := strings.CutPrefix(play, month); ok {
				items[item] = true
			}
		}
	}
	return items
}

// served returns the items that were served, live ones first.
func (w *seenState) served() []string {
	list := slices.Clone(w.liveServes)
	for _, s := range w.pastServes {
		if len(list) < model.ServedItems && !slices.Contains(list, s.item) {
			list = append(list, s.item)
		}
	}
	return list
}

// TestSeenAnswersEqualRunningState compares plays and serves with a state that is updated event by
// event.
func TestSeenAnswersEqualRunningState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Plays: true})
		users := map[string]*seenState{"stranger": {}}
		for _, user := range model.New(history).Users() {
			users[user] = &seenState{plays: map[string]bool{}}
		}

		n := 0
		for _, env := range histories.Envelopes(history) {
			for _, ev := range env.Events {
				if isCounted(history, n) && ev.User != "" {
					users[ev.User].apply(ev)
				}
				n++
			}

			g := model.New(history[:n])
			for user, w := range users {
				for window := range 8 {
					got := g.Played(user, env.Cursor.LastTime, window)
					want := w.played(env.Cursor.LastTime, window)
					if !maps.Equal(got, want) {
						t.Fatalf("played by %s in %d months: got %v, want %v after %s",
							user, window, got, want, formatHistory(history[:n]))
					}
				}
				if got, want := g.Served(user), w.served(); !slices.Equal(got, want) {
					t.Fatalf("served to %s: got %v, want %v after %s", user, got, want, formatHistory(history[:n]))
				}
			}
		}
	})
}

// expectReactionsAgree checks that the lists of an item's reactors and of the users' reactions have
// the same facts, and that counts are their lengths, without private kinds.
func expectReactionsAgree(t *rapid.T, g *model.Graph, item string) {
	counts := map[string]int{}
	for _, user := range g.Users() {
		for _, kind := range g.OwnReactions(user, item) {
			isOfItem := func(r model.Reaction) bool { return r.Item == item }
			index := slices.IndexFunc(g.Reactions(user, kind), isOfItem)
			if index < 0 {
				t.Fatalf("%s reacted to %s with %q, want it in the list %v", user, item, kind, g.Reactions(user, kind))
			}
			if !g.Reacted(user, item, kind) {
				t.Fatalf("%s reacted to %s with %q: got Reacted false, want true", user, item, kind)
			}

			// Only reactions of kinds that are not private are in the list of reactors.
			isPrivate := strings.HasPrefix(kind, "_")
			asReactor := model.Reactor{User: user, Since: g.Reactions(user, kind)[index].Since}
			if isListed := slices.Contains(g.Reactors(item, kind), asReactor); isListed == isPrivate {
				t.Fatalf("reactors of %s with %q: %s is listed: got %v, want %v in %v",
					item, kind, user, isListed, !isPrivate, g.Reactors(item, kind))
			}
			if !isPrivate {
				counts[kind]++
			}
		}
	}

	for _, c := range g.ReactionCounts(item) {
		if counts[c.Reaction] != c.Count {
			t.Fatalf("reactions to %s: got %d of kind %q, want %d", item, c.Count, c.Reaction, counts[c.Reaction])
		}
		delete(counts, c.Reaction)
	}
	if len(counts) > 0 {
		t.Fatalf("reactions to %s: got no count of the kinds %v, want one of each", item, counts)
	}
}

// TestCountsEqualRunningCounts compares counts with counters that are updated event by event, and
// lists by heat with the lists of pins.
func TestCountsEqualRunningCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plays := rapid.Bool().Draw(t, "plays")
		history := histories.History(t, histories.Options{Plays: plays, Feeds: !plays, Events: 40})

		// The counters.
		playsOfItem := map[string]int{}
		playsByUser := map[string]int{}
		repinsOfItem := map[string]int{}
		repinned := repinnedItems{}
		for n, ev := range history {
			g := model.New(history[:n+1])
			switch {
			case ev.Kind == events.UserDeleted:
				delete(playsByUser, ev.User)
				delete(repinned, ev.User)
			case !isCounted(history, n):
			case ev.Kind == events.Played:
				playsOfItem[ev.Item]++
				playsByUser[ev.User]++
			case ev.Kind == events.PinCreated && repinned.addIfNew(ev):
				repinsOfItem[ev.Item]++
			}

			for _, item := range append(g.Items(), "nothing") {
				want := model.ItemCounts{Plays: playsOfItem[item], Repins: repinsOfItem[item]}
				for _, user := range g.Users() {
					if g.Reacted(user, item, "") {
						want.Likes++
					}
				}
				if got := g.ItemCounts(item); got != want {
					t.Fatalf("counts of %s: got %+v, want %+v after %s", item, got, want, formatHistory(history[:n+1]))
				}
				expectReactionsAgree(t, g, item)
			}
			for _, user := range append(g.Users(), "stranger") {
				if got := g.PlaysBy(user); got != playsByUser[user] {
					t.Fatalf("plays by %s: got %d, want %d after %s", user, got, playsByUser[user], formatHistory(history[:n+1]))
				}
			}
			expectTopsAgree(t, g, model.Heats(history[:n+1], momentHeat))
		}
	})
}

// expectTopsAgree checks that lists by heat have the shown items with their scores, in order.
func expectTopsAgree(t *rapid.T, g *model.Graph, heats map[string]int64) {
	check := func(s model.Scope, shown []model.Pin) {
		t.Helper()
		got := g.Top(s, heats)
		items := map[string]int64{}
		for i, h := range got {
			items[h.Item] = h.Score
			if i == 0 {
				continue
			}
			previous := got[i-1]
			if previous.Score < h.Score || previous.Score == h.Score && events.CompareIDs(previous.Item, h.Item) >= 0 {
				t.Fatalf("%+v: got a list that is not sorted by heat and then by id: %+v", s, got)
			}
		}

		want := heats
		if s.Owner != "" {
			want = map[string]int64{}
			for _, p := range shown {
				if score, ok := heats[p.Item]; ok {
					want[p.Item] = score
				}
			}
		}
		if !maps.Equal(items, want) {
			t.Fatalf("%+v: got %+v, want the items and scores %v", s, got, want)
		}
	}

	check(model.Scope{}, nil)
	for _, user := range append(g.Users(), "stranger") {
		check(model.Scope{Owner: user}, g.Pins(user))
	}
	for _, b := range g.BoardsMentioned() {
		check(model.Scope{Owner: b.Owner, Board: &b.Board}, g.BoardPins(b.Owner, b.Board))
	}
}
