package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/feedservice"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

const (
	newestFirst = skeinv1.FeedOrder_FEED_ORDER_NEWEST
	byHeat      = skeinv1.FeedOrder_FEED_ORDER_TRENDING

	complete        = skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
	rebuilding      = skeinv1.FeedCompleteness_FEED_COMPLETENESS_REBUILDING
	seenUnavailable = skeinv1.FeedCompleteness_FEED_COMPLETENESS_SEEN_UNAVAILABLE
)

// pinNames returns the pins of entries, as owner/board/pin.
func pinNames(entries []*skeinv1.FeedEntry) (names []string) {
	for _, e := range entries {
		names = append(names, e.GetOwnerId()+"/"+e.GetBoardId()+"/"+e.GetPinId())
	}
	return names
}

func played(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: user, ItemId: item}}}
}

// showing returns the event that creates a pin whose item has another id than the pin.
func showing(owner, pin, item string) *skeinv1.Event {
	ev := pinned(owner, "", pin)
	ev.GetPinCreated().ItemId = item
	return ev
}

func after(token string) *skeinv1.ReadFeedRequest_PageToken {
	return &skeinv1.ReadFeedRequest_PageToken{PageToken: token}
}

func newerThan(token string) *skeinv1.ReadFeedRequest_NewerThan {
	return &skeinv1.ReadFeedRequest_NewerThan{NewerThan: token}
}

// readFeed reads a page of a feed and fails the test if the feed cannot be read.
func (w *world) readFeed(req *skeinv1.ReadFeedRequest) *skeinv1.ReadFeedResponse {
	w.t.Helper()
	return ask(w, w.feed.ReadFeed, req)
}

