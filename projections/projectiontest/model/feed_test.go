package model_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/heat"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// momentHeat are settings for generated histories, most of which last some seconds.
var momentHeat = model.HeatSettings{
	HalfLife: 1_000_000, Play: 1, Repin: 8, Reactions: map[string]uint32{"": 4, "save": 3},
}

// TestFeedAnswersAgreeAtEveryPosition demands that the answers about pins and feeds agree with each
// other, and that the score of an item falls only if it is set.
func TestFeedAnswersAgreeAtEveryPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Feeds: true, Events: 40})
		before := map[string]int64{}
		for n := range history {
			g := model.New(history[:n+1])
			heats := model.Heats(history[:n+1], momentHeat)
			expectPinsAgree(t, g)
			for _, reader := range append(g.Users(), "stranger") {
				expectFeedAgrees(t, g, reader, heats)
			}

			// A score falls only if it is set.
			for item, score := range before {
				scored := history[n].Kind == events.ItemScored && history[n].Item == item
				now, ok := heats[item]
				if !ok {
					t.Errorf("%s has no score after %d, want one", item, score)
				}
				if now < score && !scored {
					t.Errorf("the score of %s falls from %d to %d, want no less", item, score, now)
				}
			}
			if t.Failed() {
				t.Fatalf("after %s", formatHistory(history[:n+1]))
			}
			before = heats
		}
	})
}

// expectPinsAgree compares the lists of all pins and of the pins of boards, and checks their order.
func expectPinsAgree(t *rapid.T, g *model.Graph) {
	for _, owner := range g.Users() {
		pins := g.Pins(owner)
		var byBoard int
		for _, b := range g.BoardsMentioned() {
			if b.Owner == owner {
				byBoard += len(g.BoardPins(owner, b.Board))
			}
		}
		if byBoard != len(pins) {
			t.Errorf("%s has %d pins on all boards, want %d as in the list of pins", owner, byBoard, len(pins))
		}

		for i, p := range pins {
			isBoard := func(e model.Entry) bool { return e.Board == p.Board }
			if p.Board != "" && !slices.ContainsFunc(g.Boards(owner), isBoard) {
				t.Errorf("%+v is on a board that does not exist, want one of %s", p, owner)
			}
			if p.Owner != owner || p.ID == "" || p.Item == "" || p.Created == 0 {
				t.Errorf("got the pin %+v, want one of %s with an id, an item and a time", p, owner)
			}
			if i > 0 && (pins[i-1].Created < p.Created ||
				pins[i-1].Created == p.Created && events.CompareIDs(pins[i-1].ID, p.ID) >= 0) {
				t.Errorf("pins of %s: %+v is before %+v, want the newest first, and then the lowest id", owner, pins[i-1], p)
			}
		}
	}
}

// expectFeedAgrees compares the feed of a reader with relations and lists of pins, and with the
// list by heat.
func expectFeedAgrees(t *rapid.T, g *model.Graph, reader string, heats map[string]int64) {
	feed := g.Feed(reader, false)
	own := g.Feed(reader, true)

	// A pin is in the feed if its board appears for the reader, and the other way round.
	var want []model.Pin
	for _, owner := range g.Users() {
		for _, p := range g.Pins(owner) {
			f := g.Board(reader, owner, p.Board)
			r := g.Relationship(reader, owner)
			isFollowed := f.Kind == model.Board || f.Kind == model.Explicit
			isHiddenRepin := p.Repin && r.Settings.Has(events.SettingHideRepins)
			if isFollowed && !r.Muting && !isHiddenRepin && showsOrigin(g, reader, p) {
				want = append(want, p)
			}
		}
	}
	var ownShown []model.Pin
	for _, p := range g.Pins(reader) {
		if showsOrigin(g, reader, p) {
			ownShown = append(ownShown, p)
		}
	}

	// Compare the feeds without their order.
	byName := func(x, y model.Pin) int {
		if c := events.CompareIDs(x.Owner, y.Owner); c != 0 {
			return c
		}
		return events.CompareIDs(x.ID, y.ID)
	}
	sorted := func(list []model.Pin) []model.Pin { return slices.SortedFunc(slices.Values(list), byName) }
	if !reflect.DeepEqual(sorted(feed), sorted(want)) {
		t.Errorf("%s: got the feed %s, want %s", reader, formatPins(feed), formatPins(want))
	}
	wantOwn := sorted(slices.Concat(feed, ownShown))
	if !reflect.DeepEqual(sorted(own), wantOwn) {
		t.Errorf("%s: got the feed with own pins %s, want %s", reader, formatPins(own), formatPins(wantOwn))
	}

	// The list by heat has the newest pins of the feed, the hottest first, and pins without a score
	// last.
	ranked := len(feed)/2 + 1
	score := func(item string) (int64, bool) { score, ok := heats[item]; return score, ok }
	trending := g.TrendingFeed(reader, false, ranked, score)
	if newest := feed[:min(len(feed), ranked)]; !reflect.DeepEqual(sorted(trending), sorted(newest)) {
		t.Errorf("%s: got by heat %s, want the newest %d pins %s", reader, formatPins(trending), ranked, formatPins(newest))
	}
	for i := 1; i < len(trending); i++ {
		previous, previousHasHeat := heats[trending[i-1].Item]
		score, hasHeat := heats[trending[i].Item]
		isHotter := hasHeat && (!previousHasHeat || previous < score)
		isEqual := previousHasHeat == hasHeat && previous == score
		if isHotter || isEqual && trending[i-1].Created < trending[i].Created {
			t.Errorf("%s: got by heat %s, want the hottest first, then the newest: %v", reader, formatPins(trending), heats)
		}
	}

	items := map[string]bool{}
	for _, p := range trending {
		items[p.Item] = true
	}
	if once := model.OnePerItem(trending); len(once) != len(items) {
		t.Errorf("%s: got one pin each of %d items: %s, want %d items", reader, len(once), formatPins(once), len(items))
	}
}

