package gateway

import (
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

func pinNames(entries []*skeinv1.FeedEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.GetOwnerId()+"/"+e.GetBoardId()+"/"+e.GetPinId())
	}
	return out
}

func played(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: user, ItemId: item}}}
}

// showing is a pin that shows another item than its own.
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

// readFeed fails the test if the feed cannot be read.
func (w *world) readFeed(req *skeinv1.ReadFeedRequest) *skeinv1.ReadFeedResponse {
	w.t.Helper()
	return ask(w, w.feed.ReadFeed, req)
}

// pins is the list of a user's pins, or of a board's, as any other list.
func (w *world) pins(req *skeinv1.ListPinsRequest) lister {
	return list(w.feed.ListPins, func(size int32, token, at string) *skeinv1.ListPinsRequest {
		return &skeinv1.ListPinsRequest{Target: req.GetTarget(), PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListPinsResponse) ([]string, int64) {
		return pinNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func pinsOf(owner string) *skeinv1.ListPinsRequest {
	return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: owner}}
}

func pinsOn(owner, id string) *skeinv1.ListPinsRequest {
	return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_Board{Board: board(owner, id)}}
}

// wholeFeed walks from a request to the end of the feed. Every page after the first may come from
// another process.
func wholeFeed(req *skeinv1.ReadFeedRequest, worlds ...*world) (got []string) {
	t := worlds[0].t
	t.Helper()
	for page := 0; ; page++ {
		res := worlds[page%len(worlds)].readFeed(req)
		if n := len(res.GetEntries()); n > int(req.GetPageSize()) || n == 0 && page > 0 {
			t.Errorf("page %d of %d has %d entries", page, req.GetPageSize(), n)
		}
		got = append(got, pinNames(res.GetEntries())...)
		if res.GetNextPageToken() == "" {
			return got
		}
		if len(res.GetNextPageToken()) > pagetoken.MaxBytes {
			t.Errorf("a token of %d bytes", len(res.GetNextPageToken()))
		}
		req.Start = after(res.GetNextPageToken())
	}
}

// publishPictures makes a small world of pins in which ann reads.
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
		"both by heat": {
			&skeinv1.ReadFeedRequest{OnePerItem: true, IncludeOwn: true, Order: byHeat},
			[]string{"bob/cats/b1", "cid/hens/c1", "dan//d3", "dan//d1", "ann//a1"},
		},
	} {
		for size := range int32(7) {
			c.req.ReaderId, c.req.PageSize, c.req.AtLeast, c.req.Start = "ann", 1+size, at, nil
			if diff := cmp.Diff(c.want, wholeFeed(c.req, w)); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, 1+size, diff)
			}
		}
	}
}

// What an entry and an answer hold.
func TestFeedEntries(t *testing.T) {
	w := newWorld(t, withFeeds)
	ev := pinned("bob", "cats", "b1")
	ev.GetPinCreated().ItemId, ev.GetPinCreated().Attributes = "clip", []byte{0, 1, 0xff}
	began := time.Now().Add(-time.Second)
	at := w.publish(follow("ann", "bob"), ev, played("zoe", "clip"))
	for order, scored := range map[skeinv1.FeedOrder]bool{newestFirst: false, byHeat: true} {
		res, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: order, AtLeast: at}))
		if err != nil {
			t.Fatal(err)
		}
		m := res.Msg
		if m.GetPosition() != at || m.GetCompleteness() != complete || m.GetNextPageToken() != "" ||
			(m.GetNewestToken() == "") != scored || res.Header().Get(LagHeader) != "0" || len(m.GetEntries()) != 1 {
			t.Fatal(order, m, res.Header())
		}
		e := m.GetEntries()[0]
		if e.GetOwnerId() != "bob" || e.GetPinId() != "b1" || e.GetBoardId() != "cats" || e.GetItemId() != "clip" ||
			string(e.GetAttributes()) != "\x00\x01\xff" || (e.GetScore() != 0) != scored ||
			e.GetCreateTime().AsTime().Before(began) || e.GetCreateTime().AsTime().After(time.Now()) {
			t.Error(order, e)
		}
	}
	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true})
	if res.GetCompleteness() != seenUnavailable || len(res.GetEntries()) != 1 {
		t.Error("hide_seen: ", res)
	}
}