// pins returns the lister for the pins of a user or a board.
func (w *world) pins(req *skeinv1.ListPinsRequest) lister {
	return list(w.feed.ListPins, func(size int32, token, at string) *skeinv1.ListPinsRequest {
		return &skeinv1.ListPinsRequest{Target: req.GetTarget(), PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListPinsResponse) ([]string, int64) {
		return pinNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

// pinsOf returns a request for all pins of an owner.
func pinsOf(owner string) *skeinv1.ListPinsRequest {
	return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: owner}}
}

// pinsOn returns a request for the pins on a board.
func pinsOn(owner, id string) *skeinv1.ListPinsRequest {
	return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_Board{Board: board(owner, id)}}
}

// wholeFeed reads all pages from a request to the end of the feed. If several worlds are given,
// they answer the pages in turn.
func wholeFeed(req *skeinv1.ReadFeedRequest, worlds ...*world) (names []string) {
	t := worlds[0].t
	t.Helper()
	for page := 0; ; page++ {
		res := worlds[page%len(worlds)].readFeed(req)

		// Only a feed without any entry has an empty page.
		if n := len(res.GetEntries()); n > int(req.GetPageSize()) || n == 0 && page > 0 {
			t.Errorf("page %d: got %d entries, want between 1 and %d", page, n, req.GetPageSize())
		}
		names = append(names, pinNames(res.GetEntries())...)

		token := res.GetNextPageToken()
		if token == "" {
			return names
		}
		if len(token) > pagetoken.MaxBytes {
			t.Errorf("page %d: got a token of %d bytes, want at most %d", page, len(token), pagetoken.MaxBytes)
		}
		req.Start = after(token)
	}
}

// publishPictures publishes the pins of several users, some of which the feed of ann has.
func (w *world) publishPictures() (at string) {
	w.t.Helper()
	return w.publish(
		createBoard("bob", "cats", "Cats"), createBoard("bob", "dogs", "Dogs"),
		follow("ann", "bob"), unfollowBoard("ann", "bob", "dogs"), followBoard("ann", "cid", "hens"),
		follow("ann", "mud"), mute("ann", "mud"), follow("ann", "dan"), follow("ann", "eve"), block("eve", "ann"),
		pinned("bob", "cats", "b1"), pinned("bob", "dogs", "b2"), pinned("bob", "", "b3"), pinned("cid", "hens", "c1"),
		pinned("cid", "", "c2"), pinned("mud", "", "m1"), pinned("eve", "", "e1"), pinned("ann", "", "a1"),
		showing("dan", "d1", "b3"), pinned("dan", "", "d2"), unpinned("dan", "d2"), pinned("dan", "", "d3"),
		played("zoe", "b1"), played("zoe", "b1"), played("yan", "c1"),
	)
}

func TestReadFeed(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publishPictures()
	for name, c := range map[string]struct {
		req  *skeinv1.ReadFeedRequest
		want []string
	}{
		"newest":       {&skeinv1.ReadFeedRequest{}, []string{"dan//d3", "dan//d1", "cid/hens/c1", "bob//b3", "bob/cats/b1"}},
		"by heat":      {&skeinv1.ReadFeedRequest{Order: byHeat}, []string{"bob/cats/b1", "cid/hens/c1", "dan//d3", "dan//d1", "bob//b3"}},
		"own":          {&skeinv1.ReadFeedRequest{IncludeOwn: true}, []string{"dan//d3", "dan//d1", "ann//a1", "cid/hens/c1", "bob//b3", "bob/cats/b1"}},
		"one per item": {&skeinv1.ReadFeedRequest{OnePerItem: true}, []string{"dan//d3", "dan//d1", "cid/hens/c1", "bob/cats/b1"}},
		"own, one per item, by heat": {
			&skeinv1.ReadFeedRequest{OnePerItem: true, IncludeOwn: true, Order: byHeat},
			[]string{"bob/cats/b1", "cid/hens/c1", "dan//d3", "dan//d1", "ann//a1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 7; size++ {
				c.req.ReaderId = "ann"
				c.req.PageSize = size
				c.req.AtLeast = at
				c.req.Start = nil
				if diff := cmp.Diff(c.want, wholeFeed(c.req, w)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestFeedEntriesDescribePins(t *testing.T) {
	w := newWorld(t, withFeeds)
	ev := pinned("bob", "cats", "b1")
	ev.GetPinCreated().ItemId = "clip"
	ev.GetPinCreated().Attributes = []byte{0, 1, 0xff}
	began := time.Now().Add(-time.Second) // the clock of the log may be a little behind
	at := w.publish(follow("ann", "bob"), ev, played("zoe", "clip"))

	for _, c := range []struct {
		name   string
		order  skeinv1.FeedOrder
		scored bool
	}{
		{"newest", newestFirst, false},
		{"by heat", byHeat, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: c.order, AtLeast: at}))
			if err != nil {
				t.Fatal(err)
			}

			page := res.Msg
			if page.GetPosition() != at || page.GetCompleteness() != complete || page.GetNextPageToken() != "" {
				t.Errorf("got the page %v, want the only page of a complete feed at %s", page, at)
			}
			if hasNewest := page.GetNewestToken() != ""; hasNewest == c.scored {
				t.Errorf("got a newest token: %v, want %v", hasNewest, !c.scored)
			}
			if lag := res.Header().Get(LagHeader); lag != "0" {
				t.Errorf("%s: got %q, want 0", LagHeader, lag)
			}
			if len(page.GetEntries()) != 1 {
				t.Fatalf("got the entries %v, want one", page.GetEntries())
			}

			e := page.GetEntries()[0]
			if e.GetOwnerId() != "bob" || e.GetPinId() != "b1" || e.GetBoardId() != "cats" || e.GetItemId() != "clip" {
				t.Errorf("got the entry %v, want the pin b1 of bob on cats, of the item clip", e)
			}
			if !bytes.Equal(e.GetAttributes(), []byte{0, 1, 0xff}) {
				t.Errorf("got the attributes %x, want 0001ff", e.GetAttributes())
			}
			if (e.GetScore() != 0) != c.scored {
				t.Errorf("got the score %v, want one that is not 0: %v", e.GetScore(), c.scored)
			}
			if created := e.GetCreateTime().AsTime(); created.Before(began) || created.After(time.Now()) {
				t.Errorf("got the create time %v, want it between %v and now", created, began)
			}
		})
	}

	t.Run("without a seen store", func(t *testing.T) {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at})
		if res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 1 {
			t.Errorf("hide_seen: got %v, want one entry and %v", res, seenUnavailable)
		}
	})
}

