package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/feedservice"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A play hides every pin of its item, in both orders and with every other option; so does a serve,
// unless it is ignored.
func TestHideSeen(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	w.publishPictures()
	at := w.publish(played("ann", "b3"), served("ann", "b1", "nothing"), played("ann", "nothing"), played("bob", "c1"), played("ann", "a1"))
	for name, c := range map[string]struct {
		req  *skeinv1.ReadFeedRequest
		want []string
	}{
		"newest":       {&skeinv1.ReadFeedRequest{}, []string{"dan//d3", "cid/hens/c1"}},
		"by heat":      {&skeinv1.ReadFeedRequest{Order: byHeat}, []string{"cid/hens/c1", "dan//d3"}},
		"own":          {&skeinv1.ReadFeedRequest{IncludeOwn: true}, []string{"dan//d3", "cid/hens/c1"}},
		"one per item": {&skeinv1.ReadFeedRequest{OnePerItem: true}, []string{"dan//d3", "cid/hens/c1"}},
		"plays alone":  {&skeinv1.ReadFeedRequest{IgnoreServed: true}, []string{"dan//d3", "cid/hens/c1", "bob/cats/b1"}},
		"plays alone, by heat": {
			&skeinv1.ReadFeedRequest{IgnoreServed: true, OnePerItem: true, IncludeOwn: true, Order: byHeat},
			[]string{"cid/hens/c1", "bob/cats/b1", "dan//d3"},
		},
	} {
		for size := range int32(5) {
			c.req.ReaderId, c.req.PageSize, c.req.AtLeast, c.req.Start, c.req.HideSeen = "ann", 1+size, at, nil, true
			if diff := cmp.Diff(c.want, wholeFeed(c.req, w)); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, 1+size, diff)
			}
		}
	}
	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true})
	if res.GetCompleteness() != complete || res.GetPosition() != at {
		t.Error(res)
	}
	if w.count("skein_seen_filters_total", "by", "feed") == 0 || w.count("skein_seen_candidates_total", "answer", "seen") == 0 {
		t.Error("what feeds ask is not counted")
	}
	// When all was seen the feed is empty, and that is all of it.
	at = w.publish(played("ann", "d3"), played("ann", "c1"), played("ann", "b1"))
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: order, HideSeen: true, AtLeast: at})
		if len(res.GetEntries()) != 0 || res.GetNextPageToken() != "" || res.GetCompleteness() != complete {
			t.Error(order, res)
		}
	}
	// What is newer than a page is asked for as in any feed.
	top := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}).GetNewestToken()
	at = w.publish(pinned("dan", "", "d4"), pinned("dan", "", "d5"), pinned("dan", "", "d6"), played("ann", "d5"))
	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true, AtLeast: at, Start: newerThan(top)}
	if diff := cmp.Diff([]string{"dan//d6", "dan//d4"}, wholeFeed(req, w)); diff != "" {
		t.Error(diff)
	}
}

// I9: what is played during a session is gone from the next page on, each of its pins; what stays
// comes once.
func TestHideSeenWhilePlaying(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		for _, once := range []bool{false, true} {
			reader := fmt.Sprintf("ann-%d-%v", order, once)
			evs := []*skeinv1.Event{follow(reader, "bob"), follow(reader, "cid")}
			for i := range 40 {
				item := fmt.Sprintf("%s-%02d", reader, i)
				evs = append(evs, showing("bob", item, item), showing("cid", item, item), played("zoe", item))
			}
			req := &skeinv1.ReadFeedRequest{
				ReaderId: reader, PageSize: 7, Order: order, OnePerItem: once, HideSeen: true, AtLeast: w.publish(evs...),
			}
			var got []string
			gone := map[string]bool{}
			for page := 0; ; page++ {
				res := w.readFeed(req)
				for _, e := range res.GetEntries() {
					name := pinNames([]*skeinv1.FeedEntry{e})[0]
					if gone[e.GetItemId()] || slices.Contains(got, name) {
						t.Errorf("%s: %s on page %d", reader, name, page)
					}
					got = append(got, name)
				}
				if res.GetNextPageToken() == "" {
					break
				}
				req.Start = after(res.GetNextPageToken())
				// The reader plays one of what was shown, and one that is far from shown.
				shown, ahead := res.GetEntries()[3].GetItemId(), fmt.Sprintf("%s-%02d", reader, 2*page)
				gone[shown], gone[ahead] = true, true
				req.AtLeast = w.publish(played(reader, shown), played(reader, ahead), played("zoe", fmt.Sprintf("%s-%02d", reader, 30-page)))
			}
			for i := range 40 {
				item := fmt.Sprintf("%s-%02d", reader, i)
				n := 0
				for _, name := range got {
					if name == "bob/"+"/"+item || name == "cid/"+"/"+item {
						n++
					}
				}
				if want := map[bool]int{false: 2, true: 1}[once]; !gone[item] && n != want {
					t.Errorf("%s: %s stays and comes %d times", reader, item, n)
				}
			}
		}
	}
}