// showsOrigin reports whether a reader hides neither the item of a pin nor, for a re-pin, the owner
// of the original pin.
func showsOrigin(g *model.Graph, reader string, p model.Pin) bool {
	if slices.ContainsFunc(g.Hidden(reader), func(h model.HiddenItem) bool { return h.Item == p.Item }) {
		return false
	}
	if !p.Repin || p.RepinOwner == p.Owner {
		return true
	}
	r := g.Relationship(reader, p.RepinOwner)
	return p.RepinOwner != "" && !r.Muting && !r.Blocking && !r.BlockedBy
}

// TestHeatsEqualRunningSums compares heats, which look only at single pins and likes, with sums
// that are added up event by event. What an event adds depends on the whole model of the history
// before it.
func TestHeatsEqualRunningSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Feeds: true, Plays: rapid.Bool().Draw(t, "plays")})
		want := map[string]int64{}
		sums := map[string]heat.Sum{}
		scored := map[string]bool{}
		backfilled := map[string]bool{}
		repinned := repinnedItems{}
		for n, ev := range history {
			if !isCounted(history, n) {
				continue
			}

			// What the event adds to the heat of its item.
			var weight uint32
			switch ev.Kind {
			case events.Played:
				weight = momentHeat.Play
			case events.Reacted:
				key := ev.User + " " + ev.Item + " " + ev.Reaction
				repeated := model.New(history[:n]).Reacted(ev.User, ev.Item, ev.Reaction)
				if ev.Backfill {
					repeated = backfilled[key] ||
						model.New(liveEvents(history[:n])).Reacted(ev.User, ev.Item, ev.Reaction)
				}
				if !repeated {
					weight = momentHeat.Reactions[ev.Reaction]
				}
				backfilled[key] = backfilled[key] || ev.Backfill
			case events.PinCreated:
				if repinned.addIfNew(ev) {
					weight = momentHeat.Repin
				}
			case events.UserDeleted:
				delete(repinned, ev.User)
			case events.ItemScored:
				scored[ev.Item] = true
				want[ev.Item] = ev.Score
			}
			if weight == 0 {
				continue
			}

			// Until it is set, the score follows the sum in steps.
			sums[ev.Item] = sums[ev.Item].Add(weight, int64(ev.Time), int64(momentHeat.HalfLife))
			score, ok := want[ev.Item]
			if now := sums[ev.Item].Score(); !scored[ev.Item] && (!ok || now-score >= 1<<14) {
				want[ev.Item] = now
			}
		}

		if got := model.Heats(history, momentHeat); !maps.Equal(got, want) {
			t.Fatalf("got heats %v, want %v after %s", got, want, formatHistory(history))
		}
		for _, item := range []string{"i", "p1", "nothing"} {
			got, ok := model.Heat(history, item, momentHeat)
			if score, exists := want[item]; ok != exists || got != score {
				t.Fatalf("heat of %s: got %d, %v, want %d, %v", item, got, ok, score, exists)
			}
		}
	})
}

// repinnedItems has, for each owner, the pins and the items that they re-pinned.
type repinnedItems map[string]map[[2]string]bool

// addIfNew adds what an accepted pin_created event re-pins, and reports whether it is a re-pin that
// counts. Whether its board was deleted does not matter.
func (r repinnedItems) addIfNew(ev events.Event) bool {
	key := [2]string{ev.Pin, ev.Item}
	if ev.RepinUser == "" || r[ev.User][key] {
		return false
	}
	if r[ev.User] == nil {
		r[ev.User] = map[[2]string]bool{}
	}
	r[ev.User][key] = true
	return true
}

// isCounted reports whether the n-th event of the history is live, or a backfill that is accepted.
// Live plays and likes always count, and so do live pins where they change something.
func isCounted(history []events.Event, n int) bool {
	ev := history[n]
	if !ev.Backfill {
		return true
	}

	for _, old := range history[:n] {
		switch {
		case old.Backfill && old.Kind == ev.Kind && old.Source == ev.Source && old.Offset >= ev.Offset,
			old.Kind == events.BackfillClosed && (old.Source == "" || old.Source == ev.Source),
			old.Kind == events.UserDeleted && old.User == ev.User:
			return false
		}
	}
	return true
}

// liveEvents returns the events of a history that are not backfilled.
func liveEvents(history []events.Event) []events.Event {
	return slices.DeleteFunc(slices.Clone(history), func(ev events.Event) bool { return ev.Backfill })
}