func TestFeedOfUnknownReaderIsEmptyAndComplete(t *testing.T) {
	w := newWorld(t, withFeeds)
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "nobody", Order: order})
		if len(res.GetEntries()) != 0 || res.GetNextPageToken() != "" || res.GetCompleteness() != complete {
			t.Errorf("%v: got %v, want a complete feed without entries", order, res)
		}
	}
	for _, req := range []*skeinv1.ListPinsRequest{pinsOf("nobody"), pinsOn("nobody", ""), pinsOn("nobody", "none")} {
		if pins := w.pins(req).all(t, 1, ""); len(pins) != 0 {
			t.Errorf("ListPins of %v: got %v, want no pins", req, pins)
		}
	}
}

func TestPageSizesOfFeedsAreLimited(t *testing.T) {
	w := newWorld(t, withFeeds)
	var at string
	for i := range 3 {
		evs := []*skeinv1.Event{follow("ann", "bob")}
		for j := range 400 {
			evs = append(evs, pinned("bob", "cats", fmt.Sprint(400*i+j)))
		}
		at = w.publish(evs...)
	}

	for size, want := range map[int32]int{0: 20, 1: 1, 20: 20, 200: 200, 201: 200, 1<<31 - 1: 200} {
		for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
			res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, Order: order, AtLeast: at})
			if len(res.GetEntries()) != want || res.GetNextPageToken() == "" {
				t.Errorf("ReadFeed, page_size %d, %v: got %d entries and the next token %q, want %d entries and a token",
					size, order, len(res.GetEntries()), res.GetNextPageToken(), want)
			}
		}
	}
	for size, want := range map[int32]int{0: 50, 1: 1, 1000: 1000, 1001: 1000, 1<<31 - 1: 1000} {
		page, err := w.pins(pinsOn("bob", "cats"))(size, "", at)
		if err != nil {
			t.Fatalf("ListPins, page_size %d: %v", size, err)
		}
		if len(page.entries) != want || page.total != 1200 || page.next == "" {
			t.Errorf("ListPins, page_size %d: got %d pins of %d and the next token %q, want %d pins of 1200 and a token",
				size, len(page.entries), page.total, page.next, want)
		}
	}
}

