package gateway

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func hidden(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_ItemHidden{ItemHidden: &skeinv1.ItemHidden{UserId: user, ItemId: item}}}
}

func shownAgain(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_ItemShown{ItemShown: &skeinv1.ItemShown{UserId: user, ItemId: item}}}
}

// hiddenItems returns the whole list of a user's hidden items, which it reads in pages of two, and
// checks that the total is the length of the list.
func (w *world) hiddenItems(user, at string) (items []string) {
	w.t.Helper()
	for token := ""; ; {
		page := ask(w, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: user, PageSize: 2, PageToken: token, AtLeast: at})
		for _, e := range page.GetEntries() {
			items = append(items, e.GetItemId())
			if e.GetHideTime() == nil {
				w.t.Errorf("hidden item %s: got no hide time, want one", e.GetItemId())
			}
		}

		token = page.GetNextPageToken()
		if token == "" {
			if int(page.GetTotalSize()) != len(items) {
				w.t.Errorf("hidden items: got a total of %d, want %d as in the list", page.GetTotalSize(), len(items))
			}
			return items
		}
	}
}

// TestHiddenItemIsInNoFeed checks that an item that a user hides is in no feed and no count of this
// user, that it counts as seen, and that its absence is explained. Other users still see it.
func TestHiddenItemIsInNoFeed(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		follow("ann", "bob"), follow("eve", "bob"), showing("bob", "1", "i"), showing("bob", "2", "j"), showing("ann", "3", "i"),
		hidden("ann", "k"), hidden("ann", "l"), hidden("ann", "i"), hidden("ann", "k"),
	)
	pinsOfFeed := func(reader string, options *skeinv1.ReadFeedRequest) (pins []string) {
		options.ReaderId = reader
		options.AtLeast = at
		options.IncludeOwn = true
		for _, e := range w.readFeed(options).GetEntries() {
			pins = append(pins, e.GetPinId())
		}
		return pins
	}
	unseenIndexes := func(user string) []uint32 {
		return ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: user, ItemIds: []string{"i", "j", "k"}, AtLeast: at}).GetUnseenIndexes()
	}

	for name, options := range map[string]*skeinv1.ReadFeedRequest{
		"newest": {}, "by heat": {Order: byHeat}, "hiding seen": {HideSeen: true}, "one per item": {OnePerItem: true},
	} {
		if diff := cmp.Diff([]string{"2"}, pinsOfFeed("ann", options)); diff != "" {
			t.Errorf("%s: feed of ann (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"2", "1"}, pinsOfFeed("eve", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed of eve, who hides nothing (-want +got):\n%s", diff)
	}
	if n := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "").GetCount(); n != 1 {
		t.Errorf("CountNewer: got %d, want 1", n)
	}
	if diff := cmp.Diff([]uint32{1}, unseenIndexes("ann")); diff != "" {
		t.Errorf("unseen items (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"i", "l", "k"}, w.hiddenItems("ann", at)); diff != "" {
		t.Errorf("hidden items (-want +got):\n%s", diff)
	}
	for _, hideSeen := range []bool{false, true} {
		explained := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, HideSeen: hideSeen}, "bob", "1")
		want := []skeinv1.AbsenceReason{skeinv1.AbsenceReason_ABSENCE_REASON_HIDDEN}
		if diff := cmp.Diff(want, explained.GetReasons()); diff != "" {
			t.Errorf("ExplainPin, hide_seen %v: reasons (-want +got):\n%s", hideSeen, diff)
		}
	}

	// A hidden item stays hidden when the seen items are cleared.
	at = w.publish(seenCleared("ann"))
	if diff := cmp.Diff([]string{"2"}, pinsOfFeed("ann", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed after seen_cleared (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{1}, unseenIndexes("ann")); diff != "" {
		t.Errorf("unseen items after seen_cleared (-want +got):\n%s", diff)
	}

	// Only item_shown ends the hiding.
	at = w.publish(shownAgain("ann", "i"))
	if diff := cmp.Diff([]string{"3", "2", "1"}, pinsOfFeed("ann", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed after item_shown (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{0, 1}, unseenIndexes("ann")); diff != "" {
		t.Errorf("unseen items after item_shown (-want +got):\n%s", diff)
	}
}

// TestFeedHidesItemsWithoutSeenStore checks that a process that has no seen store leaves hidden
// items out of feeds as well, because the inbox knows them.
func TestFeedHidesItemsWithoutSeenStore(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), showing("bob", "1", "i"), showing("bob", "2", "j"), hidden("ann", "i"))
	feed := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if entries := feed.GetEntries(); len(entries) != 1 || entries[0].GetPinId() != "2" || feed.GetCompleteness() != complete {
		t.Errorf("feed of ann: got %v, want a complete feed with the pin 2 alone", feed)
	}
}

// TestNobodyHidesMoreItemsThanTheLimit checks that Publish refuses a hidden item beyond the limit,
// also within one call. It accepts an item that is hidden already, an item instead of another, and
// history.
func TestNobodyHidesMoreItemsThanTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withAllStores)

	// Hide all items but one that the limit allows. A call has a thousand events at most.
	var at string
	for first := 0; first < inbox.MaxHiddenItems-1; first += 1000 {
		var evs []*skeinv1.Event
		for i := first; i < min(first+1000, inbox.MaxHiddenItems-1); i++ {
			evs = append(evs, hidden("ann", fmt.Sprint(i)))
		}
		at = w.publish(evs...)
	}
	countHidden := func() uint32 {
		return ask(w, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: "ann", AtLeast: at}).GetTotalSize()
	}
	if n := countHidden(); n != inbox.MaxHiddenItems-1 {
		t.Fatalf("got %d hidden items, want %d", n, inbox.MaxHiddenItems-1)
	}

	// Publish counts the items in the inbox, so wait until the inbox has them.
	w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})

	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{hidden("ann", "0"), hidden("ann", "last"), hidden("ann", "beyond"), hidden("eve", "beyond")},
	}))
	wantError(t, err, connect.CodeFailedPrecondition, "HIDDEN_ITEM_LIMIT", "events[2].item_hidden")

	at = w.publish(hidden("ann", "last"), hidden("ann", "0"), shownAgain("ann", "0"), hidden("ann", "instead"))
	if n := countHidden(); n != inbox.MaxHiddenItems {
		t.Errorf("got %d hidden items, want %d", n, inbox.MaxHiddenItems)
	}

	// History is accepted beyond the limit, because it records what has happened.
	at = w.publish(backfill(hidden("ann", "earlier"), 1))
	if n := countHidden(); n != inbox.MaxHiddenItems+1 {
		t.Errorf("got %d hidden items after a backfill, want %d", n, inbox.MaxHiddenItems+1)
	}
}
