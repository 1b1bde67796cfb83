package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// audience is a reader and a plain model of what this reader has seen. Each of its events is both
// published and recorded in the model.
type audience struct {
	w      *world
	reader string
	// at is the position of the last event.
	at     string
	played map[string]bool
	// served has the items that were served, oldest first. An item may be there several times.
	served []string
}

func (a *audience) publish(evs ...*skeinv1.Event) { a.at = a.w.publish(evs...) }

func (a *audience) play(item string) {
	a.played[item] = true
	a.publish(played(a.reader, item))
}

// serve serves items in one event, whose first item counts as the one that was served last.
func (a *audience) serve(items ...string) {
	for _, item := range slices.Backward(items) {
		a.served = append(a.served, item)
	}
	a.publish(served(a.reader, items...))
}

func (a *audience) clear() {
	a.played = map[string]bool{}
	a.served = nil
	a.publish(seenCleared(a.reader))
}

// seen reports whether an item was played or is among the last 100 different items that were
// served. With ignoreServed, only plays count.
func (a *audience) seen(item string, ignoreServed bool) bool {
	if a.played[item] {
		return true
	}
	if ignoreServed {
		return false
	}

	newer := map[string]bool{}
	for _, servedItem := range slices.Backward(a.served) {
		newer[servedItem] = true
		if len(newer) > 100 {
			return false
		}
		if servedItem == item {
			return true
		}
	}
	return false
}

// something draws and publishes an event by which the reader sees some of the items, or forgets
// what was seen.
func (a *audience) something(t *rapid.T, items []string) {
	item := rapid.SampledFrom(items)
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0, 1:
		a.play(item.Draw(t, "played"))
	case 2, 3:
		a.serve(rapid.SliceOfNDistinct(item, 1, len(items), rapid.ID).Draw(t, "served")...)
	case 4:
		// With these items, at most the newest ten of those that were served before are still among
		// the last 100. Their ids contain the position, so that they are new each time.
		others := make([]string, rapid.IntRange(90, 100).Draw(t, "others"))
		for i := range others {
			others[i] = fmt.Sprintf("%s-%d", a.at, i)
		}
		a.serve(others...)
	case 5:
		a.clear()
	}
}

// TestHideSeenIsFilterSeen reads sessions and publishes each page as served, while the reader also
// plays, is served and forgets items. Each page must have the next entries of the whole feed that
// the reader has not seen at its position (I9, I10). Their items must be those that FilterSeen
// leaves.
func TestHideSeenIsFilterSeen(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	readers := 0
	rapid.Check(t, func(t *rapid.T) {
		// All runs share a world, so each has users and items of its own.
		readers++
		a := &audience{w: w, reader: fmt.Sprintf("reader-%d", readers), played: map[string]bool{}}
		bob := "bob-of-" + a.reader
		cid := "cid-of-" + a.reader
		evs := []*skeinv1.Event{follow(a.reader, bob), follow(a.reader, cid)}
		items := make([]string, rapid.IntRange(1, 10).Draw(t, "items"))
		for i := range items {
			items[i] = fmt.Sprintf("%s-%d", a.reader, i)
			evs = append(evs, showing(bob, items[i], items[i]))
			if rapid.Bool().Draw(t, "two pins") {
				evs = append(evs, showing(cid, items[i], items[i]))
			}
			if rapid.Bool().Draw(t, "heated") {
				evs = append(evs, played("zoe", items[i]))
			}
		}
		a.publish(evs...)

		for range rapid.IntRange(0, 4).Draw(t, "changes before") {
			a.something(t, items)
		}
		a.checkSession(t, &skeinv1.ReadFeedRequest{
			ReaderId: a.reader, HideSeen: true, PageSize: rapid.Int32Range(1, 4).Draw(t, "page size"),
			IgnoreServed: rapid.Bool().Draw(t, "ignore served"), OnePerItem: rapid.Bool().Draw(t, "one per item"),
			Order: rapid.SampledFrom([]skeinv1.FeedOrder{newestFirst, byHeat}).Draw(t, "order"),
		}, items)
	})
}

// checkSession reads a feed to its end and compares each page with the model.
func (a *audience) checkSession(t *rapid.T, req *skeinv1.ReadFeedRequest, items []string) {
	// rest has the entries of the whole feed, seen or not, that come after the last page.
	rest := a.w.readFeed(&skeinv1.ReadFeedRequest{
		ReaderId: a.reader, PageSize: 200, OnePerItem: req.GetOnePerItem(), Order: req.GetOrder(), AtLeast: a.at,
	}).GetEntries()
	for {
		a.checkFilterSeen(t, req.GetIgnoreServed(), items)
		unseen := slices.DeleteFunc(slices.Clone(rest), func(e *skeinv1.FeedEntry) bool {
			return a.seen(e.GetItemId(), req.GetIgnoreServed())
		})
		want := unseen[:min(len(unseen), int(req.GetPageSize()))]

		req.AtLeast = a.at
		res := a.w.readFeed(req)
		if diff := cmp.Diff(pinNames(want), pinNames(res.GetEntries())); diff != "" {
			t.Fatalf("%v: page (-want +got):\n%s", req, diff)
		}
		if res.GetCompleteness() != complete {
			t.Fatalf("%v: got %v, want %v", req, res.GetCompleteness(), complete)
		}

		// A page has a token only if there are more entries.
		hasMore := len(unseen) > len(want)
		if hasToken := res.GetNextPageToken() != ""; hasToken != hasMore {
			t.Fatalf("%v: got a next page token: %v, want %v", req, hasToken, hasMore)
		}
		if !hasMore {
			return
		}

		// The next page begins after the last entry of this page.
		last := want[len(want)-1]
		lastIndex := slices.IndexFunc(rest, func(e *skeinv1.FeedEntry) bool {
			return e.GetOwnerId() == last.GetOwnerId() && e.GetPinId() == last.GetPinId()
		})
		rest = rest[lastIndex+1:]
		req.Start = after(res.GetNextPageToken())

		// Serve each item of the page once, and perhaps change something else.
		itemsOfPage := make([]string, 0, len(want))
		for _, e := range want {
			if !slices.Contains(itemsOfPage, e.GetItemId()) {
				itemsOfPage = append(itemsOfPage, e.GetItemId())
			}
		}
		a.serve(itemsOfPage...)
		if rapid.Bool().Draw(t, "change before the next page") {
			a.something(t, items)
		}
	}
}

// checkFilterSeen checks that FilterSeen leaves the items that the reader has not seen.
func (a *audience) checkFilterSeen(t *rapid.T, ignoreServed bool, items []string) {
	var want []uint32
	for i, item := range items {
		if !a.seen(item, ignoreServed) {
			want = append(want, uint32(i))
		}
	}
	res := ask(a.w, a.w.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{
		UserId: a.reader, ItemIds: items, IgnoreServed: ignoreServed, AtLeast: a.at,
	})
	if diff := cmp.Diff(want, res.GetUnseenIndexes()); diff != "" {
		t.Fatalf("FilterSeen, ignore_served %v: unseen indexes (-want +got):\n%s", ignoreServed, diff)
	}
}