func TestListPins(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publishPictures()
	for name, c := range map[string]struct {
		req  *skeinv1.ListPinsRequest
		want []string
	}{
		"of a user":            {pinsOf("bob"), []string{"bob//b3", "bob/dogs/b2", "bob/cats/b1"}},
		"on a board":           {pinsOn("bob", "dogs"), []string{"bob/dogs/b2"}},
		"on the default board": {pinsOn("bob", ""), []string{"bob//b3"}},
		"some are deleted":     {pinsOf("dan"), []string{"dan//d3", "dan//d1"}},
		"on an unknown board":  {pinsOn("bob", "hens"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 4; size++ {
				if diff := cmp.Diff(c.want, w.pins(c.req).all(t, size, at)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

// TestReadYourOwnPin checks that a pin is in lists and feeds that are read with the position that
// its publication returned.
func TestReadYourOwnPin(t *testing.T) {
	w := newWorld(t, withFeeds)
	const writers, pinsPerWriter = 4, 50 // the largest page, of 200, holds all of them
	w.publish(follow("fan", "writer0"), follow("fan", "writer1"), follow("fan", "writer2"), follow("fan", "writer3"))
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			writer := fmt.Sprint("writer", n)
			for i := range pinsPerWriter {
				if err := w.publishAndReadPin(writer, fmt.Sprint(i), i%3); err != nil {
					t.Errorf("%s, pin %d: %v", writer, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// publishAndReadPin publishes a pin, and returns an error if the pin is not in a list or feed that
// is read with the returned position. The way chooses between the list of the owner's pins (0), the
// owner's own feed (1) and the feed of fan (2).
func (w *world) publishAndReadPin(owner, id string, way int) error {
	ctx := context.Background()
	published, err := w.events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{pinned(owner, "", id)}}))
	if err != nil {
		return err
	}
	at := published.Msg.GetPosition()

	var pins []string
	var position string
	if way == 0 {
		res, err := w.feed.ListPins(ctx, connect.NewRequest(&skeinv1.ListPinsRequest{
			Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: owner}, PageSize: 1, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		pins = pinNames(res.Msg.GetEntries())
		position = res.Msg.GetPosition()
	} else {
		req := &skeinv1.ReadFeedRequest{ReaderId: owner, IncludeOwn: true, PageSize: 1, AtLeast: at}
		if way == 2 {
			// The page is larger because this feed has the pins of all writers.
			req = &skeinv1.ReadFeedRequest{ReaderId: "fan", PageSize: 200, AtLeast: at}
		}
		res, err := w.feed.ReadFeed(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		pins = pinNames(res.Msg.GetEntries())
		position = res.Msg.GetPosition()
	}

	if !slices.Contains(pins, owner+"//"+id) {
		return fmt.Errorf("got the pins %v at %s, want %s//%s among them, which was published at %s", pins, position, owner, id, at)
	}
	return nil
}

// TestReadFeedNewerThan checks that a feed that is read with newer_than has what is newer than the
// top and nothing else, however many pages that are.
func TestReadFeedNewerThan(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"))
	empty := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if empty.GetNewestToken() == "" {
		t.Fatal("empty feed: got no newest token, want one")
	}

	// Nothing is newer than the top of a feed that has not changed.
	at = w.publish(pinned("bob", "", "1"), pinned("bob", "", "2"))
	first := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	again := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan(first.GetNewestToken())})
	if len(again.GetEntries()) != 0 || again.GetNextPageToken() != "" || again.GetNewestToken() == "" {
		t.Errorf("unchanged feed: got %v, want no entries, no next page and a newest token", again)
	}

	// The pins that come next are newer than all three tops.
	var evs []*skeinv1.Event
	var newPins []string
	for i := range 9 {
		evs = append(evs, pinned("bob", "", fmt.Sprint(3+i)))
		newPins = append([]string{fmt.Sprintf("bob//%d", 3+i)}, newPins...)
	}
	at = w.publish(evs...)
	for name, c := range map[string]struct {
		top  string
		want []string
	}{
		"top of the first page":     {first.GetNewestToken(), newPins},
		"top of the unchanged feed": {again.GetNewestToken(), newPins},
		"top of the empty feed":     {empty.GetNewestToken(), append(slices.Clone(newPins), "bob//2", "bob//1")},
	} {
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 10; size++ {
				req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, AtLeast: at, Start: newerThan(c.top)}
				if diff := cmp.Diff(c.want, wholeFeed(req, w)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}

	t.Run("empty newer_than reads the whole feed", func(t *testing.T) {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan(""), AtLeast: at})
		if len(res.GetEntries()) != 11 {
			t.Errorf("got %d entries, want 11: %v", len(res.GetEntries()), res)
		}
	})
}

// TestFeedTokensDemandTheirPosition checks that a page token and a newest token both demand the
// position of the page that they are from.
func TestFeedTokensDemandTheirPosition(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	pins, err := w.pins(pinsOf("bob"))(1, "", at)
	if err != nil {
		t.Fatal(err)
	}

	// A process that has read nothing from the log refuses the tokens.
	behind := w.replica(withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 1 })
	for _, req := range []*skeinv1.ReadFeedRequest{
		{ReaderId: "ann", Start: after(page.GetNextPageToken())},
		{ReaderId: "ann", Start: newerThan(page.GetNewestToken())},
		{ReaderId: "ann", AtLeast: at},
	} {
		_, err := behind.feed.ReadFeed(t.Context(), connect.NewRequest(req))
		wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	}
	_, err = behind.pins(pinsOf("bob"))(1, pins.next, "")
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")

	// Without the demand, this process answers from what it has, and says that this is not all.
	res := behind.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann"})
	if res.GetCompleteness() != rebuilding || len(res.GetEntries()) != 0 {
		t.Errorf("process that is behind: got %v, want no entries and %v", res, rebuilding)
	}

	// Once it has caught up, it takes the token.
	behind.fold()
	<-behind.inboxReady
	res = behind.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(page.GetNextPageToken())})
	if diff := cmp.Diff([]string{"bob//1"}, pinNames(res.GetEntries())); diff != "" {
		t.Errorf("process that has caught up (-want +got):\n%s", diff)
	}
	if res.GetCompleteness() != complete {
		t.Errorf("process that has caught up: got %v, want %v", res.GetCompleteness(), complete)
	}
}

// TestProcessesContinueEachOthersPages checks that two processes over one log continue with each
// other's pages, even if one of them pushes into inboxes what the other merges from outboxes.
func TestProcessesContinueEachOthersPages(t *testing.T) {
	w := newWorld(t, withFeeds)
	other := w.replica(withFeeds, func(o *worldOptions) {
		o.inbox.Threshold = 0
		o.inbox.Keep = 24
	})
	var at string
	for i := range 8 {
		at = w.publish(
			follow("ann", fmt.Sprint("star", i%3)), pinned("star0", "", fmt.Sprint("x", i)), pinned("star1", "", fmt.Sprint("y", i)),
			showing("star2", fmt.Sprint("z", i), fmt.Sprint("x", i)), played("zoe", fmt.Sprint("y", i/2)),
		)
	}

	for _, c := range []struct {
		name       string
		order      skeinv1.FeedOrder
		onePerItem bool
		entries    int
	}{
		{"newest", newestFirst, false, 24},
		{"newest, one per item", newestFirst, true, 16},
		{"by heat", byHeat, false, 24},
		{"by heat, one per item", byHeat, true, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := func(size int32) *skeinv1.ReadFeedRequest {
				return &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, Order: c.order, OnePerItem: c.onePerItem, AtLeast: at}
			}
			want := wholeFeed(request(200), w)
			if len(want) != c.entries {
				t.Errorf("one process: got %d entries, want %d", len(want), c.entries)
			}
			for size := int32(1); size <= 5; size++ {
				if diff := cmp.Diff(want, wholeFeed(request(size), w, other)); diff != "" {
					t.Errorf("two processes in turn, pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}

	// The metrics count pages by where they came from.
	inboxPages := w.count("skein_feed_pages_total", "source", "inbox")
	if inboxPages == 0 {
		t.Error("process that pushes: got no pages from inboxes in the metrics, want some")
	}
	if other.count("skein_feed_pages_total", "source", "merged") == 0 {
		t.Error("process that merges: got no merged pages in the metrics, want some")
	}
	if other.count("skein_feed_outboxes_opened_total") == 0 {
		t.Error("process that merges: got no opened outboxes in the metrics, want some")
	}
	status, err := w.server.admin.GetStatus(t.Context(), &skeinv1.GetStatusRequest{}, &call.Info{})
	if err != nil {
		t.Fatal(err)
	}
	if got := status.GetFeeds().GetInboxPages(); got != uint64(inboxPages) {
		t.Errorf("GetStatus: got %d pages from inboxes, want %v as in the metrics", got, inboxPages)
	}

	// A top from one process is one for the other process as well.
	top := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at}).GetNewestToken()
	at = other.publish(pinned("star0", "", "last"))
	res := other.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, Start: newerThan(top)})
	if diff := cmp.Diff([]string{"star0//last"}, pinNames(res.GetEntries())); diff != "" {
		t.Errorf("newer than the top of the other process (-want +got):\n%s", diff)
	}
}

// TestFeedWhilePinsChange checks I9 through the API: a pin that stays in the feed appears once,
// whatever is pinned and deleted between the pages.
func TestFeedWhilePinsChange(t *testing.T) {
	const initialPins = 40
	w := newWorld(t, withFeeds)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range initialPins {
		id := fmt.Sprintf("p%02d", i)
		evs = append(evs, pinned("bob", "", id), played("zoe", id))
	}
	at := w.publish(evs...)

	deleted := map[string]bool{}
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		var shown []string
		req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 7, Order: order, AtLeast: at}
		for page := 0; ; page++ {
			res := w.readFeed(req)
			for _, name := range pinNames(res.GetEntries()) {
				if deleted[name] {
					t.Errorf("%v: page %d has %s, want no pin that was deleted before", order, page, name)
				}
				if slices.Contains(shown, name) {
					t.Errorf("%v: page %d has %s, want no pin of an earlier page", order, page, name)
				}
				shown = append(shown, name)
			}
			if res.GetNextPageToken() == "" {
				break
			}

			// Create a pin, delete one, and change the heat of a third before the next page. The
			// deleted pins are p10, p11, … in the first session and p20, p21, … in the second.
			toDelete := fmt.Sprintf("p%02d", 10*int(order)+page)
			req.Start = after(res.GetNextPageToken())
			req.AtLeast = w.publish(
				pinned("bob", "", fmt.Sprintf("new%v-%d", order, page)), unpinned("bob", toDelete), played("zoe", fmt.Sprintf("p%02d", 3*page)),
			)
			deleted["bob//"+toDelete] = true
		}

		for i := range initialPins {
			if name := fmt.Sprintf("bob//p%02d", i); !deleted[name] && !slices.Contains(shown, name) {
				t.Errorf("%v: got the pins %v, want %s among them, which was never deleted", order, shown, name)
			}
		}
		at = req.GetAtLeast()
	}
}

// TestErrorsOfFeedsNameTheField checks that malformed requests for feeds and pins get an error that
// names the field.
func TestErrorsOfFeedsNameTheField(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"), played("zoe", "1"))

	// Get good tokens, of which most cases make bad ones.
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	token := page.GetNextPageToken()
	top := page.GetNewestToken()
	tampered := token[:20] + other(token[20]) + token[21:]
	trending := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: byHeat, AtLeast: at}).GetNextPageToken()
	if trending == "" {
		t.Fatal("feed by heat: got no page token, want one")
	}
	pins, err := w.pins(pinsOf("bob"))(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	ownKeys := w.server.views.Keys
	foreignKeys := ring(t, "log:"+secret(1))
	listID := feedservice.FeedListID(feedservice.FeedList, inbox.Feed{Reader: "ann"}, &skeinv1.ReadFeedRequest{})
	sign := func(keys pagetoken.KeyRing, cursor []byte) string {
		return keys.Sign(pagetoken.Token{List: listID, Position: w.log.Position(1), Cursor: cursor})
	}

	const invalidToken = "INVALID_PAGE_TOKEN"
	for name, c := range map[string]struct {
		req           *skeinv1.ReadFeedRequest
		reason, field string
	}{
		"no reader":             {&skeinv1.ReadFeedRequest{}, "INVALID_FIELD", "reader_id"},
		"a reader with a space": {&skeinv1.ReadFeedRequest{ReaderId: "a b"}, "INVALID_FIELD", "reader_id"},
		"negative page":         {&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: -1}, "INVALID_FIELD", "page_size"},
		"unknown order":         {&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: 9}, "INVALID_FIELD", "order"},
		"a long token":          {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(strings.Repeat("x", 1025))}, "INVALID_FIELD", "page_token"},
		"a position from ahead": {&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: w.log.Position(99).String()}, "INVALID_POSITION", "at_least"},
		"newer by heat":         {&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, Start: newerThan(top)}, "INVALID_FIELD", "newer_than"},
		"tampered":              {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(tampered)}, invalidToken, "page_token"},
		"cut":                   {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(token[:len(token)-1])}, invalidToken, "page_token"},
		"of another ring":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(sign(foreignKeys, nil))}, invalidToken, "page_token"},
		"without cursors":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(sign(ownKeys, nil))}, invalidToken, "page_token"},
		"of malformed cursors":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(sign(ownKeys, []byte{0, 1, 2, 3}))}, invalidToken, "page_token"},
		"longer than it is":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(sign(ownKeys, []byte{9, 1, 2, 3}))}, invalidToken, "page_token"},
		"of another reader":     {&skeinv1.ReadFeedRequest{ReaderId: "bob", Start: after(token)}, invalidToken, "page_token"},
		"of another order":      {&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, Start: after(token)}, invalidToken, "page_token"},
		"of the order by heat":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(trending)}, invalidToken, "page_token"},
		"now with own pins":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", IncludeOwn: true, Start: after(token)}, invalidToken, "page_token"},
		"now without the seen":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Start: after(token)}, invalidToken, "page_token"},
		"now one per item":      {&skeinv1.ReadFeedRequest{ReaderId: "ann", OnePerItem: true, Start: after(token)}, invalidToken, "page_token"},
		"a top as a page":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(top)}, invalidToken, "page_token"},
		"a page as a top":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan(token)}, invalidToken, "newer_than"},
		"another reader's top":  {&skeinv1.ReadFeedRequest{ReaderId: "bob", Start: newerThan(top)}, invalidToken, "newer_than"},
		"a top with own pins":   {&skeinv1.ReadFeedRequest{ReaderId: "ann", IncludeOwn: true, Start: newerThan(top)}, invalidToken, "newer_than"},
		"of a list of pins":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(pins.next)}, invalidToken, "page_token"},
	} {
		t.Run("feed "+name, func(t *testing.T) {
			_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	for name, c := range map[string]struct {
		list          lister
		size          int32
		token         string
		reason, field string
	}{
		"without a target":       {w.pins(&skeinv1.ListPinsRequest{}), 1, "", "INVALID_FIELD", "target"},
		"board without an owner": {w.pins(pinsOn("", "cats")), 1, "", "INVALID_FIELD", "board.owner_id"},
		"board with a NUL":       {w.pins(pinsOn("bob", "\x00")), 1, "", "INVALID_FIELD", "board.board_id"},
		"negative page":          {w.pins(pinsOf("bob")), -1, "", "INVALID_FIELD", "page_size"},
		"token of another owner": {w.pins(pinsOf("ann")), 1, pins.next, invalidToken, "page_token"},
		"token of a board":       {w.pins(pinsOn("bob", "")), 1, pins.next, invalidToken, "page_token"},
		"token of a feed":        {w.pins(pinsOf("bob")), 1, token, invalidToken, "page_token"},
	} {
		t.Run("pins "+name, func(t *testing.T) {
			_, err := c.list(c.size, c.token, "")
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	t.Run("page_token and newer_than together", func(t *testing.T) {
		status, _, body := w.post(connectv1.FeedServiceReadFeedProcedure, "application/json",
			strings.NewReader(`{"readerId":"ann","pageToken":"x","newerThan":"y"}`))
		if e := parseError(t, body); status != http.StatusBadRequest || e.reason() != "INVALID_FIELD" {
			t.Errorf("got status %d and %s, want 400 and INVALID_FIELD", status, body)
		}
	})
}

// TestFeedByHeatRanksWhatBothStoresContain checks that a feed by heat ranks the pins that both the
// inbox and the counters contain, and that its position says so.
func TestFeedByHeatRanksWhatBothStoresContain(t *testing.T) {
	w := newWorld(t, withFeeds, asleep)
	firstPosition := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("zoe", "1"))
	w.publish(pinned("bob", "", "3"), played("zoe", "2"), played("zoe", "2"))

	// The counters are an envelope behind the inbox.
	envelopes := w.envelopes(2)
	if err := w.inbox.Serving().Fold(envelopes); err != nil {
		t.Fatal(err)
	}
	if err := w.counters.Serving().Fold(envelopes[:1]); err != nil {
		t.Fatal(err)
	}
	newest := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann"})
	if len(newest.GetEntries()) != 3 {
		t.Errorf("newest first: got %v, want three pins", pinNames(newest.GetEntries()))
	}
	firstPage := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, PageSize: 1})
	if diff := cmp.Diff([]string{"bob//1"}, pinNames(firstPage.GetEntries())); diff != "" {
		t.Errorf("by heat, first page (-want +got):\n%s", diff)
	}
	if firstPage.GetPosition() != firstPosition {
		t.Errorf("by heat, first page: got position %s, want %s", firstPage.GetPosition(), firstPosition)
	}

	// Once the counters have caught up, the session keeps its order, and a new one has the new
	// order.
	if err := w.counters.Serving().Fold(envelopes[1:]); err != nil {
		t.Fatal(err)
	}
	rest := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, Start: after(firstPage.GetNextPageToken())})
	if diff := cmp.Diff([]string{"bob//2"}, pinNames(rest.GetEntries())); diff != "" {
		t.Errorf("by heat, rest of the session (-want +got):\n%s", diff)
	}
	newSession := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat})
	if diff := cmp.Diff([]string{"bob//2", "bob//1", "bob//3"}, pinNames(newSession.GetEntries())); diff != "" {
		t.Errorf("by heat, new session (-want +got):\n%s", diff)
	}
}

