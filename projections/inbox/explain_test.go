package inbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// pinName names a pin that a history mentions, whether the pin exists or not.
type pinName struct{ owner, id string }

// pinsMentioned returns the pins that a history mentions, and one that it does not.
func pinsMentioned(history []events.Event) (all []pinName) {
	for i := range history {
		p := pinName{history[i].User, history[i].Pin}
		if p.id != "" && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return append(all, pinName{"stranger", "p1"})
}

// toAbsenceReasons converts reasons of the model to reasons of the feed.
func toAbsenceReasons(m model.Absence) (reasons inbox.AbsenceReasons) {
	for _, r := range []struct {
		holds  bool
		reason inbox.AbsenceReasons
	}{
		{m.NotLiving, inbox.AbsenceNotLiving},
		{m.Own, inbox.AbsenceOwnPin},
		{m.NotFollowed, inbox.AbsenceNotFollowed},
		{m.Excluded, inbox.AbsenceBoardExcluded},
		{m.Muted, inbox.AbsenceOwnerMuted},
		{m.RepinsHidden, inbox.AbsenceRepinsHidden},
		{m.NotSelected, inbox.AbsenceNotSelected},
		{m.Blocked, inbox.AbsenceBlocked},
		{m.ItemHidden, inbox.AbsenceHidden},
		{m.Origin.Muted, inbox.AbsenceRepinOfMuted},
		{m.Origin.Blocked, inbox.AbsenceRepinOfBlocked},
		{m.Origin.Deleted, inbox.AbsenceRepinOfDeleted},
	} {
		if r.holds {
			reasons |= r.reason
		}
	}
	return reasons
}

// TestExplainAgreesWithModelAndPages checks the explanation of every pin of a history, for every
// reader and any options. The explanation must give the reasons of the model, and the position of
// the pin in the feed as its pages show it. A pin is in the feed exactly if there is no reason (I8).
func TestExplainAgreesWithModelAndPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := smallSettings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep")
		s := openMem(t, set)
		defer s.Close()

		folded := 0
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			folded += len(env.Events)
			if folded == len(history) || rapid.IntRange(0, 9).Draw(t, "ask") == 0 {
				checkExplanations(t, s, history[:folded])
			}
		}
	})
}

// checkExplanations asks about every pin for every reader.
func checkExplanations(t *rapid.T, s *store.Store, history []events.Event) {
	v := mustView(t, s)
	defer v.Close()
	want := model.New(history).At(v.Cursor().LastTime)
	q := inbox.CachedQuery(v)

	// A feed with any options, in any order.
	hides := rapid.Bool().Draw(t, "hides")
	hidden := func(item string) bool { return hides && item[0]%2 == 1 }
	f := inbox.Feed{
		Only:       rapid.SampledFrom([]events.FollowSettings{0, events.SettingNotify, events.SettingFavorite}).Draw(t, "only"),
		IncludeOwn: rapid.Bool().Draw(t, "own"), OnePerItem: rapid.Bool().Draw(t, "one per item"),
		HiddenItems: func(items []string) ([]bool, error) {
			hide := make([]bool, len(items))
			for i, item := range items {
				hide[i] = hidden(item)
			}
			return hide, nil
		},
	}
	if rapid.Bool().Draw(t, "by heat") {
		f = rankByHeat(f, rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "ranked"), v.Cursor(), history)
	}

	for _, f.Reader = range append(want.Users(), "stranger") {
		shown := mustReadPages(t, q, f, 3)
		for _, name := range pinsMentioned(history) {
			explanation, err := q.Explain(context.Background(), f, name.owner, name.id)
			if err != nil {
				t.Fatalf("explain %v: %v", name, err)
			}

			// The reasons are those of the model, and those that the pages decide.
			absence := want.Absence(f.Reader, name.owner, name.id, f.IncludeOwn)
			if f.Only != 0 {
				absence = want.AbsenceWith(f.Reader, name.owner, name.id, f.IncludeOwn, f.Only)
			}
			reasons := toAbsenceReasons(absence)
			if explanation.Pin != nil && hidden(explanation.Pin.Item) {
				reasons |= inbox.AbsenceItemHidden
			}
			const reasonsOfPages = inbox.AbsenceNotRanked | inbox.AbsenceItemShown
			if got := explanation.Absence &^ reasonsOfPages; got != reasons {
				t.Fatalf("%v for %+v: got reasons %b, want %b\nafter\n%s", name, f, explanation.Absence, reasons, formatHistory(history))
			}
			if reasons != 0 && explanation.Absence != reasons {
				t.Fatalf("%v for %+v: got reasons %b, want only %b", name, f, explanation.Absence, reasons)
			}
			if explanation.Absence&inbox.AbsenceNotRanked != 0 && f.Order == inbox.Newest {
				t.Fatalf("%v for %+v: got reasons %b, want no reason of a ranking", name, f, explanation.Absence)
			}
			if explanation.Absence&inbox.AbsenceItemShown != 0 && !f.OnePerItem {
				t.Fatalf("%v for %+v: got reasons %b, want no reason of an item that was shown", name, f, explanation.Absence)
			}

			// The pin has a rank and a delivery exactly if the pages show it.
			index := slices.IndexFunc(shown, func(p inbox.Pin) bool { return p.Owner == name.owner && p.ID == name.id })
			if explanation.Rank != index+1 {
				t.Fatalf("%v for %+v: got %+v, want rank %d in %+v\nafter\n%s",
					name, f, explanation, index+1, shown, formatHistory(history))
			}
			isShown := explanation.Rank > 0
			if isShown != (explanation.Absence == 0) || isShown != (explanation.Delivery != inbox.DeliveryNone) {
				t.Fatalf("%v for %+v: got %+v, want a rank exactly if there is no reason and a delivery\nafter\n%s",
					name, f, explanation, formatHistory(history))
			}
			if index >= 0 && explanation.Pin.Score != shown[index].Score {
				t.Fatalf("%v for %+v: got score %d, want %d", name, f, explanation.Pin.Score, shown[index].Score)
			}
		}
	}
}

