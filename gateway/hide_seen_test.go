package gateway

import (
	"context"
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

// patienceOfTests is how long a test waits for an event that must come. Usually, it comes in a
// fraction of this time.
const patienceOfTests = 5 * time.Minute

// TestHideSeen checks that a play hides every pin of its item, in both orders and with every other
// option. A serve does the same unless serves are ignored.
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
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 5; size++ {
				c.req.ReaderId = "ann"
				c.req.HideSeen = true
				c.req.PageSize = size
				c.req.AtLeast = at
				c.req.Start = nil
				if diff := cmp.Diff(c.want, wholeFeed(c.req, w)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}

	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true})
	if res.GetCompleteness() != complete || res.GetPosition() != at {
		t.Errorf("got a feed that is %v at %s, want %v at %s", res.GetCompleteness(), res.GetPosition(), complete, at)
	}
	if w.count("skein_seen_filters_total", "by", "feed") == 0 {
		t.Error("got no filters by feeds in the metrics, want some")
	}
	if w.count("skein_seen_candidates_total", "answer", "seen") == 0 {
		t.Error("got no seen candidates in the metrics, want some")
	}

	// A feed of which all was seen is empty, and complete.
	at = w.publish(played("ann", "d3"), played("ann", "c1"), played("ann", "b1"))
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: order, HideSeen: true, AtLeast: at})
		if len(res.GetEntries()) != 0 || res.GetNextPageToken() != "" || res.GetCompleteness() != complete {
			t.Errorf("%v, after all was seen: got %v, want a complete feed without entries", order, res)
		}
	}

	// A feed from a top hides seen items as well.
	top := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}).GetNewestToken()
	at = w.publish(pinned("dan", "", "d4"), pinned("dan", "", "d5"), pinned("dan", "", "d6"), played("ann", "d5"))
	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true, AtLeast: at, Start: newerThan(top)}
	if diff := cmp.Diff([]string{"dan//d6", "dan//d4"}, wholeFeed(req, w)); diff != "" {
		t.Errorf("newer than the top (-want +got):\n%s", diff)
	}
}

// TestHideSeenWhilePlaying checks I9: all pins of an item that is played during a session are
// hidden from the next page on, and the pins of other items are shown once.
func TestHideSeenWhilePlaying(t *testing.T) {
	const itemsOfReader = 40
	w := newWorld(t, withFeeds, withSeen)
	for _, c := range []struct {
		name        string
		order       skeinv1.FeedOrder
		onePerItem  bool
		pinsPerItem int // in the feed
	}{
		{"newest", newestFirst, false, 2},
		{"newest-one-per-item", newestFirst, true, 1},
		{"by-heat", byHeat, false, 2},
		{"by-heat-one-per-item", byHeat, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The readers share the owners bob and cid, so each has a feed of all items so far.
			reader := "ann-" + c.name
			item := func(i int) string { return fmt.Sprintf("%s-%02d", reader, i) }
			evs := []*skeinv1.Event{follow(reader, "bob"), follow(reader, "cid")}
			for i := range itemsOfReader {
				evs = append(evs, showing("bob", item(i), item(i)), showing("cid", item(i), item(i)), played("zoe", item(i)))
			}
			req := &skeinv1.ReadFeedRequest{
				ReaderId: reader, PageSize: 7, Order: c.order, OnePerItem: c.onePerItem, HideSeen: true, AtLeast: w.publish(evs...),
			}

			var shown []string
			playedItems := map[string]bool{}
			for page := 0; ; page++ {
				res := w.readFeed(req)
				for i, name := range pinNames(res.GetEntries()) {
					if playedItems[res.GetEntries()[i].GetItemId()] {
						t.Errorf("page %d has %s, want no item that was played before", page, name)
					}
					if slices.Contains(shown, name) {
						t.Errorf("page %d has %s, want no pin of an earlier page", page, name)
					}
					shown = append(shown, name)
				}
				if res.GetNextPageToken() == "" {
					break
				}

				// The reader plays an item of this page and one that, on the first pages, is still far
				// from shown. Another user changes the heat of a third item.
				itemOfPage := res.GetEntries()[3].GetItemId()
				laterItem := item(2 * page)
				playedItems[itemOfPage] = true
				playedItems[laterItem] = true
				req.Start = after(res.GetNextPageToken())
				req.AtLeast = w.publish(played(reader, itemOfPage), played(reader, laterItem), played("zoe", item(30-page)))
			}

			for i := range itemsOfReader {
				if playedItems[item(i)] {
					continue
				}
				n := 0
				for _, name := range shown {
					if name == "bob//"+item(i) || name == "cid//"+item(i) {
						n++
					}
				}
				if n != c.pinsPerItem {
					t.Errorf("item %s, which was not played: got %d pins in the session, want %d", item(i), n, c.pinsPerItem)
				}
			}
		})
	}
}

