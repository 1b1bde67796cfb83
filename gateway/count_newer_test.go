package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countNewer asks how many entries are above a page that a call of ReadFeed has read.
func (w *world) countNewer(feed *skeinv1.ReadFeedRequest, newerThan string) *skeinv1.CountNewerResponse {
	w.t.Helper()
	return ask(w, w.feed.CountNewer, &skeinv1.CountNewerRequest{
		ReaderId: feed.GetReaderId(), NewerThan: newerThan, IncludeOwn: feed.GetIncludeOwn(), HideSeen: feed.GetHideSeen(),
		OnePerItem: feed.GetOnePerItem(), IgnoreServed: feed.GetIgnoreServed(), AtLeast: feed.GetAtLeast(),
	})
}

// TestCountNewer: whatever the options are, the count is the number of entries that ReadFeed
// returns above the same page, up to 100.
func TestCountNewer(t *testing.T) {
	w := newWorld(t, withAllStores)
	feeds := []*skeinv1.ReadFeedRequest{
		{},
		{IncludeOwn: true},
		{OnePerItem: true},
		{HideSeen: true},
		{HideSeen: true, IgnoreServed: true},
		{HideSeen: true, OnePerItem: true, IncludeOwn: true},
	}
	tops := make([]string, len(feeds))
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), pinned("bob", "", "before"), pinned("ann", "", "mine"), played("ann", "played"), served("ann", "served"),
	)
	pins := 0
	for _, step := range []struct {
		what string
		evs  []*skeinv1.Event
		// want is the count of the feed without options, above the first page.
		want uint32
		more bool
	}{
		{"nothing yet", nil, 0, false},
		{"some", []*skeinv1.Event{
			showing("bob", "1", "twice"), showing("cid", "2", "twice"), showing("bob", "3", "played"), showing("bob", "4", "served"), pinned("ann", "", "5"),
		}, 4, false},
		{"less", []*skeinv1.Event{unpinned("bob", "1"), mute("ann", "cid"), history(pinned("bob", "", "old"), 1, 1)}, 2, false},
		{"100", pinsBy("bob", &pins, 98), 100, false},
		{"more", pinsBy("bob", &pins, 1), 100, true},
		{"many", pinsBy("bob", &pins, 150), 100, true},
	} {
		if step.evs != nil {
			at = w.publish(step.evs...)
		}
		for i, feed := range feeds {
			feed.ReaderId, feed.AtLeast, feed.PageSize, feed.Start = "ann", at, 200, nil
			if tops[i] == "" {
				tops[i] = w.readFeed(feed).GetNewestToken()
			}
			got := w.countNewer(feed, tops[i])
			feed.Start = newerThan(tops[i])
			page := w.readFeed(feed)
			if n := len(page.GetEntries()); int(got.GetCount()) != min(n, 100) || got.GetMore() != (n > 100) {
				t.Errorf("%s, %v: %v, but %d entries", step.what, feed, got, n)
			}
			if got.GetPosition() != at || got.GetCompleteness() != complete {
				t.Errorf("%s, %v: %v", step.what, feed, got)
			}
			if i == 0 && (got.GetCount() != step.want || got.GetMore() != step.more) {
				t.Errorf("%s: %v, want %d, %v", step.what, got, step.want, step.more)
			}
		}
	}
	// Who has read nothing is shown everything.
	for reader, want := range map[string]uint32{"ann": 100, "stranger": 0} {
		if got := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: reader, AtLeast: at}, ""); got.GetCount() != want || got.GetMore() != (want > 0) {
			t.Errorf("%s without a page: %v", reader, got)
		}
	}
}

// pinsBy makes so many pins, and counts them.
func pinsBy(owner string, pins *int, n int) (evs []*skeinv1.Event) {
	for range n {
		*pins++
		evs = append(evs, pinned(owner, "", fmt.Sprint("n", *pins)))
	}
	return evs
}

func TestCountNewerBadInput(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), pinned("bob", "", "q"))
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	top := page.GetNewestToken()
	for name, c := range map[string]struct {
		req           *skeinv1.CountNewerRequest
		reason, field string
	}{
		"no reader":         {&skeinv1.CountNewerRequest{NewerThan: top}, "INVALID_FIELD", "reader_id"},
		"a space":           {&skeinv1.CountNewerRequest{ReaderId: "a b"}, "INVALID_FIELD", "reader_id"},
		"no token":          {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: "x"}, "INVALID_PAGE_TOKEN", "newer_than"},
		"too long":          {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: strings.Repeat("x", 1025)}, "INVALID_FIELD", "newer_than"},
		"a page token":      {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: page.GetNextPageToken()}, "INVALID_PAGE_TOKEN", "newer_than"},
		"of another reader": {&skeinv1.CountNewerRequest{ReaderId: "bob", NewerThan: top}, "INVALID_PAGE_TOKEN", "newer_than"},
		"of other options":  {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: top, IncludeOwn: true}, "INVALID_PAGE_TOKEN", "newer_than"},
		"no filter":         {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: top, IgnoreServed: true}, "INVALID_FIELD", "ignore_served"},
		"no position":       {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: top, AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.CountNewer(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// A count is of a position that contains what is demanded, and that of the page (I9). Without the
// seen store it hides nothing, and says so.
func TestCountNewerBehind(t *testing.T) {
	w := newWorld(t, withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), played("ann", "p"))
	envelopes := w.envelopes(1)
	req := &skeinv1.CountNewerRequest{ReaderId: "ann", AtLeast: at}
	_, err := w.feed.CountNewer(t.Context(), connect.NewRequest(req))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	if err := w.inbox.Serving().Fold([]*events.Envelope{envelopes[0]}); err != nil {
		t.Fatal(err)
	}
	got := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, AtLeast: at}, "")
	if got.GetCount() != 1 || got.GetPosition() != at || got.GetCompleteness() != seenUnavailable {
		t.Error(got)
	}
}

func TestCountNewerOfCallers(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, token := range []string{"reader", "ann"} {
		if got := g.as(g.tokens[token]).countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, ""); got.GetCount() != 1 {
			t.Errorf("%s: %v", token, got)
		}
	}
	for token, reason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		_, err := g.as(g.tokens[token]).feed.CountNewer(t.Context(), connect.NewRequest(&skeinv1.CountNewerRequest{ReaderId: "bob"}))
		wantError(t, err, connect.CodePermissionDenied, reason, "")
	}
}
