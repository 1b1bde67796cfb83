package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// feedWatching is a client of WatchFeed.
type feedWatching struct {
	*connect.ServerStreamForClient[skeinv1.WatchFeedResponse]
	w    *world
	req  *skeinv1.WatchFeedRequest
	last *skeinv1.WatchFeedResponse
}

func (w *world) watchFeed(req *skeinv1.WatchFeedRequest) *feedWatching {
	w.t.Helper()
	// What is lost is not waited for.
	ctx, cancel := context.WithTimeout(w.t.Context(), patienceOfTests)
	stream, err := w.feed.WatchFeed(ctx, connect.NewRequest(req))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		_ = stream.Close()
	})
	return &feedWatching{stream, w, req, nil}
}

// next is the next message.
func (f *feedWatching) next() *skeinv1.WatchFeedResponse {
	f.w.t.Helper()
	if !f.Receive() {
		f.w.t.Fatal(f.Err())
	}
	f.last = f.Msg()
	return f.last
}

// reach reads messages until one has the number of CountNewer at a position.
func (f *feedWatching) reach(at string) {
	f.w.t.Helper()
	want := f.w.countNewer(&skeinv1.ReadFeedRequest{
		ReaderId: f.req.GetReaderId(), IncludeOwn: f.req.GetIncludeOwn(), HideSeen: f.req.GetHideSeen(), OnePerItem: f.req.GetOnePerItem(),
		IgnoreServed: f.req.GetIgnoreServed(), AtLeast: at,
	}, f.req.GetNewerThan())
	read := func(t *timestamppb.Timestamp) bool {
		return f.req.GetNewerThan() != "" || proto.Equal(t, want.GetReadTime())
	}
	for f.last == nil || f.last.GetCount() != want.GetCount() || f.last.GetMore() != want.GetMore() || !read(f.last.GetReadTime()) {
		f.next()
	}
}

// TestWatchFeed: whatever happens, each watcher reaches the number that CountNewer returns.
func TestWatchFeed(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "before"), pinned("ann", "", "mine"))
	var watchers []*feedWatching
	for _, feed := range []*skeinv1.ReadFeedRequest{
		{}, {IncludeOwn: true}, {OnePerItem: true}, {HideSeen: true}, {HideSeen: true, IgnoreServed: true, OnePerItem: true},
	} {
		feed.ReaderId, feed.AtLeast = "ann", at
		f := w.watchFeed(&skeinv1.WatchFeedRequest{
			ReaderId: "ann", NewerThan: w.readFeed(feed).GetNewestToken(), IncludeOwn: feed.GetIncludeOwn(), HideSeen: feed.GetHideSeen(),
			OnePerItem: feed.GetOnePerItem(), IgnoreServed: feed.GetIgnoreServed(), AtLeast: at,
		})
		if m := f.next(); m.GetCount() != 0 || m.GetMore() || m.GetPosition() != at || m.GetCompleteness() != complete {
			t.Errorf("it begins with %v", m)
		}
		watchers = append(watchers, f)
	}
	pins := 0
	for _, step := range []struct {
		what string
		evs  []*skeinv1.Event
	}{
		{"new pins", []*skeinv1.Event{showing("bob", "1", "twice"), showing("bob", "2", "twice"), showing("bob", "3", "third")}},
		{"of the reader", []*skeinv1.Event{pinned("ann", "", "4")}},
		{"a play", []*skeinv1.Event{played("ann", "third")}},
		{"a serve", []*skeinv1.Event{served("ann", "twice")}},
		{"a pin less", []*skeinv1.Event{unpinned("bob", "1")}},
		{"pins of somebody else", []*skeinv1.Event{pinned("cid", "cats", "5"), pinned("dan", "", "5")}},
		{"a follow", []*skeinv1.Event{follow("ann", "dan")}},
		{"a pin of the one followed", []*skeinv1.Event{pinned("dan", "", "6")}},
		{"a follow of a board", []*skeinv1.Event{followBoard("ann", "cid", "cats")}},
		{"a pin there", []*skeinv1.Event{pinned("cid", "cats", "7")}},
		{"a mute", []*skeinv1.Event{mute("ann", "dan")}},
		{"a re-pin", []*skeinv1.Event{repinned("bob", "8", "8", "cid", "5")}},
		{"hidden re-pins", []*skeinv1.Event{hideRepins("ann", "bob")}},
		{"a hidden re-pin", []*skeinv1.Event{repinned("bob", "9", "9", "cid", "5")}},
		{"shown re-pins", []*skeinv1.Event{setFollow("ann", "bob", nil)}},
		{"re-pins of others", []*skeinv1.Event{repinned("bob", "10", "10", "kim", "k"), repinned("bob", "11", "11", "lou", "l")}},
		{"a mute of the re-pinned user", []*skeinv1.Event{mute("ann", "kim")}},
		{"the deletion of the re-pinned user", []*skeinv1.Event{deletedUser("lou")}},
		{"a block", []*skeinv1.Event{block("cid", "ann")}},
		{"an unfollow", []*skeinv1.Event{unfollow("ann", "bob")}},
		{"and back", []*skeinv1.Event{follow("ann", "bob")}},
		{"many", pinsBy("bob", &pins, 150)},
	} {
		at = w.publish(step.evs...)
		for _, f := range watchers {
			f.reach(at)
		}
	}
	// From the top of a message on, the number begins at 0.
	top := watchers[0].last.GetNewestToken()
	again := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", NewerThan: top, AtLeast: at})
	if m := again.next(); m.GetCount() != 0 || m.GetMore() {
		t.Errorf("from the top on: %v", m)
	}
	// Who has read nothing is shown everything.
	if m := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"}).next(); m.GetCount() != 100 || !m.GetMore() {
		t.Errorf("without a page: %v", m)
	}
}