// An unknown reader has an empty feed, and it is complete.
func TestFeedOfNobody(t *testing.T) {
	w := newWorld(t, withFeeds)
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "nobody", Order: order})
		if len(res.GetEntries()) != 0 || res.GetNextPageToken() != "" || res.GetCompleteness() != complete {
			t.Error(res)
		}
	}
	for _, of := range []*skeinv1.ListPinsRequest{pinsOf("nobody"), pinsOn("nobody", ""), pinsOn("nobody", "none")} {
		if got := w.pins(of).all(t, 1, ""); len(got) != 0 {
			t.Error(of, got)
		}
	}
}

func TestFeedPageSizes(t *testing.T) {
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
				t.Errorf("page_size %d, %v: %d entries", size, order, len(res.GetEntries()))
			}
		}
	}
	for size, want := range map[int32]int{0: 50, 1: 1, 1000: 1000, 1001: 1000, 1<<31 - 1: 1000} {
		p, err := w.pins(pinsOn("bob", "cats"))(size, "", at)
		if err != nil || len(p.entries) != want || p.total != 1200 || p.next == "" {
			t.Errorf("page_size %d: %d pins of %d, %v", size, len(p.entries), p.total, err)
		}
	}
}

func TestListPins(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publishPictures()
	for name, c := range map[string]struct {
		of   *skeinv1.ListPinsRequest
		want []string
	}{
		"of a user":        {pinsOf("bob"), []string{"bob//b3", "bob/dogs/b2", "bob/cats/b1"}},
		"on a board":       {pinsOn("bob", "dogs"), []string{"bob/dogs/b2"}},
		"on the default":   {pinsOn("bob", ""), []string{"bob//b3"}},
		"some are deleted": {pinsOf("dan"), []string{"dan//d3", "dan//d1"}},
		"on no board":      {pinsOn("bob", "hens"), nil},
	} {
		for size := range int32(4) {
			if diff := cmp.Diff(c.want, w.pins(c.of).all(t, 1+size, at)); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, 1+size, diff)
			}
		}
	}
}

// Publish a pin, then ask with the position that was returned: it is there, in the list and in the
// feeds.
func TestReadYourOwnPin(t *testing.T) {
	w := newWorld(t, withFeeds)
	const writers, times = 4, 100
	w.publish(follow("fan", "writer0"), follow("fan", "writer1"), follow("fan", "writer2"), follow("fan", "writer3"))
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			me := fmt.Sprint("writer", n)
			for i := range times {
				if err := w.readOwnPin(me, fmt.Sprint(i), i%3); err != nil {
					t.Errorf("%s, pin %d: %v", me, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (w *world) readOwnPin(me, id string, way int) error {
	ctx := context.Background()
	res, err := w.events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{pinned(me, "", id)}}))
	if err != nil {
		return err
	}
	at := res.Msg.GetPosition()
	var position string
	var got []string
	if way == 0 {
		res, err := w.feed.ListPins(ctx, connect.NewRequest(&skeinv1.ListPinsRequest{
			Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: me}, PageSize: 1, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		got, position = pinNames(res.Msg.GetEntries()), res.Msg.GetPosition()
	} else {
		// The reader's own, or a follower's, which shows those of the other writers, too.
		req := &skeinv1.ReadFeedRequest{ReaderId: me, IncludeOwn: true, PageSize: 1, AtLeast: at}
		if way == 2 {
			req = &skeinv1.ReadFeedRequest{ReaderId: "fan", PageSize: 200, AtLeast: at}
		}
		res, err := w.feed.ReadFeed(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		got, position = pinNames(res.Msg.GetEntries()), res.Msg.GetPosition()
	}
	if !slices.Contains(got, me+"//"+id) {
		return fmt.Errorf("not among %v at %s, want %s", got, position, at)
	}
	return nil
}

// A feed is refreshed from the top: what is newer, and nothing else, however many pages that are.
func TestReadFeedNewerThan(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"))
	empty := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at})
	if empty.GetNewestToken() == "" {
		t.Fatal("an empty feed has no top")
	}
	at = w.publish(pinned("bob", "", "1"), pinned("bob", "", "2"))
	first := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	again := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan(first.GetNewestToken())})
	if len(again.GetEntries()) != 0 || again.GetNextPageToken() != "" || again.GetNewestToken() == "" {
		t.Error("nothing is new: ", again)
	}
	var evs []*skeinv1.Event
	var want []string
	for i := range 9 {
		evs = append(evs, pinned("bob", "", fmt.Sprint(3+i)))
		want = append([]string{fmt.Sprintf("bob//%d", 3+i)}, want...)
	}
	at = w.publish(evs...)
	for size := range int32(10) {
		for token, want := range map[string][]string{
			first.GetNewestToken(): want, again.GetNewestToken(): want,
			empty.GetNewestToken(): append(slices.Clone(want), "bob//2", "bob//1"),
		} {
			req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1 + size, AtLeast: at, Start: newerThan(token)}
			if diff := cmp.Diff(want, wholeFeed(req, w)); diff != "" {
				t.Errorf("pages of %d: %s", 1+size, diff)
			}
		}
	}
	// Unset is the same as empty.
	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan("")})
	if len(res.GetEntries()) != 11 {
		t.Error(res)
	}
}

