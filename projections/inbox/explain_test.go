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

// pinName names a pin that a history mentions, living or not.
type pinName struct{ owner, id string }

func pinsNamed(history []events.Event) (all []pinName) {
	for i := range history {
		if p := (pinName{history[i].User, history[i].Pin}); p.id != "" && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return append(all, pinName{"stranger", "p1"})
}

// absenceOf says in the words of the store what the model says.
func absenceOf(m model.Absence) (a inbox.AbsenceReasons) {
	for _, r := range []struct {
		holds bool
		is    inbox.AbsenceReasons
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
			a |= r.is
		}
	}
	return a
}

// TestExplainAgreesWithModelAndPages: of every pin of a history, for every reader and any options,
// the explanation gives the reasons of the model, and names the position of the pin in the feed as
// its pages show it. A pin is in the feed exactly if there is no reason (I8).
func TestExplainAgreesWithModelAndPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := settings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep")
		s := openMem(t, set)
		defer s.Close()
		folded := 0
		for _, env := range histories.Envelopes(history) {
			fold(t, s, env)
			if folded += len(env.Events); folded == len(history) || rapid.IntRange(0, 9).Draw(t, "ask") == 0 {
				explainAll(t, s, history[:folded])
			}
		}
	})
}

// explainAll asks about every pin for every reader.
func explainAll(t *rapid.T, s *store.Store, history []events.Event) {
	v := view(t, s)
	defer v.Close()
	want := model.New(history).At(v.Cursor().LastTime)
	q := inbox.CachedQuery(v)
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
		f = byHeat(f, rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "ranked"), v.Cursor(), history)
	}
	for _, f.Reader = range append(want.Users(), "stranger") {
		shown := pages(t, q, f, 3)
		for _, name := range pinsNamed(history) {
			x, err := q.Explain(context.Background(), f, name.owner, name.id)
			if err != nil {
				t.Fatalf("why %v: %v", name, err)
			}
			absence := want.Absence(f.Reader, name.owner, name.id, f.IncludeOwn)
			if f.Only != 0 {
				absence = want.AbsenceWith(f.Reader, name.owner, name.id, f.IncludeOwn, f.Only)
			}
			reasons := absenceOf(absence)
			if x.Pin != nil && hidden(x.Pin.Item) {
				reasons |= inbox.AbsenceItemHidden
			}
			if got := x.Absence &^ (inbox.AbsenceNotRanked | inbox.AbsenceItemShown); got != reasons {
				t.Fatalf("%v for %+v: reasons %b, want %b\nafter\n%s", name, f, x.Absence, reasons, tell(history))
			}
			if reasons != 0 && x.Absence != reasons ||
				x.Absence&inbox.AbsenceNotRanked != 0 && f.Order == inbox.Newest || x.Absence&inbox.AbsenceItemShown != 0 && !f.OnePerItem {
				t.Fatalf("%v for %+v: reasons %b that were not to be asked for", name, f, x.Absence)
			}
			at := slices.IndexFunc(shown, func(p inbox.Pin) bool { return p.Owner == name.owner && p.ID == name.id })
			if x.Rank != at+1 || (x.Rank > 0) != (x.Absence == 0) || (x.Rank > 0) != (x.Delivery != inbox.DeliveryNone) {
				t.Fatalf("%v for %+v: %+v, but entry %d of %+v\nafter\n%s", name, f, x, at+1, shown, tell(history))
			}
			if at >= 0 && x.Pin.Score != shown[at].Score {
				t.Fatalf("%v for %+v: score %d, want %d", name, f, x.Pin.Score, shown[at].Score)
			}
		}
	}
}

