package gateway

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestReadMarker: the marker follows the reader to every device, moves forward alone, and is what
// CountNewer and WatchFeed count from if they are given no token.
func TestReadMarker(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("ann", "", "own"), pinned("bob", "", "3"))
	watched := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	if m := watched.next(); m.GetCount() != 3 || m.GetReadTime() != nil {
		t.Errorf("it begins with %v", m)
	}
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if page.GetReadTime() != nil || len(page.GetEntries()) != 3 {
		t.Errorf("a first page: %v", page)
	}
	old := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, page.GetNewestToken())
	if old.GetCount() != 0 || old.GetReadTime() != nil {
		t.Errorf("above the page: %v", old)
	}
	second, third := page.GetEntries()[1].GetCreateTime(), page.GetEntries()[0].GetCreateTime()
	future := timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, step := range []struct {
		what string
		ev   *skeinv1.Event
		want uint32
		read *timestamppb.Timestamp // nil: not looked at
	}{
		{"up to the second", feedRead("ann", second), 1, second},
		{"the same again", feedRead("ann", second), 1, second},
		{"up to the first, late", feedRead("ann", page.GetEntries()[2].GetCreateTime()), 1, second},
		{"by somebody else", feedRead("dan", third), 1, second},
		{"up to the third", feedRead("ann", third), 0, third},
		{"a pin more", pinned("bob", "", "4"), 1, third},
		{"an own pin", pinned("ann", "", "5"), 1, third},
		{"up to a time to come", feedRead("ann", future), 0, nil},
		{"and a pin after it", pinned("bob", "", "6"), 1, nil},
	} {
		at := w.publish(step.ev)
		read := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}).GetReadTime().AsTime()
		if step.read != nil && !read.Equal(step.read.AsTime()) || read.Equal(future.AsTime()) {
			t.Errorf("%s: read up to %v", step.what, read)
		}
		trending := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, Order: byHeat})
		if !trending.GetReadTime().AsTime().Equal(read) {
			t.Errorf("%s: by heat read up to %v, else %v", step.what, trending.GetReadTime(), read)
		}
		got := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "")
		if got.GetCount() != step.want || !got.GetReadTime().AsTime().Equal(read) {
			t.Errorf("%s: %v, want %d", step.what, got, step.want)
		}
		watched.reach(at)
		if m := watched.last; m.GetCount() != step.want || !m.GetReadTime().AsTime().Equal(read) {
			t.Errorf("%s: the stream has %v, want %d", step.what, m, step.want)
		}
		above := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, page.GetNewestToken())
		if n := len(w.readFeed(&skeinv1.ReadFeedRequest{
			ReaderId: "ann", AtLeast: at, Start: newerThan(page.GetNewestToken()),
		}).GetEntries()); int(above.GetCount()) != n {
			t.Errorf("%s: a token counts %v, the page has %d", step.what, above, n)
		}
	}
	at = w.publish(deletedUser("ann"), follow("ann", "bob"))
	if got := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, ""); got.GetCount() != 5 || got.GetReadTime() != nil {
		t.Errorf("after the end of the user: %v", got)
	}
}