// TestFeedSaysIfSeenItemsAreNotHidden checks that a page without a seen store, with one that is
// being built, and with one that has stopped hides nothing and says so.
func TestFeedSaysIfSeenItemsAreNotHidden(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("ann", "1"))
	checkFeed := func(when string, w *world, completeness skeinv1.FeedCompleteness, pins ...string) {
		t.Helper()
		for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
			res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Order: order, AtLeast: at})
			names := pinNames(res.GetEntries())
			slices.Sort(names) // the orders differ
			if diff := cmp.Diff(pins, names); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", when, order, diff)
			}
			if res.GetCompleteness() != completeness {
				t.Errorf("%s, %v: got %v, want %v", when, order, res.GetCompleteness(), completeness)
			}
		}
	}
	checkFeed("with a seen store", w, complete, "bob//2")
	checkFeed("without a seen store", w.replica(withFeeds), seenUnavailable, "bob//1", "bob//2")

	// In this process, only the seen store has not read the log yet.
	building := w.replica(withFeeds, withSeen, asleep)
	envelopes := w.envelopes(1)
	if err := errors.Join(building.inbox.Serving().Fold(envelopes), building.counters.Serving().Fold(envelopes)); err != nil {
		t.Fatal(err)
	}
	checkFeed("while the seen store is built", building, seenUnavailable, "bob//1", "bob//2")
	building.fold()
	<-building.seenReady
	<-building.inboxReady
	<-building.countersReady
	checkFeed("when the seen store is built", building, complete, "bob//2")

	w.unfold()
	checkFeed("when no store is folded anymore", w, complete, "bob//2")
	if err := w.seen.Close(); err != nil {
		t.Fatal(err)
	}
	checkFeed("when the seen store has stopped", w, seenUnavailable, "bob//1", "bob//2")
}

// TestHideSeenWaitsForLaggingSeenStore checks that a page waits for a seen store that lags behind
// the inbox, but only for a limited time. After this time, the page hides only what the store has.
func TestHideSeenWaitsForLaggingSeenStore(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	at := w.publish(played("ann", "1"))
	lagging := w.replica(withFeeds, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	envelopes := w.envelopes(2)
	mustFold(t, lagging.inbox, envelopes)
	mustFold(t, lagging.seen, envelopes[:1])
	markCaughtUp(lagging)

	// The wait ends before the seen store has read the second envelope.
	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}
	if res := lagging.readFeed(req); res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 2 {
		t.Errorf("seen store that lags too long: got %v, want two entries and %v", res, seenUnavailable)
	}

	// With more patience, there is no answer until the seen store has read the second envelope. The
	// client gives up after a moment in which a page that does not wait would be answered.
	lagging.server.views.Wait = patienceOfTests
	impatient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	time.AfterFunc(200*time.Millisecond, giveUp)
	if res, err := lagging.feed.ReadFeed(impatient, connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("before the seen store catches up: got %v and error %v, want no answer", res, err)
	}

	// Then the page contains the second envelope.
	answered := make(chan *skeinv1.ReadFeedResponse)
	go func() {
		res, err := lagging.feed.ReadFeed(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Errorf("ReadFeed during the wait: got error %v, want none", err)
			res = connect.NewResponse(&skeinv1.ReadFeedResponse{})
		}
		answered <- res.Msg
	}()
	mustFold(t, lagging.seen, envelopes[1:])
	if res := <-answered; res.GetCompleteness() != complete || len(res.GetEntries()) != 1 {
		t.Errorf("seen store that catches up in time: got %v, want one entry and %v", res, complete)
	}
}

// mustFold folds envelopes into a store of a world that begins asleep.
func mustFold(t *testing.T, store *live.Live, envelopes []*events.Envelope) {
	t.Helper()
	if err := store.Serving().Fold(envelopes); err != nil {
		t.Fatal(err)
	}
}

// markCaughtUp makes a world believe that its inbox and its seen store had once caught up with the
// log, as those of a process that has run for a while.
func markCaughtUp(w *world) {
	w.server.views.Seen.CaughtUp.Store(true)
	w.server.views.Inbox.CaughtUp.Store(true)
}