// A token of a page demands the position of the page, also the token of its top.
func TestFeedTokensDemandTheirPosition(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	pins, err := w.pins(pinsOf("bob"))(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
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
	// Without the demand it answers from what it has, and says that this is not all.
	if res := behind.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann"}); res.GetCompleteness() != rebuilding || len(res.GetEntries()) != 0 {
		t.Error(res)
	}
	behind.fold()
	<-behind.inboxReady
	res := behind.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(page.GetNextPageToken())})
	if diff := cmp.Diff([]string{"bob//1"}, pinNames(res.GetEntries())); diff != "" || res.GetCompleteness() != complete {
		t.Error(diff, res)
	}
}

// Two processes over one log continue with each other's pages, also if one pushes to inboxes what
// the other merges.
func TestFeedsOfTwoProcesses(t *testing.T) {
	w := newWorld(t, withFeeds)
	other := w.replica(withFeeds, func(o *worldOptions) { o.inbox.Threshold, o.inbox.Keep = 0, 24 })
	var at string
	for i := range 8 {
		at = w.publish(
			follow("ann", fmt.Sprint("star", i%3)), pinned("star0", "", fmt.Sprint("x", i)), pinned("star1", "", fmt.Sprint("y", i)),
			showing("star2", fmt.Sprint("z", i), fmt.Sprint("x", i)), played("zoe", fmt.Sprint("y", i/2)),
		)
	}
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		for _, once := range []bool{false, true} {
			req := func(size int32) *skeinv1.ReadFeedRequest {
				return &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, Order: order, OnePerItem: once, AtLeast: at}
			}
			want := wholeFeed(req(200), w)
			if n := map[bool]int{false: 24, true: 16}[once]; len(want) != n {
				t.Errorf("%v, %v: %d entries, want %d", order, once, len(want), n)
			}
			for size := int32(1); size < 6; size++ {
				if diff := cmp.Diff(want, wholeFeed(req(size), w, other)); diff != "" {
					t.Errorf("%v, %v, pages of %d: %s", order, once, size, diff)
				}
			}
		}
	}
	if w.count("skein_feed_pages_total", "source", "inbox") == 0 || other.count("skein_feed_pages_total", "source", "merged") == 0 ||
		other.count("skein_feed_outboxes_opened_total") == 0 {
		t.Error("pages are not counted by where they came from")
	}
	status, err := w.server.admin.GetStatus(t.Context(), &skeinv1.GetStatusRequest{}, &call.Info{})
	if err != nil || status.GetFeeds().GetInboxPages() != uint64(w.count("skein_feed_pages_total", "source", "inbox")) ||
		status.GetFeeds().GetInboxPages() == 0 {
		t.Errorf("%v: %v", status.GetFeeds(), err)
	}
	top := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at}).GetNewestToken()
	at = other.publish(pinned("star0", "", "last"))
	res := other.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at, Start: newerThan(top)})
	if diff := cmp.Diff([]string{"star0//last"}, pinNames(res.GetEntries())); diff != "" {
		t.Error(diff)
	}
}

// I9 through the API: what stays in the feed appears once, whatever comes and goes between the
// pages.
func TestFeedWhilePinsChange(t *testing.T) {
	w := newWorld(t, withFeeds)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range 40 {
		evs = append(evs, pinned("bob", "", fmt.Sprintf("p%02d", i)), played("zoe", fmt.Sprintf("p%02d", i)))
	}
	at := w.publish(evs...)
	for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
		var got []string
		gone := map[string]bool{}
		req := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 7, Order: order, AtLeast: at}
		for page := 0; ; page++ {
			res := w.readFeed(req)
			for _, e := range pinNames(res.GetEntries()) {
				if gone[e] || slices.Contains(got, e) {
					t.Errorf("%v: %s on page %d", order, e, page)
				}
				got = append(got, e)
			}
			if res.GetNextPageToken() == "" {
				break
			}
			req.Start = after(res.GetNextPageToken())
			ahead := fmt.Sprintf("p%02d", 10*int(order)+page)
			req.AtLeast = w.publish(
				pinned("bob", "", fmt.Sprintf("new%v-%d", order, page)), unpinned("bob", ahead), played("zoe", fmt.Sprintf("p%02d", 3*page)),
			)
			gone["bob//"+ahead] = true
		}
		for i := range 40 {
			if name := fmt.Sprintf("bob//p%02d", i); i >= 30 && !slices.Contains(got, name) {
				t.Errorf("%v: %s is missing", order, name)
			}
		}
		at = req.GetAtLeast()
	}
}

