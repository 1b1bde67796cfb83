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

// hiddenItems reads the whole list of a user in pages of two, and demands that the total is its
// length.
func (w *world) hiddenItems(user, at string) (items []string) {
	w.t.Helper()
	for token := ""; ; {
		page := ask(w, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: user, PageSize: 2, PageToken: token, AtLeast: at})
		for _, e := range page.GetEntries() {
			items = append(items, e.GetItemId())
			if e.GetHideTime() == nil {
				w.t.Errorf("%s is hidden since no time", e.GetItemId())
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			if int(page.GetTotalSize()) != len(items) {
				w.t.Errorf("%d of %d items are listed", len(items), page.GetTotalSize())
			}
			return items
		}
	}
}

// TestHiddenItemIsInNoFeed: an item that a user hides is in no feed and no count of this user,
// counts as seen, and is explained; others see it.
func TestHiddenItemIsInNoFeed(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		follow("ann", "bob"), follow("eve", "bob"), showing("bob", "1", "i"), showing("bob", "2", "j"), showing("ann", "3", "i"),
		hidden("ann", "k"), hidden("ann", "l"), hidden("ann", "i"), hidden("ann", "k"),
	)
	pinsOfFeed := func(reader string, options *skeinv1.ReadFeedRequest) (pins []string) {
		options.ReaderId, options.AtLeast, options.IncludeOwn = reader, at, true
		for _, e := range w.readFeed(options).GetEntries() {
			pins = append(pins, e.GetPinId())
		}
		return pins
	}
	unseen := func(user string) []uint32 {
		return ask(w, w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: user, ItemIds: []string{"i", "j", "k"}, AtLeast: at}).GetUnseenIndexes()
	}

	for name, options := range map[string]*skeinv1.ReadFeedRequest{
		"newest": {}, "by heat": {Order: byHeat}, "hiding seen": {HideSeen: true}, "one per item": {OnePerItem: true},
	} {
		if diff := cmp.Diff([]string{"2"}, pinsOfFeed("ann", options)); diff != "" {
			t.Errorf("%s: feed of ann (-want +got)\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"2", "1"}, pinsOfFeed("eve", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed of eve, who hides nothing (-want +got)\n%s", diff)
	}
	if n := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "").GetCount(); n != 1 {
		t.Errorf("%d newer pins are counted, want 1", n)
	}
	if diff := cmp.Diff([]uint32{1}, unseen("ann")); diff != "" {
		t.Errorf("unseen (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"i", "l", "k"}, w.hiddenItems("ann", at)); diff != "" {
		t.Errorf("hidden items (-want +got)\n%s", diff)
	}
	for _, hideSeen := range []bool{false, true} {
		explained := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, HideSeen: hideSeen}, "bob", "1")
		want := []skeinv1.AbsenceReason{skeinv1.AbsenceReason_ABSENCE_REASON_HIDDEN}
		if diff := cmp.Diff(want, explained.GetReasons()); diff != "" {
			t.Errorf("reasons, hide_seen %v (-want +got)\n%s", hideSeen, diff)
		}
	}

	// Clearing what was seen shows nothing again; only item_shown does.
	at = w.publish(seenCleared("ann"))
	if diff := cmp.Diff([]string{"2"}, pinsOfFeed("ann", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed after seen_cleared (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{1}, unseen("ann")); diff != "" {
		t.Errorf("unseen after seen_cleared (-want +got)\n%s", diff)
	}
	at = w.publish(shownAgain("ann", "i"))
	if diff := cmp.Diff([]string{"3", "2", "1"}, pinsOfFeed("ann", &skeinv1.ReadFeedRequest{})); diff != "" {
		t.Errorf("feed after item_shown (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{0, 1}, unseen("ann")); diff != "" {
		t.Errorf("unseen after item_shown (-want +got)\n%s", diff)
	}
}

// TestFeedHidesItemsWithoutSeenStore: a process that has no seen store leaves hidden items out of
// feeds all the same.
func TestFeedHidesItemsWithoutSeenStore(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), showing("bob", "1", "i"), showing("bob", "2", "j"), hidden("ann", "i"))
	feed := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if entries := feed.GetEntries(); len(entries) != 1 || entries[0].GetPinId() != "2" || feed.GetCompleteness() != complete {
		t.Errorf("the feed is %v, want the pin 2 alone", feed)
	}
}

// TestNobodyHidesMoreItemsThanTheLimit: Publish refuses a hidden item beyond the limit, also within
// one call, but neither a repeat, nor an item in place of another, nor history.
func TestNobodyHidesMoreItemsThanTheLimit(t *testing.T) {
	w := newWorld(t, withAllStores)
	var at string
	for first := 0; first < inbox.MaxHiddenItems-1; first += 1000 {
		var evs []*skeinv1.Event
		for i := first; i < min(first+1000, inbox.MaxHiddenItems-1); i++ {
			evs = append(evs, hidden("ann", fmt.Sprint(i)))
		}
		at = w.publish(evs...)
	}
	// The guard looks at what the inbox shows.
	if n := ask(w, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: "ann", AtLeast: at}).GetTotalSize(); n != inbox.MaxHiddenItems-1 {
		t.Fatalf("%d items are hidden, want %d", n, inbox.MaxHiddenItems-1)
	}
	w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})

	_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{
		Events: []*skeinv1.Event{hidden("ann", "0"), hidden("ann", "last"), hidden("ann", "beyond"), hidden("eve", "beyond")},
	}))
	wantError(t, err, connect.CodeFailedPrecondition, "HIDDEN_ITEM_LIMIT", "events[2].item_hidden")

	at = w.publish(hidden("ann", "last"), hidden("ann", "0"), shownAgain("ann", "0"), hidden("ann", "instead"))
	if n := ask(w, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: "ann", AtLeast: at}).GetTotalSize(); n != inbox.MaxHiddenItems {
		t.Errorf("%d items are hidden, want %d", n, inbox.MaxHiddenItems)
	}
}