// TestExplainGivesEachReason checks each reason, alone and together with others.
func TestExplainGivesEachReason(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)

	// The relations of ann.
	l.add(
		newFollow("ann", "bob"),
		newBoardEvent(events.BoardUnfollowed, "ann", "bob", "trips"),
		newBoardEvent(events.BoardFollowed, "ann", "cid", "cats"),
		newFollow("ann", "dan"),
		events.Event{Kind: events.UserMuted, User: "ann", Peer: "dan"},
		newBoardEvent(events.BoardUnfollowed, "ann", "dan", "trips"),
		events.Event{Kind: events.UserBlocked, User: "eve", Peer: "ann"},
		events.Event{Kind: events.UserMuted, User: "ann", Peer: "eve"},
		newFollow("ann", "gil"),
		events.Event{Kind: events.FollowSettingsSet, User: "ann", Peer: "gil", Settings: events.SettingHideRepins},
		events.Event{Kind: events.FollowSettingsSet, User: "ann", Peer: "hal", Settings: events.SettingHideRepins},
	)

	// The pins of others, and re-pins of pins of several owners.
	l.add(newPin("cid", "hid"), newPinOn("cid", "cats", "hid-too"))
	l.add(newPin("bob", "ended"), events.Event{Kind: events.PinDeleted, User: "bob", Pin: "ended"})
	l.add(newPin("gil", "own"), newRepin("gil", "again"), newRepin("hal", "again"))
	repinsOf := func(pin, of string) events.Event {
		return events.Event{Kind: events.PinCreated, User: "ivy", Pin: pin, Item: pin, RepinUser: of, RepinPin: "p"}
	}
	l.add(
		newFollow("ann", "ivy"),
		repinsOf("of-dan", "dan"), repinsOf("of-eve", "eve"), repinsOf("of-jan", "jan"),
		repinsOf("of-ivy", "ivy"), repinsOf("of-ann", "ann"),
		events.Event{Kind: events.UserDeleted, User: "jan"},
	)
	l.add(
		events.Event{Kind: events.PinCreated, User: "bob", Pin: "a", Item: "i"},
		newPin("bob", "b"), newPinOn("bob", "trips", "t"), newPin("dan", "d"), newPinOn("dan", "trips", "t"),
		newPin("eve", "e"), newPin("ann", "own"),
		events.Event{Kind: events.PinCreated, User: "bob", Pin: "c", Item: "i"},
	)

	// Ask for feeds with and without each item once, and with one ranked pin.
	v := mustView(t, s)
	defer v.Close()
	f := inbox.Feed{Reader: "ann", HiddenItems: hideItems(t, func(item string) bool {
		return item == "hid" || item == "hid-too"
	})}
	once := f
	once.OnePerItem = true
	ranked := rankByHeat(f, 1, l.cursor, l.events)
	rankedOnce := rankByHeat(once, 1, l.cursor, l.events)
	for _, c := range []struct {
		feed      inbox.Feed
		owner, id string
		want      inbox.AbsenceReasons
	}{
		{f, "bob", "b", 0},
		{f, "bob", "none", inbox.AbsenceNotLiving},
		{f, "bob", "ended", inbox.AbsenceNotLiving},
		{f, "cid", "none", inbox.AbsenceNotLiving},
		{f, "fay", "none", inbox.AbsenceNotLiving | inbox.AbsenceNotFollowed},
		{f, "eve", "none", inbox.AbsenceNotLiving | inbox.AbsenceNotFollowed | inbox.AbsenceOwnerMuted | inbox.AbsenceBlocked},
		{f, "ann", "own", inbox.AbsenceOwnPin},
		{f, "ann", "none", inbox.AbsenceNotLiving | inbox.AbsenceOwnPin},
		{f, "cid", "hid", inbox.AbsenceNotFollowed | inbox.AbsenceItemHidden},
		{f, "cid", "hid-too", inbox.AbsenceItemHidden},
		{f, "bob", "t", inbox.AbsenceBoardExcluded},
		{f, "dan", "d", inbox.AbsenceOwnerMuted},
		{f, "dan", "t", inbox.AbsenceOwnerMuted | inbox.AbsenceBoardExcluded},
		{f, "eve", "e", inbox.AbsenceNotFollowed | inbox.AbsenceOwnerMuted | inbox.AbsenceBlocked},
		{f, "gil", "own", 0},
		{f, "gil", "none", inbox.AbsenceNotLiving},
		{f, "gil", "again", inbox.AbsenceRepinsHidden},
		{f, "hal", "again", inbox.AbsenceNotFollowed},
		{f, "ivy", "of-dan", inbox.AbsenceRepinOfMuted},
		{f, "ivy", "of-eve", inbox.AbsenceRepinOfMuted | inbox.AbsenceRepinOfBlocked},
		{f, "ivy", "of-jan", inbox.AbsenceRepinOfDeleted},
		{f, "ivy", "of-ivy", 0},
		{f, "ivy", "of-ann", 0},
		{once, "bob", "c", 0},
		{once, "bob", "a", inbox.AbsenceItemShown},
		{ranked, "bob", "c", 0},
		{ranked, "bob", "b", inbox.AbsenceNotRanked},
		{rankedOnce, "bob", "b", inbox.AbsenceNotRanked},
		{rankedOnce, "bob", "a", inbox.AbsenceNotRanked | inbox.AbsenceItemShown},
		{rankByHeat(once, 3, l.cursor, l.events), "bob", "a", inbox.AbsenceItemShown},
	} {
		explanation, err := inbox.CachedQuery(v).Explain(context.Background(), c.feed, c.owner, c.id)
		if err != nil {
			t.Errorf("%s/%s: %v", c.owner, c.id, err)
			continue
		}
		if explanation.Absence != c.want {
			t.Errorf("%s/%s: got reasons %b, want %b", c.owner, c.id, explanation.Absence, c.want)
		}
	}
}

