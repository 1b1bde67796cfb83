package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// audience is a reader whose history is kept beside the log, in the plainest form.
type audience struct {
	w      *world
	reader string
	at     string
	played map[string]bool
	// served are all serves, the last one last.
	served []string
}

func (a *audience) publish(evs ...*skeinv1.Event) { a.at = a.w.publish(evs...) }

func (a *audience) play(item string) {
	a.played[item] = true
	a.publish(played(a.reader, item))
}

// serve serves items. Of one event the first item counts as the last served.
func (a *audience) serve(items ...string) {
	for _, item := range slices.Backward(items) {
		a.served = append(a.served, item)
	}
	a.publish(served(a.reader, items...))
}

func (a *audience) clear() {
	a.played, a.served = map[string]bool{}, nil
	a.publish(seenCleared(a.reader))
}

// seen reports whether an item was played, or is among the last 100 different items that were
// served.
func (a *audience) seen(item string, ignoreServed bool) bool {
	if a.played[item] || ignoreServed {
		return a.played[item]
	}
	last := map[string]bool{}
	for _, other := range slices.Backward(a.served) {
		if last[other] = true; len(last) > 100 {
			break
		}
		if other == item {
			return true
		}
	}
	return false
}

// something happens to a reader of some items.
func (a *audience) something(t *rapid.T, items []string) {
	item := rapid.SampledFrom(items)
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0, 1:
		a.play(item.Draw(t, "played"))
	case 2, 3:
		a.serve(rapid.SliceOfNDistinct(item, 1, len(items), rapid.ID).Draw(t, "served")...)
	case 4: // what was served before is no longer among the last 100, but for some
		others := make([]string, rapid.IntRange(90, 100).Draw(t, "others"))
		for i := range others {
			others[i] = fmt.Sprintf("%s-%d", a.at, i)
		}
		a.serve(others...)
	case 5:
		a.clear()
	}
}

// TestHideSeenIsFilterSeen reads sessions whose every page is published as served, while the reader
// plays, is served and forgets: each page holds the next entries of the whole feed that the reader
// has not seen at its position (I9, I10), which are those that FilterSeen leaves.
func TestHideSeenIsFilterSeen(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen)
	readers := 0
	rapid.Check(t, func(t *rapid.T) {
		readers++
		a := &audience{w: w, reader: fmt.Sprintf("reader-%d", readers), played: map[string]bool{}}
		bob, cid := "bob-of-"+a.reader, "cid-of-"+a.reader
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
		for range rapid.IntRange(0, 4).Draw(t, "before") {
			a.something(t, items)
		}
		a.session(t, &skeinv1.ReadFeedRequest{
			ReaderId: a.reader, HideSeen: true, PageSize: rapid.Int32Range(1, 4).Draw(t, "page size"),
			IgnoreServed: rapid.Bool().Draw(t, "ignore served"), OnePerItem: rapid.Bool().Draw(t, "one per item"),
			Order: rapid.SampledFrom([]skeinv1.FeedOrder{newestFirst, byHeat}).Draw(t, "order"),
		}, items)
	})
}

// session reads a feed to its end.
func (a *audience) session(t *rapid.T, req *skeinv1.ReadFeedRequest, items []string) {
	whole := a.w.readFeed(&skeinv1.ReadFeedRequest{
		ReaderId: a.reader, PageSize: 200, OnePerItem: req.GetOnePerItem(), Order: req.GetOrder(), AtLeast: a.at,
	}).GetEntries()
	for {
		unseen := slices.DeleteFunc(slices.Clone(whole), func(e *skeinv1.FeedEntry) bool { return a.seen(e.GetItemId(), req.GetIgnoreServed()) })
		a.demandFilter(t, req.GetIgnoreServed(), items)
		want := unseen[:min(len(unseen), int(req.GetPageSize()))]
		req.AtLeast = a.at
		res := a.w.readFeed(req)
		if diff := cmp.Diff(pinNames(want), pinNames(res.GetEntries())); diff != "" || res.GetCompleteness() != complete {
			t.Fatalf("%v, %v: %s", req, res.GetCompleteness(), diff)
		}
		if more := len(unseen) > len(want); more != (res.GetNextPageToken() != "") {
			t.Fatalf("%v: there is more: %v, the token: %q", req, more, res.GetNextPageToken())
		} else if !more {
			return
		}
		last := want[len(want)-1]
		whole = whole[1+slices.IndexFunc(whole, func(e *skeinv1.FeedEntry) bool {
			return e.GetOwnerId() == last.GetOwnerId() && e.GetPinId() == last.GetPinId()
		}):]
		req.Start = after(res.GetNextPageToken())
		shown := make([]string, 0, len(want))
		for _, e := range want {
			if !slices.Contains(shown, e.GetItemId()) {
				shown = append(shown, e.GetItemId())
			}
		}
		a.serve(shown...)
		if rapid.Bool().Draw(t, "meanwhile") {
			a.something(t, items)
		}
	}
}

// demandFilter demands that FilterSeen leaves the items that the reader has not seen.
func (a *audience) demandFilter(t *rapid.T, ignoreServed bool, items []string) {
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
		t.Fatalf("FilterSeen, ignore_served %v: %s", ignoreServed, diff)
	}
}