// Without a seen store, with one that is being built and with one that has stopped, nothing is
// hidden, and the page says so.
func TestHideSeenWithoutTheSeen(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("ann", "1"))
	hidden := &skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}
	demand := func(when string, w *world, want skeinv1.FeedCompleteness, pins ...string) {
		t.Helper()
		for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
			hidden.Order = order
			res := w.readFeed(hidden)
			got := pinNames(res.GetEntries())
			slices.Sort(got)
			if diff := cmp.Diff(pins, got); diff != "" || res.GetCompleteness() != want {
				t.Errorf("%s, %v: %v %s", when, order, res.GetCompleteness(), diff)
			}
		}
	}
	demand("with it", w, complete, "bob//2")
	demand("in a process without it", w.replica(withFeeds), seenUnavailable, "bob//1", "bob//2")

	building := w.replica(withFeeds, withSeen, asleep)
	envelopes := w.envelopes(1)
	if err := errors.Join(building.inbox.Serving().Fold(envelopes), building.counters.Serving().Fold(envelopes)); err != nil {
		t.Fatal(err)
	}
	demand("while it is built", building, seenUnavailable, "bob//1", "bob//2")
	building.fold()
	<-building.seenReady
	<-building.inboxReady
	<-building.countersReady
	demand("when it is built", building, complete, "bob//2")

	w.unfold()
	demand("when it is folded no more", w, complete, "bob//2")
	if err := w.seen.Close(); err != nil {
		t.Fatal(err)
	}
	demand("when it has stopped", w, seenUnavailable, "bob//1", "bob//2")
}

// A seen store that lags behind the inbox is waited for, but not for ever: the page hides nothing
// then.
func TestHideSeenThatLags(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	at := w.publish(played("ann", "1"))
	lagging := w.replica(withFeeds, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	envelopes := w.envelopes(2)
	if err := lagging.inbox.Serving().Fold(envelopes); err != nil {
		t.Fatal(err)
	}
	if err := lagging.seen.Serving().Fold(envelopes[:1]); err != nil {
		t.Fatal(err)
	}
	// As if it had once caught up.
	lagging.server.views.Seen.CaughtUp.Store(true)
	lagging.server.views.Inbox.CaughtUp.Store(true)
	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}
	if res := lagging.readFeed(req); res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 2 {
		t.Error("behind: ", res)
	}
	lagging.server.limits.AtLeastWait = patienceOfTests
	answered := make(chan *skeinv1.ReadFeedResponse)
	go func() {
		res, err := lagging.feed.ReadFeed(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Error(err)
			res = connect.NewResponse(&skeinv1.ReadFeedResponse{})
		}
		answered <- res.Msg
	}()
	if err := lagging.seen.Serving().Fold(envelopes[1:]); err != nil {
		t.Fatal(err)
	}
	if res := <-answered; res.GetCompleteness() != complete || len(res.GetEntries()) != 1 {
		t.Error("waited for: ", res)
	}
}

// patienceOfTests is how long a test waits for what must come. It comes in a fraction of that.
const patienceOfTests = 5 * time.Minute