// TestHiddenPinStaysHiddenOnOtherProcesses checks a seen store that is ahead of the inbox and hides
// what was played since. Another process must not show these pins on the next page (I9), and no
// process waits for an inbox that lags.
func TestHiddenPinStaysHiddenOnOtherProcesses(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	w.publish(follow("ann", "bob"), showing("bob", "old", "clip"), pinned("bob", "", "1"), pinned("bob", "", "2"), showing("bob", "new", "clip"))
	w.publish(played("ann", "clip"))
	envelopes := w.envelopes(2)

	ahead := w.replica(withFeeds, withSeen, asleep)
	mustFold(t, ahead.inbox, envelopes[:1])
	mustFold(t, ahead.seen, envelopes)
	markCaughtUp(ahead)
	behind := w.replica(withFeeds, withSeen, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	mustFold(t, behind.inbox, envelopes[:1])
	mustFold(t, behind.seen, envelopes[:1])
	markCaughtUp(behind)
	checkPage := func(when string, res *skeinv1.ReadFeedResponse, completeness skeinv1.FeedCompleteness, pins ...string) {
		t.Helper()
		if diff := cmp.Diff(pins, pinNames(res.GetEntries())); diff != "" {
			t.Errorf("%s: pins (-want +got):\n%s", when, diff)
		}
		if res.GetCompleteness() != completeness {
			t.Errorf("%s: got %v, want %v", when, res.GetCompleteness(), completeness)
		}
	}

	// The first page already hides what the inbox does not know to be played.
	req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true}
	first := ahead.readFeed(req)
	checkPage("first page from the process that is ahead", first, complete, "bob//2")
	if want := w.log.Position(1).String(); first.GetPosition() != want {
		t.Errorf("first page: got position %s, want %s of the inbox", first.GetPosition(), want)
	}

	// A process whose seen store has not read the play must say that it hides nothing.
	req.PageSize = 20
	req.Start = after(first.GetNextPageToken())
	checkPage("next page from the process that is behind", behind.readFeed(req), seenUnavailable, "bob//1", "bob//old")

	// Once its seen store has read the play, both processes give the same page.
	mustFold(t, behind.seen, envelopes[1:])
	checkPage("next page from the process that is ahead", ahead.readFeed(req), complete, "bob//1")
	checkPage("next page from the process that has caught up", behind.readFeed(req), complete, "bob//1")

	// The page is the same when the inbox has read the play, too.
	req.PageSize = 1
	mustFold(t, behind.inbox, envelopes[1:])
	last := behind.readFeed(req)
	checkPage("next page with an inbox that has caught up", last, complete, "bob//1")
	if last.GetNextPageToken() != "" {
		t.Errorf("next page with an inbox that has caught up: got the next token %q, want none", last.GetNextPageToken())
	}
}

// TestInvalidTokensOfHideSeenAreRefused checks that the page tokens of sessions with hide_seen, which
// have cursors of their own, are refused if they are malformed or from a session with other
// options.
func TestInvalidTokensOfHideSeenAreRefused(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"))
	listID := feedservice.FeedListID(feedservice.FeedList, inbox.Feed{Reader: "ann"}, &skeinv1.ReadFeedRequest{HideSeen: true})
	for name, cursor := range map[string][]byte{
		"no cursor":             nil,
		"cursor that is cut":    {0},
		"cursor without number": {0x80},
		"cursor too far ahead":  {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			token := w.server.views.Keys.Sign(pagetoken.Token{List: listID, Position: w.log.Position(1), Cursor: cursor})
			_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Start: after(token)}))
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
		})
	}

	token := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, HideSeen: true, AtLeast: at}).GetNextPageToken()
	for name, req := range map[string]*skeinv1.ReadFeedRequest{
		"session without hide_seen":  {ReaderId: "ann", Start: after(token)},
		"session with ignore_served": {ReaderId: "ann", HideSeen: true, IgnoreServed: true, Start: after(token)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(req))
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
		})
	}

	t.Run("ignore_served without hide_seen", func(t *testing.T) {
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", IgnoreServed: true}))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "ignore_served")
	})
}

// seenWithCorruptRows is a seen store that overwrites the row of each event after it was applied.
type seenWithCorruptRows struct{ *seen.Seen }

func (c seenWithCorruptRows) Apply(ev events.Event, b *projections.Batch) error {
	if err := c.Seen.Apply(ev, b); err != nil {
		return err
	}

	// The key of the row of a user begins with the month, which is counted from 1970.
	at := ev.Time.Time().UTC()
	month := 12*(at.Year()-1970) + int(at.Month()) - 1
	key := binary.BigEndian.AppendUint16(nil, uint16(month))
	key = append(key, byte(projections.FirstSeenTag))
	key = binary.BigEndian.AppendUint16(key, uint16(events.ShardOf(ev.User)))
	b.Set(events.AppendID(key, ev.User), []byte("corrupt"))
	return nil
}

// TestCorruptSeenStoreFailsNoFeed checks that a page with a seen store whose rows cannot be read
// hides nothing and says so. FilterSeen, which has nothing else to answer from, fails.
func TestCorruptSeenStoreFailsNoFeed(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("ann", "1"))

	// Give the server another seen store.
	corrupt, err := live.Open(live.Options{
		Options: store.Options{Dir: t.TempDir()},
		New:     func() projections.Projection { return seenWithCorruptRows{seen.New(seen.DefaultSettings())} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer corrupt.Close()
	mustFold(t, corrupt, w.envelopes(1))
	w.server.views.Seen = views.NewStore(corrupt)
	w.server.views.Seen.CaughtUp.Store(true)

	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Order: order, AtLeast: at})
		if res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 2 {
			t.Errorf("%v: got %v, want two entries and %v", order, res, seenUnavailable)
		}
	}
	_, err = w.seenClient.FilterSeen(t.Context(), connect.NewRequest(&skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: []string{"1"}}))
	wantError(t, err, connect.CodeInternal, "", "")
}