// TestExplainTellsPushedFromPulled checks that an explanation says whether a pin is pushed to
// inboxes, or an outbox is read for it.
func TestExplainTellsPushedFromPulled(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Threshold = 1
	s := openMem(t, set)
	defer s.Close()
	l := newLogBuilder(t, s)

	// Two more followers in the partition of ann put star, and the board of eve, above the
	// threshold.
	crowd := usersNear("ann", 2)
	l.add(newFollow("ann", "bob"), newFollow("ann", "star"), newFollow(crowd[0], "star"), newFollow(crowd[1], "star"))
	for _, reader := range append(crowd, "ann") {
		l.add(newBoardEvent(events.BoardFollowed, reader, "eve", "art"))
	}
	l.add(newPin("bob", "p"), newPin("star", "p"), newPinOn("eve", "art", "p"), newPin("ann", "own"))

	v := mustView(t, s)
	defer v.Close()
	q := inbox.CachedQuery(v)
	for _, c := range []struct {
		owner, id string
		want      inbox.Delivery
	}{
		{"bob", "p", inbox.DeliveryPushed},
		{"star", "p", inbox.DeliveryPulled},
		{"eve", "p", inbox.DeliveryPulled},
		{"ann", "own", inbox.DeliveryPulled},
		{"bob", "none", inbox.DeliveryNone},
	} {
		explanation, err := q.Explain(context.Background(), inbox.Feed{Reader: "ann", IncludeOwn: true}, c.owner, c.id)
		if err != nil {
			t.Errorf("%s/%s: %v", c.owner, c.id, err)
			continue
		}
		if explanation.Delivery != c.want {
			t.Errorf("%s/%s: got %+v, want delivery %d", c.owner, c.id, explanation, c.want)
		}
	}
}

// TestExplainFailsIfHidingFails checks that Explain fails if it is not known which items are hidden.
func TestExplainFailsIfHidingFails(t *testing.T) {
	s, l := newFeedOf60Pins(t)
	v := mustView(t, s)
	defer v.Close()
	hideErr := errors.New("cannot say what is hidden")
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		f := l.inOrder(order, inbox.Feed{Reader: "ann", HiddenItems: func([]string) ([]bool, error) { return nil, hideErr }})
		if _, err := inbox.Query(v).Explain(context.Background(), f, "bob", "p00"); !errors.Is(err, hideErr) {
			t.Errorf("order %d: got error %v, want %v", order, err, hideErr)
		}
	}
}