// The seen store may be ahead of the inbox and hide what was played since. No other process shows
// it on the next page (I9), and none waits for an inbox that lags.
func TestHideSeenAhead(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	w.publish(follow("ann", "bob"), showing("bob", "old", "clip"), pinned("bob", "", "1"), pinned("bob", "", "2"), showing("bob", "new", "clip"))
	w.publish(played("ann", "clip"))
	envelopes := w.envelopes(2)
	ready := func(w *world) {
		w.server.views.Seen.CaughtUp.Store(true)
		w.server.views.Inbox.CaughtUp.Store(true)
	}
	fold := func(store *live.Live, envelopes []*events.Envelope) {
		t.Helper()
		if err := store.Serving().Fold(envelopes); err != nil {
			t.Fatal(err)
		}
	}
	ahead := w.replica(withFeeds, withSeen, asleep)
	fold(ahead.inbox, envelopes[:1])
	fold(ahead.seen, envelopes)
	ready(ahead)
	behind := w.replica(withFeeds, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	fold(behind.inbox, envelopes[:1])
	fold(behind.seen, envelopes[:1])
	ready(behind)

	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true}
	first := ahead.readFeed(req)
	if diff := cmp.Diff([]string{"bob//2"}, pinNames(first.GetEntries())); diff != "" || first.GetCompleteness() != complete {
		t.Error(diff, first)
	}
	if first.GetPosition() != w.log.Position(1).String() {
		t.Error("the position is not that of the inbox: ", first.GetPosition())
	}
	req.PageSize, req.Start = 20, after(first.GetNextPageToken())
	res := behind.readFeed(req)
	if diff := cmp.Diff([]string{"bob//1", "bob//old"}, pinNames(res.GetEntries())); diff != "" || res.GetCompleteness() != seenUnavailable {
		t.Errorf("behind, it must say that nothing is hidden: %v %s", res.GetCompleteness(), diff)
	}
	fold(behind.seen, envelopes[1:])
	for _, w := range []*world{ahead, behind} {
		res := w.readFeed(req)
		if diff := cmp.Diff([]string{"bob//1"}, pinNames(res.GetEntries())); diff != "" || res.GetCompleteness() != complete {
			t.Error(diff, res)
		}
	}
	// Another page after one that hid nothing demands as much as that one did.
	req.PageSize = 1
	fold(behind.inbox, envelopes[1:])
	if res := behind.readFeed(req); res.GetCompleteness() != complete || res.GetNextPageToken() != "" || len(res.GetEntries()) != 1 {
		t.Error(res)
	}
}

// A page cursor of a session with hide_seen differs from one without.
func TestHideSeenTokens(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"))
	id := feedservice.FeedListID(feedservice.FeedList, inbox.Feed{Reader: "ann"}, &skeinv1.ReadFeedRequest{HideSeen: true})
	for name, cursor := range map[string][]byte{
		"none": nil, "cut": {0}, "no number": {0x80}, "too far ahead": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 2},
	} {
		t.Log(name)
		token := w.server.views.Keys.Sign(pagetoken.Token{List: id, Position: w.log.Position(1), Cursor: cursor})
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Start: after(token)}))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	}
	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true, AtLeast: at})
	for _, req := range []*skeinv1.ReadFeedRequest{{}, {HideSeen: true, IgnoreServed: true}} {
		req.ReaderId, req.Start = "ann", after(res.GetNextPageToken())
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	}
	_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", IgnoreServed: true}))
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "ignore_served")
}

// corrupt folds as seen does, and then spoils the row of the play.
type corrupt struct{ *seen.Seen }

func (c corrupt) Apply(ev events.Event, b *projections.Batch) error {
	if err := c.Seen.Apply(ev, b); err != nil {
		return err
	}
	t := ev.Time.Time().UTC()
	key := binary.BigEndian.AppendUint16(nil, uint16(12*(t.Year()-1970)+int(t.Month())-1))
	key = append(key, byte(projections.FirstSeenTag))
	key = binary.BigEndian.AppendUint16(key, uint16(events.ShardOf(ev.User)))
	b.Set(events.AppendID(key, ev.User), []byte("spoilt"))
	return nil
}

// A seen store whose rows cannot be read fails no feed: nothing is hidden, on the whole page, and
// the page says so.
func TestHideSeenThatIsCorrupt(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("ann", "1"))
	store, err := live.Open(live.Options{
		Options: store.Options{Dir: t.TempDir()},
		New:     func() projections.Projection { return corrupt{seen.New(seen.DefaultSettings())} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Serving().Fold(w.envelopes(1)); err != nil {
		t.Fatal(err)
	}
	w.server.views.Seen = views.NewStore(store)
	w.server.views.Seen.CaughtUp.Store(true)
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Order: order, AtLeast: at})
		if res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 2 {
			t.Error(order, res)
		}
	}
	_, err = w.seenClient.FilterSeen(t.Context(), connect.NewRequest(&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"1"}}))
	wantError(t, err, connect.CodeInternal, "", "")
}
