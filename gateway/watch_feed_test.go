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

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// feedWatching is a client of WatchFeed.
type feedWatching struct {
	*connect.ServerStreamForClient[skeinv1.WatchFeedResponse]
	w   *world
	req *skeinv1.WatchFeedRequest
	// last is the last message; nil before the first one.
	last *skeinv1.WatchFeedResponse
}

// watchFeed opens a stream, which ends with the test.
func (w *world) watchFeed(req *skeinv1.WatchFeedRequest) *feedWatching {
	w.t.Helper()
	// With the deadline, a test fails if a message that it waits for never comes.
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

// next returns the next message.
func (f *feedWatching) next() *skeinv1.WatchFeedResponse {
	f.w.t.Helper()
	if !f.Receive() {
		f.w.t.Fatal(f.Err())
	}
	f.last = f.Msg()
	return f.last
}

// reach reads messages until one has the count that CountNewer returns at a position. Without a
// token, the message must also have the same read marker.
func (f *feedWatching) reach(at string) {
	f.w.t.Helper()
	want := f.w.countNewer(&skeinv1.ReadFeedRequest{
		ReaderId: f.req.GetReaderId(), IncludeOwn: f.req.GetIncludeOwn(), HideSeen: f.req.GetHideSeen(), OnePerItem: f.req.GetOnePerItem(),
		IgnoreServed: f.req.GetIgnoreServed(), AtLeast: at,
	}, f.req.GetNewerThan())

	isReached := func() bool {
		if f.last == nil || f.last.GetCount() != want.GetCount() || f.last.GetMore() != want.GetMore() {
			return false
		}
		return f.req.GetNewerThan() != "" || proto.Equal(f.last.GetReadTime(), want.GetReadTime())
	}
	for !isReached() {
		f.next()
	}
}

// TestWatchFeed checks that each watcher reaches the count that CountNewer returns, whatever
// happens.
func TestWatchFeed(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "before"), pinned("ann", "", "mine"))

	// Each watcher counts from the newest page, so its count begins at 0.
	var watchers []*feedWatching
	for _, feed := range []*skeinv1.ReadFeedRequest{
		{}, {IncludeOwn: true}, {OnePerItem: true}, {HideSeen: true}, {HideSeen: true, IgnoreServed: true, OnePerItem: true},
	} {
		feed.ReaderId = "ann"
		feed.AtLeast = at
		f := w.watchFeed(&skeinv1.WatchFeedRequest{
			ReaderId: "ann", NewerThan: w.readFeed(feed).GetNewestToken(), IncludeOwn: feed.GetIncludeOwn(), HideSeen: feed.GetHideSeen(),
			OnePerItem: feed.GetOnePerItem(), IgnoreServed: feed.GetIgnoreServed(), AtLeast: at,
		})
		if m := f.next(); m.GetCount() != 0 || m.GetMore() || m.GetPosition() != at || m.GetCompleteness() != complete {
			t.Errorf("first message to %v: got %v, want count 0 at %s, complete", f.req, m, at)
		}
		watchers = append(watchers, f)
	}

	pins := 0
	for _, step := range []struct {
		name string
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
		t.Log(step.name) // A watcher that does not reach the count fails in next, which has no name.
		at = w.publish(step.evs...)
		for _, f := range watchers {
			f.reach(at)
		}
	}

	// A watcher that begins at the newest token of a message begins at 0 again.
	token := watchers[0].last.GetNewestToken()
	fromToken := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", NewerThan: token, AtLeast: at})
	if m := fromToken.next(); m.GetCount() != 0 || m.GetMore() {
		t.Errorf("from the newest token of a message: got %v, want count 0", m)
	}

	// For a reader who has read nothing, all pins count.
	if m := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"}).next(); m.GetCount() != 100 || !m.GetMore() {
		t.Errorf("without a token: got %v, want count 100 and more", m)
	}
}

func unblocked(user, blocked string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{
		UserUnblocked: &skeinv1.UserUnblocked{UserId: user, TargetUserId: blocked},
	}}
}

// TestWatchFeedAtRandom checks that each watcher reaches the count that CountNewer returns, while
// watchers come and go and users follow, block and pin at random.
func TestWatchFeedAtRandom(t *testing.T) {
	w := newWorld(t, withAllStores)
	random := rand.New(rand.NewPCG(7, 7))
	users := []string{"ann", "bob", "cid", "dan", "eve"}
	twoUsers := func() (a, b string) {
		i := random.IntN(len(users))
		j := (i + 1 + random.IntN(len(users)-1)) % len(users)
		return users[i], users[j]
	}

	var watchers []*feedWatching
	for round := range 60 {
		var evs []*skeinv1.Event
		for i := range 1 + random.IntN(6) {
			a, b := twoUsers()
			pin := fmt.Sprint(random.IntN(6))
			item := fmt.Sprint("item", random.IntN(6))
			candidates := []*skeinv1.Event{
				follow(a, b), follow(a, b), unfollow(a, b), followBoard(a, b, "cats"), unfollowBoard(a, b, "cats"), block(a, b),
				unblocked(a, b), mute(a, b), pinned(a, "cats", fmt.Sprintf("%d.%d", round, i)), pinned(a, "", pin), unpinned(a, pin),
				showing(a, fmt.Sprint(round, "-", i), item), played(a, item), served(a, item),
			}
			evs = append(evs, candidates[random.IntN(len(candidates))])
		}
		at := w.publish(evs...)

		if round%4 == 0 {
			reader, _ := twoUsers()
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

// TestWatchFeedInSilence checks that the server sends the last message again and again while
// nothing changes.
func TestWatchFeedInSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFeeds, func(o *worldOptions) { o.watchPeriod = time.Millisecond })
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"))
	f := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at})
	first := f.next()
	for range 3 {
		if diff := cmp.Diff(first, f.next(), protocmp.Transform()); diff != "" {
			t.Errorf("repeated message (-first +got):\n%s", diff)
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
				t.Errorf("got message %v, want none", f.Msg())
			}
			wantError(t, f.Err(), connect.CodeInvalidArgument, c.reason, c.field)
		})
	}

	// A second stream is beyond the limit.
	w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"}).next()
	beyondLimit := w.watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann"})
	if beyondLimit.Receive() {
		t.Fatalf("stream beyond the limit: got message %v, want none", beyondLimit.Msg())
	}
	wantError(t, beyondLimit.Err(), connect.CodeResourceExhausted, "OVERLOADED", "")
	limit := "the service allows 1 streams of skein.v1.FeedService/WatchFeed at a time (set by --memory)"
	if !strings.Contains(beyondLimit.Err().Error(), limit) {
		t.Errorf("got error %q, want one that contains %q", beyondLimit.Err(), limit)
	}
}

func TestWatchFeedOfCallers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, token := range []string{"reader", "ann"} {
		m := g.as(g.tokens[token]).watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "ann", AtLeast: at}).next()
		if m.GetCount() != 1 {
			t.Errorf("caller %s: got %v, want count 1", token, m)
		}
	}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		t.Run("refused "+token, func(t *testing.T) {
			f := g.as(g.tokens[token]).watchFeed(&skeinv1.WatchFeedRequest{ReaderId: "bob"})
			if f.Receive() {
				t.Errorf("got message %v, want none", f.Msg())
			}
			wantError(t, f.Err(), connect.CodePermissionDenied, reason, "")
		})
	}
}

// TestWatchFeedOfStoppedInbox checks that the watchers end when the inbox stops folding.
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