// Bad input to the feed: each gets an error that names the field.
func TestFeedBadInput(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"), played("zoe", "1"))
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	token, top := page.GetNextPageToken(), page.GetNewestToken()
	trending := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: byHeat, AtLeast: at}).GetNextPageToken()
	pins, err := w.pins(pinsOf("bob"))(1, "", at)
	if err != nil || trending == "" {
		t.Fatalf("%v, a token of the order by heat: %q", err, trending)
	}
	mine, foreign := w.server.views.Keys, ring(t, "log:"+secret(1))
	id := feedservice.FeedListID(feedservice.FeedList, inbox.Feed{Reader: "ann"}, &skeinv1.ReadFeedRequest{})
	signed := func(keys pagetoken.KeyRing, cursor []byte) string {
		return keys.Sign(pagetoken.Token{List: id, Position: w.log.Position(1), Cursor: cursor})
	}
	const invalid = "INVALID_PAGE_TOKEN"
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
		"tampered":              {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(token[:20] + other(token[20]) + token[21:])}, invalid, "page_token"},
		"cut":                   {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(token[:len(token)-1])}, invalid, "page_token"},
		"of another ring":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(signed(foreign, nil))}, invalid, "page_token"},
		"without cursors":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(signed(mine, nil))}, invalid, "page_token"},
		"of malformed cursors":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(signed(mine, []byte{0, 1, 2, 3}))}, invalid, "page_token"},
		"longer than it is":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(signed(mine, []byte{9, 1, 2, 3}))}, invalid, "page_token"},
		"of another reader":     {&skeinv1.ReadFeedRequest{ReaderId: "bob", Start: after(token)}, invalid, "page_token"},
		"of another order":      {&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, Start: after(token)}, invalid, "page_token"},
		"of the order by heat":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(trending)}, invalid, "page_token"},
		"now with own pins":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", IncludeOwn: true, Start: after(token)}, invalid, "page_token"},
		"now without the seen":  {&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Start: after(token)}, invalid, "page_token"},
		"now one per item":      {&skeinv1.ReadFeedRequest{ReaderId: "ann", OnePerItem: true, Start: after(token)}, invalid, "page_token"},
		"a top as a page":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(top)}, invalid, "page_token"},
		"a page as a top":       {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: newerThan(token)}, invalid, "newer_than"},
		"another reader's top":  {&skeinv1.ReadFeedRequest{ReaderId: "bob", Start: newerThan(top)}, invalid, "newer_than"},
		"a top with own pins":   {&skeinv1.ReadFeedRequest{ReaderId: "ann", IncludeOwn: true, Start: newerThan(top)}, invalid, "newer_than"},
		"of a list of pins":     {&skeinv1.ReadFeedRequest{ReaderId: "ann", Start: after(pins.next)}, invalid, "page_token"},
	} {
		t.Log(name)
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(c.req))
		wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
	}
	for name, c := range map[string]struct {
		list          lister
		size          int32
		token         string
		reason, field string
	}{
		"of nobody":        {w.pins(&skeinv1.ListPinsRequest{}), 1, "", "INVALID_FIELD", "target"},
		"owner and board":  {w.pins(pinsOn("", "cats")), 1, "", "INVALID_FIELD", "board.owner_id"},
		"a board's NUL":    {w.pins(pinsOn("bob", "\x00")), 1, "", "INVALID_FIELD", "board.board_id"},
		"negative":         {w.pins(pinsOf("bob")), -1, "", "INVALID_FIELD", "page_size"},
		"of another owner": {w.pins(pinsOf("ann")), 1, pins.next, invalid, "page_token"},
		"of a board":       {w.pins(pinsOn("bob", "")), 1, pins.next, invalid, "page_token"},
		"of a feed":        {w.pins(pinsOf("bob")), 1, token, invalid, "page_token"},
	} {
		t.Log("pins", name)
		_, err := c.list(c.size, c.token, "")
		wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
	}
	status, _, body := w.post(connectv1.FeedServiceReadFeedProcedure, "application/json",
		strings.NewReader(`{"readerId":"ann","pageToken":"x","newerThan":"y"}`))
	if e := parseError(t, body); status != http.StatusBadRequest || e.reason() != "INVALID_FIELD" {
		t.Errorf("both tokens: %d %s", status, body)
	}
}

