package gateway

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestReadMarker checks that the read marker is the same for all calls of the reader and moves only
// forward. CountNewer and WatchFeed count from the marker if they are given no token.
func TestReadMarker(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("ann", "", "own"), pinned("bob", "", "3"))

	// Before the reader has read anything, there is no marker, and all pins count as newer.
	stream := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	if m := stream.next(); m.GetCount() != 3 || m.GetReadTime() != nil {
		t.Errorf("WatchFeed without a marker: got %v, want 3 newer pins and no read time", m)
	}
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if page.GetReadTime() != nil {
		t.Errorf("ReadFeed without a marker: got read time %v, want none", page.GetReadTime())
	}
	if len(page.GetEntries()) != 3 {
		t.Fatalf("ReadFeed without a marker: got %d entries, want 3", len(page.GetEntries()))
	}
	newer := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, page.GetNewestToken())
	if newer.GetCount() != 0 || newer.GetReadTime() != nil {
		t.Errorf("CountNewer than the page: got %v, want 0 and no read time", newer)
	}

	first := page.GetEntries()[2].GetCreateTime()
	second := page.GetEntries()[1].GetCreateTime()
	third := page.GetEntries()[0].GetCreateTime()
	future := timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, step := range []struct {
		name      string
		ev        *skeinv1.Event
		wantCount uint32
		// wantMarker is nil if the marker is the time of the event, which the test does not know.
		wantMarker *timestamppb.Timestamp
	}{
		{"up to the second", feedRead("ann", second), 1, second},
		{"the same again", feedRead("ann", second), 1, second},
		{"up to the first, late", feedRead("ann", first), 1, second},
		{"by somebody else", feedRead("dan", third), 1, second},
		{"up to the third", feedRead("ann", third), 0, third},
		{"a pin more", pinned("bob", "", "4"), 1, third},
		{"an own pin", pinned("ann", "", "5"), 1, third},
		{"up to a time to come", feedRead("ann", future), 0, nil},
		{"and a pin after it", pinned("bob", "", "6"), 1, nil},
	} {
		at := w.publish(step.ev)

		// A marker in the future would hide pins that are created later.
		marker := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetReadTime().AsTime()
		if step.wantMarker != nil && !marker.Equal(step.wantMarker.AsTime()) {
			t.Errorf("%s: got read time %v, want %v", step.name, marker, step.wantMarker.AsTime())
		}
		if marker.Equal(future.AsTime()) {
			t.Errorf("%s: got read time %v, want no time in the future", step.name, marker)
		}

		// All other calls have the same marker, and the counts from there.
		trending := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, Order: byHeat})
		if got := trending.GetReadTime().AsTime(); !got.Equal(marker) {
			t.Errorf("%s: ReadFeed by heat: got read time %v, want %v", step.name, got, marker)
		}
		newer := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "")
		if newer.GetCount() != step.wantCount || !newer.GetReadTime().AsTime().Equal(marker) {
			t.Errorf("%s: CountNewer: got %v, want %d since %v", step.name, newer, step.wantCount, marker)
		}
		stream.reach(at)
		if m := stream.last; m.GetCount() != step.wantCount || !m.GetReadTime().AsTime().Equal(marker) {
			t.Errorf("%s: WatchFeed: got %v, want %d since %v", step.name, m, step.wantCount, marker)
		}

		// A token counts from its page, whatever the marker is.
		newerThanPage := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, page.GetNewestToken())
		refresh := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, Start: newerThan(page.GetNewestToken())})
		if want := len(refresh.GetEntries()); int(newerThanPage.GetCount()) != want {
			t.Errorf("%s: CountNewer than the page: got %d, want %d as in the refresh", step.name, newerThanPage.GetCount(), want)
		}
	}

	// A deletion of the user deletes the marker.
	at = w.publish(deletedUser("ann"), follow("ann", "bob"))
	newer = w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "")
	if newer.GetCount() != 5 || newer.GetReadTime() != nil {
		t.Errorf("CountNewer after the deletion: got %v, want 5 and no read time", newer)
	}
}