func unblocked(user, blocked string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{
		UserUnblocked: &skeinv1.UserUnblocked{UserId: user, TargetUserId: blocked},
	}}
}

// TestWatchFeedAtRandom: watchers come and go while users follow, block and pin at random, and each
// reaches the number of CountNewer.
func TestWatchFeedAtRandom(t *testing.T) {
	w := newWorld(t, withAllStores)
	random := rand.New(rand.NewPCG(7, 7))
	users := []string{"ann", "bob", "cid", "dan", "eve"}
	user := func() (a, b string) {
		i := random.IntN(len(users))
		return users[i], users[(i+1+random.IntN(len(users)-1))%len(users)]
	}
	var watchers []*feedWatching
	for round := range 60 {
		var evs []*skeinv1.Event
		for i := range 1 + random.IntN(6) {
			a, b := user()
			pin, item := fmt.Sprint(random.IntN(6)), fmt.Sprint("item", random.IntN(6))
			evs = append(evs, []*skeinv1.Event{
				follow(a, b), follow(a, b), unfollow(a, b), followBoard(a, b, "cats"), unfollowBoard(a, b, "cats"), block(a, b),
				unblocked(a, b), mute(a, b), pinned(a, "cats", fmt.Sprintf("%d.%d", round, i)), pinned(a, "", pin), unpinned(a, pin),
				showing(a, fmt.Sprint(round, "-", i), item), played(a, item), served(a, item),
			}[random.IntN(14)])
		}
		at := w.publish(evs...)
		if round%4 == 0 {
			reader, _ := user()
			watchers = append(watchers, w.watchFeed(&skeinv1.WatchFeedRequest{
				ReaderId: reader, HideSeen: round%8 == 0, IncludeOwn: round%3 == 0, OnePerItem: round%5 == 0,
			}))
		}
		for _, f := range watchers {
			f.reach(at)
		}
		if len(watchers) > 8 {
			_ = watchers[0].Close()
			watchers = watchers[1:]
		}
	}
}

// While nothing changes, the last message comes again.
func TestWatchFeedInSilence(t *testing.T) {
	w := newWorld(t, withFeeds, func(o *worldOptions) { o.watchPeriod = time.Millisecond })
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"))
	f := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	first := f.next()
	for range 3 {
		if diff := cmp.Diff(first, f.next(), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	for f.Receive() {
	}
	wantError(t, f.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}

func TestWatchFeedThatIsRefused(t *testing.T) {
	w := newWorld(t, withFeeds, func(o *worldOptions) { o.Limits.FeedWatches = 1 })
	for name, c := range map[string]struct {
		req           *skeinv1.WatchFeedRequest
		reason, field string
	}{
		"no reader":   {&skeinv1.WatchFeedRequest{}, "INVALID_FIELD", "reader_id"},
		"no token":    {&skeinv1.WatchFeedRequest{ReaderId: "ann", NewerThan: "x"}, "INVALID_PAGE_TOKEN", "newer_than"},
		"no filter":   {&skeinv1.WatchFeedRequest{ReaderId: "ann", IgnoreServed: true}, "INVALID_FIELD", "ignore_served"},
		"no position": {&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			f := w.watchFeed(c.req)
			for f.Receive() {
				t.Error(f.Msg())
			}
			wantError(t, f.Err(), connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
	w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"}).next()
	more := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"})
	more.Receive()
	wantError(t, more.Err(), connect.CodeResourceExhausted, "OVERLOADED", "")
	limit := "the service allows 1 streams of skein.v1.FeedService/WatchFeed at a time (set by --memory)"
	if !strings.Contains(more.Err().Error(), limit) {
		t.Errorf("expected an error that contains %q, got %v", limit, more.Err())
	}
}

func TestWatchFeedOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, token := range []string{"reader", "ann"} {
		if m := g.as(g.tokens[token]).watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at}).next(); m.GetCount() != 1 {
			t.Errorf("%s: %v", token, m)
		}
	}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		f := g.as(g.tokens[token]).watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "bob"})
		f.Receive()
		wantError(t, f.Err(), connect.CodePermissionDenied, reason, "")
	}
}

// The end of the inbox ends the watchers.
func TestWatchFeedOfStoppedInbox(t *testing.T) {
	w := newWorld(t, withFeeds)
	f := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: w.publish(follow("ann", "bob"))})
	f.next()
	w.unfold()
	w.publish(pinned("bob", "", "p"))
	for f.Receive() {
	}
	wantError(t, f.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
}