// TestHeatBehind: a feed by heat ranks what both stores contain, and says so.
func TestHeatBehind(t *testing.T) {
	w := newWorld(t, withFeeds, asleep)
	first := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), played("zoe", "1"))
	w.publish(pinned("bob", "", "3"), played("zoe", "2"), played("zoe", "2"))
	envelopes := w.envelopes(2)
	if err := errors.Join(w.inbox.Serving().Fold(envelopes), w.counters.Serving().Fold(envelopes[:1])); err != nil {
		t.Fatal(err)
	}
	read := func(req *skeinv1.ReadFeedRequest) ([]string, *skeinv1.ReadFeedResponse) {
		res := w.readFeed(req)
		return pinNames(res.GetEntries()), res
	}
	byTime, _ := read(&skeinv1.ReadFeedRequest{ReaderId: "ann"})
	names, res := read(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, PageSize: 1})
	if len(byTime) != 3 || !slices.Equal(names, []string{"bob//1"}) || res.GetPosition() != first {
		t.Errorf("%v of %v at %s, want bob//1 at %s", names, byTime, res.GetPosition(), first)
	}
	if err := w.counters.Serving().Fold(envelopes[1:]); err != nil {
		t.Fatal(err)
	}
	if names, _ := read(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, Start: after(res.GetNextPageToken())}); !slices.Equal(names, []string{"bob//2"}) {
		t.Errorf("the session goes on with %v", names)
	}
	if names, _ := read(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat}); !slices.Equal(names, []string{"bob//2", "bob//1", "bob//3"}) {
		t.Errorf("the next session has %v", names)
	}
}

// A session by heat ends an hour of log time after its beginning, and says so.
func TestExpiredPageToken(t *testing.T) {
	w := newWorld(t, withFeeds, asleep)
	w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"))
	w.publish(follow("ann", "cid"))
	w.publish(follow("ann", "dan"))
	envelopes := w.envelopes(3)
	// The log is stretched: its third envelope comes more than an hour after the second.
	for i, delay := range []events.Micros{0, inbox.SessionLifetime - 60e6, inbox.SessionLifetime + 60e6} {
		for j := range envelopes[i].Events {
			envelopes[i].Events[j].Time += delay
		}
		envelopes[i].Cursor.LastTime += delay
	}
	fold := func(envs []*events.Envelope) {
		t.Helper()
		if err := errors.Join(w.inbox.Serving().Fold(envs), w.counters.Serving().Fold(envs)); err != nil {
			t.Fatal(err)
		}
	}
	fold(envelopes[:1])
	var tokens []string
	for _, order := range []skeinv1.FeedOrder{byHeat, newestFirst} {
		tokens = append(tokens, w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: order}).GetNextPageToken())
	}
	trending := &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Order: byHeat, Start: after(tokens[0])}
	fold(envelopes[1:2])
	if res := w.readFeed(trending); len(res.GetEntries()) != 1 {
		t.Error("within the hour: ", res)
	}
	fold(envelopes[2:])
	_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(trending))
	wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
	t.Log(err)
	res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, Start: after(tokens[1])})
	if len(res.GetEntries()) != 1 {
		t.Error("newest first: ", res)
	}
}

// envelopes reads the first few envelopes of the log.
func (w *world) envelopes(n int) (all []*events.Envelope) {
	w.t.Helper()
	sub, err := w.hub.Subscribe(w.log.Start())
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	for len(all) < n {
		some, err := sub.Next(w.t.Context(), 1)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, env := range some {
			own := *env
			own.Events = slices.Clone(env.Events)
			all = append(all, &own)
		}
	}
	return all[:n]
}

// The health of the feeds is that of the inbox.
func TestHealthOfFeeds(t *testing.T) {
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
	w.wantHealth("without an inbox", map[string]healthv1.HealthCheckResponse_ServingStatus{connectv1.FeedServiceName: notServing})
	_, err = w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann"}))
	wantError(t, err, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}

// other is another letter than one of a token.
func other(letter byte) string {
	if letter == 'A' {
		return "B"
	}
	return "A"
}

// otherEnd is a token with another last letter.
func otherEnd(token string) string { return token[:len(token)-1] + other(token[len(token)-1]) }
