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

// TestCountNewerAgreesWithReadFeed checks that, whatever the options are, the count is the number
// of entries that ReadFeed returns above the same page, up to 100.
func TestCountNewerAgreesWithReadFeed(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(
		follow("ann", "bob"), follow("ann", "cid"), pinned("bob", "", "before"), pinned("ann", "", "mine"), played("ann", "played"), served("ann", "served"),
	)

	// Read the first page of feeds with different options. The first feed has none.
	feeds := []*skeinv1.ReadFeedRequest{
		{},
		{IncludeOwn: true},
		{OnePerItem: true},
		{HideSeen: true},
		{HideSeen: true, IgnoreServed: true},
		{HideSeen: true, OnePerItem: true, IncludeOwn: true},
	}
	newestTokens := make([]string, len(feeds))
	for i, feed := range feeds {
		feed.ReaderId = "ann"
		feed.PageSize = 200
		feed.AtLeast = at
		newestTokens[i] = w.readFeed(feed).GetNewestToken()
	}

	// Each step adds to the ones before it.
	pins := 0
	for _, step := range []struct {
		name string
		evs  []*skeinv1.Event
		// wantCount and wantMore are those of the feed without options.
		wantCount uint32
		wantMore  bool
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
			feed.AtLeast = at
			feed.Start = nil
			got := w.countNewer(feed, newestTokens[i])
			if got.GetPosition() != at || got.GetCompleteness() != complete {
				t.Errorf("%s, %v: got %v, want a complete count at %s", step.name, feed, got, at)
			}

			feed.Start = newerThan(newestTokens[i])
			entries := len(w.readFeed(feed).GetEntries())
			if int(got.GetCount()) != min(entries, 100) || got.GetMore() != (entries > 100) {
				t.Errorf("%s, %v: got %v, want the count of %d entries", step.name, feed, got, entries)
			}
			if i == 0 && (got.GetCount() != step.wantCount || got.GetMore() != step.wantMore) {
				t.Errorf("%s: got %v, want the count %d and more %v", step.name, got, step.wantCount, step.wantMore)
			}
		}
	}

	// A reader who has no page yet gets the count of the whole feed.
	for reader, wantCount := range map[string]uint32{"ann": 100, "stranger": 0} {
		got := w.countNewer(&skeinv1.ReadFeedRequest{ReaderId: reader, AtLeast: at}, "")
		if got.GetCount() != wantCount || got.GetMore() != (wantCount > 0) {
			t.Errorf("%s without a page: got %v, want the count %d and more %v", reader, got, wantCount, wantCount > 0)
		}
	}
}

// pinsBy returns creations of n pins. The ids are numbered from *pins, which it advances.
func pinsBy(owner string, pins *int, n int) (evs []*skeinv1.Event) {
	for range n {
		*pins++
		evs = append(evs, pinned(owner, "", fmt.Sprint("n", *pins)))
	}
	return evs
}

func TestCountNewerRefusesBadInput(t *testing.T) {
	w := newWorld(t, withAllStores)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "p"), pinned("bob", "", "q"))
	page := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	newest := page.GetNewestToken()
	for name, c := range map[string]struct {
		req           *skeinv1.CountNewerRequest
		reason, field string
	}{
		"no reader":               {&skeinv1.CountNewerRequest{NewerThan: newest}, "INVALID_FIELD", "reader_id"},
		"reader with a space":     {&skeinv1.CountNewerRequest{ReaderId: "a b"}, "INVALID_FIELD", "reader_id"},
		"damaged token":           {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: "x"}, "INVALID_PAGE_TOKEN", "newer_than"},
		"token that is too long":  {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: strings.Repeat("x", 1025)}, "INVALID_FIELD", "newer_than"},
		"token of the next page":  {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: page.GetNextPageToken()}, "INVALID_PAGE_TOKEN", "newer_than"},
		"token of another reader": {&skeinv1.CountNewerRequest{ReaderId: "bob", NewerThan: newest}, "INVALID_PAGE_TOKEN", "newer_than"},
		"token of other options":  {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: newest, IncludeOwn: true}, "INVALID_PAGE_TOKEN", "newer_than"},
		"ignore_served alone":     {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: newest, IgnoreServed: true}, "INVALID_FIELD", "ignore_served"},
		"damaged position":        {&skeinv1.CountNewerRequest{ReaderId: "ann", NewerThan: newest, AtLeast: "x"}, "INVALID_POSITION", "at_least"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.feed.CountNewer(t.Context(), connect.NewRequest(c.req))
			wantError(t, err, connect.CodeInvalidArgument, c.reason, c.field)
		})
	}
}

// TestCountNewerWaitsForItsStores checks that a count contains the position that the caller demands
// (I9). Without the seen store, it hides nothing and says so.
func TestCountNewerWaitsForItsStores(t *testing.T) {
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
		t.Errorf("got %v, want the count 1 at %s, without the seen store", got, at)
	}
}

// TestCountNewerDemandsRights checks that a reader's counts are only for callers with the role
// `read` who are not bound to another user.
func TestCountNewerDemandsRights(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["publisher"]).publish(follow("ann", "bob"), pinned("bob", "", "p"))
	for _, caller := range []string{"reader", "ann"} {
		got := g.as(g.tokens[caller]).countNewer(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "")
		if got.GetCount() != 1 {
			t.Errorf("%s asks about ann: got %v, want the count 1", caller, got)
		}
	}
	for caller, wantReason := range map[string]string{"ann": "OTHER_USER", "publisher": "ROLE_MISSING", "admin": "ROLE_MISSING"} {
		t.Run(caller+" asks about bob", func(t *testing.T) {
			_, err := g.as(g.tokens[caller]).feed.CountNewer(t.Context(), connect.NewRequest(&skeinv1.CountNewerRequest{ReaderId: "bob"}))
			wantError(t, err, connect.CodePermissionDenied, wantReason, "")
		})
	}
}