// TestExplainGivesEachReason: each reason, alone and with others.
func TestExplainGivesEachReason(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLog(t, s)
	l.add(
		follows("ann", "bob"), onBoard(events.BoardUnfollowed, "ann", "bob", "trips"), onBoard(events.BoardFollowed, "ann", "cid", "cats"),
		follows("ann", "dan"), events.Event{Kind: events.UserMuted, User: "ann", Peer: "dan"},
		onBoard(events.BoardUnfollowed, "ann", "dan", "trips"), events.Event{Kind: events.UserBlocked, User: "eve", Peer: "ann"},
		events.Event{Kind: events.UserMuted, User: "ann", Peer: "eve"}, follows("ann", "gil"),
		events.Event{Kind: events.FollowSettingsSet, User: "ann", Peer: "gil", Settings: events.SettingHideRepins},
		events.Event{Kind: events.FollowSettingsSet, User: "ann", Peer: "hal", Settings: events.SettingHideRepins},
	)
	l.add(posts("cid", "hid"), postsOn("cid", "cats", "hid-too"))
	l.add(posts("bob", "ended"), events.Event{Kind: events.PinDeleted, User: "bob", Pin: "ended"})
	l.add(posts("gil", "own"), repins("gil", "again"), repins("hal", "again"))
	repinsOf := func(pin, of string) events.Event {
		return events.Event{Kind: events.PinCreated, User: "ivy", Pin: pin, Item: pin, RepinUser: of, RepinPin: "p"}
	}
	l.add(
		follows("ann", "ivy"), repinsOf("of-dan", "dan"), repinsOf("of-eve", "eve"), repinsOf("of-jan", "jan"), repinsOf("of-ivy", "ivy"),
		repinsOf("of-ann", "ann"), events.Event{Kind: events.UserDeleted, User: "jan"},
	)
	l.add(
		events.Event{Kind: events.PinCreated, User: "bob", Pin: "a", Item: "i"}, posts("bob", "b"), postsOn("bob", "trips", "t"),
		posts("dan", "d"), postsOn("dan", "trips", "t"), posts("eve", "e"), posts("ann", "own"),
		events.Event{Kind: events.PinCreated, User: "bob", Pin: "c", Item: "i"},
	)
	v := view(t, s)
	defer v.Close()
	f := inbox.Feed{Reader: "ann", HiddenItems: hiding(t, func(item string) bool { return item == "hid" || item == "hid-too" })}
	once := f
	once.OnePerItem = true
	ranked, both := byHeat(f, 1, l.cursor, l.told), byHeat(once, 1, l.cursor, l.told)
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
		{both, "bob", "b", inbox.AbsenceNotRanked},
		{both, "bob", "a", inbox.AbsenceNotRanked | inbox.AbsenceItemShown},
		{byHeat(once, 3, l.cursor, l.told), "bob", "a", inbox.AbsenceItemShown},
	} {
		x, err := inbox.CachedQuery(v).Explain(context.Background(), c.feed, c.owner, c.id)
		if err != nil || x.Absence != c.want {
			t.Errorf("%s/%s: %b, want %b: %v", c.owner, c.id, x.Absence, c.want, err)
		}
	}
}

// TestExplainTellsPushedFromPulled: an explanation says whether a pin is pushed to inboxes, or an
// outbox is read for it.
func TestExplainTellsPushedFromPulled(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Threshold = 1
	s := openMem(t, set)
	defer s.Close()
	l := newLog(t, s)
	crowd := near("ann", 2)
	l.add(follows("ann", "bob"), follows("ann", "star"), follows(crowd[0], "star"), follows(crowd[1], "star"))
	for _, reader := range append(crowd, "ann") {
		l.add(onBoard(events.BoardFollowed, reader, "eve", "art"))
	}
	l.add(posts("bob", "p"), posts("star", "p"), postsOn("eve", "art", "p"), posts("ann", "own"))
	v := view(t, s)
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
		x, err := q.Explain(context.Background(), inbox.Feed{Reader: "ann", IncludeOwn: true}, c.owner, c.id)
		if err != nil || x.Delivery != c.want {
			t.Errorf("%s/%s: %+v: %v, want %d", c.owner, c.id, x, err, c.want)
		}
	}
}

// TestExplainFailsIfHidingFails: an explanation says nothing if it is not known what is hidden.
func TestExplainFailsIfHidingFails(t *testing.T) {
	s, l := shelf(t)
	v := view(t, s)
	defer v.Close()
	broken := errors.New("broken")
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		f := l.in(order, inbox.Feed{Reader: "ann", HiddenItems: func([]string) ([]bool, error) { return nil, broken }})
		if _, err := inbox.Query(v).Explain(context.Background(), f, "bob", "p00"); !errors.Is(err, broken) {
			t.Errorf("order %d: %v", order, err)
		}
	}
}