// TestSessionByHeatExpiresAfterAnHour checks that a session by heat ends an hour of log time after
// its beginning, with an error that says so. A session in the order of time does not end.
func TestSessionByHeatExpiresAfterAnHour(t *testing.T) {
	w := newWorld(t, withFeeds, asleep)
	w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	w.publish(follow("ann", "cid"))
	w.publish(follow("ann", "dan"))

	// Stretch the log: the second envelope comes a minute before the end of the hour, and the third
	// a minute after it.
	envelopes := w.envelopes(3)
	for i, delay := range []events.Micros{0, inbox.SessionLifetime - 60e6, inbox.SessionLifetime + 60e6} {
		for j := range envelopes[i].Events {
			envelopes[i].Events[j].Time += delay
		}
		envelopes[i].Cursor.LastTime += delay
	}
	fold := func(env *events.Envelope) {
		t.Helper()
		err := errors.Join(w.inbox.Serving().Fold([]*events.Envelope{env}), w.counters.Serving().Fold([]*events.Envelope{env}))
		if err != nil {
			t.Fatal(err)
		}
	}

	// Begin a session of each order.
	fold(envelopes[0])
	secondPage := func(order skeinv1.FeedOrder) *skeinv1.ReadFeedRequest {
		first := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: order})
		if first.GetNextPageToken() == "" {
			t.Fatalf("%v: got the first page %v, want one with a next page", order, first)
		}
		return &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: order, Start: after(first.GetNextPageToken())}
	}
	heatRequest := secondPage(byHeat)
	newestRequest := secondPage(newestFirst)
	// A request without an order continues a session in the order of time.
	newestRequest.Order = skeinv1.FeedOrder_FEED_ORDER_UNSPECIFIED

	fold(envelopes[1])
	if res := w.readFeed(heatRequest); len(res.GetEntries()) != 1 {
		t.Errorf("by heat, within the hour: got %v, want one entry", res)
	}

	fold(envelopes[2])
	_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(heatRequest))
	wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
	if res := w.readFeed(newestRequest); len(res.GetEntries()) != 1 {
		t.Errorf("newest first, after the hour: got %v, want one entry", res)
	}
}

// envelopes returns the first n envelopes of the log. The test may change their events, because
// they are copies.
func (w *world) envelopes(n int) (envs []*events.Envelope) {
	w.t.Helper()
	sub, err := w.hub.Subscribe(w.log.Start())
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	for len(envs) < n {
		batch, err := sub.Next(w.t.Context(), 1)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, env := range batch {
			cloned := *env
			cloned.Events = slices.Clone(env.Events)
			envs = append(envs, &cloned)
		}
	}
	return envs[:n]
}

func TestHealthOfFeedsIsThatOfTheInbox(t *testing.T) {
	w := newWorld(t, withFeeds)
	watch, err := w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck(connectv1.FeedServiceName)))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	awaitServing(watch)

	w.unfold()
	if err := w.inbox.Close(); err != nil {
		t.Fatal(err)
	}
	w.wantHealth("with a closed inbox", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.FeedServiceName: notServing})
	_, err = w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann"}))
	wantError(t, err, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}

// other returns a letter of the alphabet of tokens that differs from the given one.
func other(letter byte) string {
	if letter == 'A' {
		return "B"
	}
	return "A"
}

// otherEnd returns a token with another last letter.
func otherEnd(token string) string { return token[:len(token)-1] + other(token[len(token)-1]) }
