package gateway

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// keepIn keeps the stores in the given directories.
func keepIn(dirs map[string]string) func(*worldOptions) {
	return func(o *worldOptions) { o.dirs = dirs }
}

// shutDown ends a process, so that another one can open its stores.
func (w *world) shutDown() {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Fatal(err)
	}
	w.closeStores()
}

// mustBeOutdated fails the test unless the store answers from an outdated generation.
func mustBeOutdated(t *testing.T, l *live.Live) {
	t.Helper()
	if st := l.Status(); st.State != store.Outdated || st.Unreadable {
		t.Fatalf("got the store of %s in the state %s (%v), want a readable one that is outdated", st.Name, st.State, st.Error)
	}
}

// TestOutdatedSeenIsAskedWithItsOwnSettings checks that the windows of answers are those of the
// store, whatever settings the program has (I10).
func TestOutdatedSeenIsAskedWithItsOwnSettings(t *testing.T) {
	w := newWorld(t)
	at := w.publish(history(played("ann", "1"), 1, 1), history(played("ann", "2"), 2, 2), history(played("ann", "3"), 3, 3))
	items := []string{"1", "2", "3"}
	withSettings := func(s seen.Settings) func(*worldOptions) { return func(o *worldOptions) { o.seen = &s } }

	stored := seen.Settings{Window: 2, Retention: 3, FalsePositives: 0.001}
	dirs := map[string]string{"seen": t.TempDir()}
	before := w.replica(keepIn(dirs), withSettings(stored))
	ask(before, before.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items, AtLeast: at})
	before.shutDown()

	for name, present := range map[string]seen.Settings{
		"longer":  {Window: 4, Retention: 12, FalsePositives: 0.001},
		"shorter": {Window: 1, Retention: 1, FalsePositives: 0.001},
	} {
		t.Run(name, func(t *testing.T) {
			now := w.replica(keepIn(dirs), withSettings(present))
			now.t = t
			defer now.shutDown()
			mustBeOutdated(t, now.seen)
			for window, want := range map[int32]struct {
				unseen []uint32
				months int32
			}{0: {[]uint32{1, 2}, 2}, 1: {[]uint32{0, 1, 2}, 1}, 3: {[]uint32{2}, 3}, 12: {[]uint32{2}, 3}} {
				res := ask(now, now.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items, WindowMonths: window, AtLeast: at})
				if diff := cmp.Diff(want.unseen, res.GetUnseenIndexes()); diff != "" || res.GetMonthsRead() != want.months {
					t.Errorf("window %d: got %d months, want %d; unseen (-want +got):\n%s", window, res.GetMonthsRead(), want.months, diff)
				}
			}
		})
	}
}

// TestFeedHidesWhatOutdatedSeenStoreHas checks that a feed hides what an outdated seen store knows to
// be seen, as FilterSeen does. It says that the page is not exact as soon as the store lacks
// something that the inbox has.
func TestFeedHidesWhatOutdatedSeenStoreHas(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"), played("ann", "1"))
	stored := seen.Settings{Window: 2, Retention: 3, FalsePositives: 0.001}
	dirs := map[string]string{"seen": t.TempDir()}
	before := w.replica(withFeeds, keepIn(dirs), func(o *worldOptions) { o.seen = &stored })
	items := []string{"1", "2", "3"}
	ask(before, before.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items, AtLeast: at})
	before.shutDown()

	now := w.replica(withFeeds, keepIn(dirs), withSeen)
	defer now.shutDown()
	mustBeOutdated(t, now.seen)
	checkFeed := func(when, at string, completeness skeinv1.FeedCompleteness) {
		t.Helper()
		unseen := ask(now, now.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items}).GetUnseenIndexes()
		if diff := cmp.Diff([]uint32{1, 2}, unseen); diff != "" {
			t.Errorf("%s: FilterSeen (-want +got):\n%s", when, diff)
		}
		for _, order := range []skeinv1.FeedOrder{newestFirst, byHeat} {
			res := now.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", HideSeen: true, Order: order, AtLeast: at})
			names := pinNames(res.GetEntries())
			slices.Sort(names) // the orders differ
			if diff := cmp.Diff([]string{"bob//2", "bob//3"}, names); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", when, order, diff)
			}
			if res.GetCompleteness() != completeness {
				t.Errorf("%s, %v: got %v, want %v", when, order, res.GetCompleteness(), completeness)
			}
		}
	}
	checkFeed("seen store that has everything", at, complete)
	checkFeed("seen store that lacks a play", w.publish(played("ann", "2")), seenUnavailable)
}

// TestOutdatedNotificationsAreThoseThatTheStoreKeeps checks that an answer has as many
// notifications as the settings of the store say, and none of those that the store has not dropped
// yet.
func TestOutdatedNotificationsAreThoseThatTheStoreKeeps(t *testing.T) {
	w := newWorld(t, withFeeds)
	const keep = 4
	var at string
	for _, pin := range []string{"p1", "p2", "p3", "p4", "p5"} {
		at = w.publish(pinned("ann", "", pin), reactedTo("bob", "ann", pin, ""))
	}
	withKeep := func(n int) func(*worldOptions) {
		return func(o *worldOptions) { o.notifications = &notifications.Settings{Keep: n} }
	}

	dirs := map[string]string{"notifications": t.TempDir()}
	before := w.replica(withFeeds, keepIn(dirs), withKeep(keep))
	want := groupsOf(before, at)
	if len(want) != keep {
		t.Fatalf("got %d groups from a store that keeps %d notifications", len(want), keep)
	}
	before.shutDown()

	for name, present := range map[string]int{"more": 1000, "fewer": 1} {
		t.Run(name, func(t *testing.T) {
			now := w.replica(withFeeds, keepIn(dirs), withKeep(present))
			now.t = t
			defer now.shutDown()
			mustBeOutdated(t, now.notifications)
			if diff := cmp.Diff(want, groupsOf(now, at)); diff != "" {
				t.Errorf("groups of the outdated store (-want +got):\n%s", diff)
			}
		})
	}
}

// groupsOf returns the pins of ann's groups of notifications.
func groupsOf(w *world, at string) (pins []string) {
	res := ask(w, w.notifyClient.ReadNotifications, &skeinv1.ReadNotificationsRequest{UserId: "ann", AtLeast: at})
	for _, g := range res.GetGroups() {
		pins = append(pins, g.GetPin().GetPinId())
	}
	return pins
}

// TestFeedByHeatOfStoresFarApart reads sessions by heat from an inbox and counters of which one is
// hours behind the other, as an outdated one is. It ranks the pins of the inbox by scores that the
// counters have, and goes on after its first page (I9).
func TestFeedByHeatOfStoresFarApart(t *testing.T) {
	const hour = events.Micros(3600 * 1_000_000)
	plays := func(item string, n int) (all []*skeinv1.Event) {
		for range n {
			all = append(all, played("zoe", item))
		}
		return all
	}

	// Item 1 has a score in the first envelope. The second one ends it two hours later, and the
	// third one drops it two hours after that.
	w := newWorld(t, withFeeds, asleep)
	first := w.publish(append(plays("1", 1), follow("ann", "bob"), pinned("bob", "", "1"), pinned("bob", "", "2"), pinned("bob", "", "3"))...)
	w.publish(slices.Concat(plays("1", 2), plays("2", 16), []*skeinv1.Event{pinned("bob", "", "4")})...)
	w.publish(append(plays("1", 1), plays("2", 1)...)...)
	envelopes := w.envelopes(3)
	for i := range envelopes {
		delay := 2 * hour * events.Micros(i)
		for j := range envelopes[i].Events {
			envelopes[i].Events[j].Time += delay
		}
		envelopes[i].Cursor.LastTime += delay
	}

	for name, test := range map[string]struct {
		// inbox and counters are how many envelopes the stores have at first.
		inbox, counters int
		// want are the pins, one on a page. The stores fold the other envelopes after the page
		// foldAfter.
		want      []string
		foldAfter int
		// expires says that the session is over then.
		expires bool
	}{
		"inbox is behind":             {1, 3, []string{"bob//2", "bob//1", "bob//3"}, 3, false},
		"inbox catches up":            {1, 3, []string{"bob//2", "bob//1", "bob//4", "bob//3"}, 1, false},
		"counters are behind":         {3, 1, []string{"bob//1", "bob//3", "bob//2"}, 3, false},
		"counters catch up":           {3, 1, []string{"bob//1"}, 1, true},
		"counters are behind by half": {3, 2, []string{"bob//2", "bob//1", "bob//4", "bob//3"}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.replica(withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 10 * time.Millisecond })
			w.t = t
			defer w.shutDown()
			fold := func(inbox, counters []*events.Envelope) {
				t.Helper()
				if err := errors.Join(w.inbox.Serving().Fold(inbox), w.counters.Serving().Fold(counters)); err != nil {
					t.Fatal(err)
				}
			}
			fold(envelopes[:test.inbox], envelopes[:test.counters])

			req := &skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, PageSize: 1}
			for page, want := range test.want {
				res := w.readFeed(req)
				if diff := cmp.Diff([]string{want}, pinNames(res.GetEntries())); diff != "" {
					t.Fatalf("page %d (-want +got):\n%s", page, diff)
				}
				if page == 0 && min(test.inbox, test.counters) == 1 && res.GetPosition() != first {
					t.Errorf("page %d is of %s, want %s, the position of the store that is behind", page, res.GetPosition(), first)
				}
				req.Start = after(res.GetNextPageToken())
				if page+1 == test.foldAfter {
					fold(envelopes[test.inbox:], envelopes[test.counters:])
				}
			}

			if test.expires {
				_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(req))
				wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
			} else if token := req.GetPageToken(); token != "" {
				t.Errorf("got the token %s after the last page, want none", token)
			}
		})
	}
}

// TestSessionsOfOutdatedStores reads sessions whose pages come from an outdated store and from
// stores that are ahead of it. Another process with present stores can continue them (I9).
func TestSessionsOfOutdatedStores(t *testing.T) {
	w := newWorld(t, withNotifications)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range 4 {
		pin := fmt.Sprint("p", i)
		evs = append(evs, pinned("bob", "", pin), reactedTo("zoe", "bob", pin, ""), reactedTo(fmt.Sprint("u", i), "bob", "p0", "wow"))
	}
	at := w.publish(evs...)
	withSettings := func(o *worldOptions) {
		withNotifications(o)
		o.inbox.Threshold++
		o.counters.PlayWeight++ // of what nobody did, so that all scores are the same
		o.notifications.Keep++
	}

	sessions := map[string]func(w *world) lister{
		"reactors": func(w *world) lister { return w.reactors("p0", "wow", "ann") },
		"notifications": func(w *world) lister {
			return list(w.notifyClient.ReadNotifications, func(size int32, token, at string) *skeinv1.ReadNotificationsRequest {
				return &skeinv1.ReadNotificationsRequest{UserId: "bob", PageSize: size, PageToken: token, AtLeast: at}
			}, func(r *skeinv1.ReadNotificationsResponse) (ids []string, _ int64) {
				for _, g := range r.GetGroups() {
					ids = append(ids, g.GetGroupId())
				}
				return ids, -1
			})
		},
		"feed by heat": func(w *world) lister {
			return list(w.feed.ReadFeed, func(size int32, token, at string) *skeinv1.ReadFeedRequest {
				return &skeinv1.ReadFeedRequest{ReaderId: "ann", Order: byHeat, PageSize: size, Start: after(token), AtLeast: at}
			}, func(r *skeinv1.ReadFeedResponse) ([]string, int64) { return pinNames(r.GetEntries()), -1 })
		},
	}
	expected := map[string][]string{}
	for name, listOf := range sessions {
		expected[name] = listOf(w).all(t, 100, at)
		if len(expected[name]) < 4 {
			t.Fatalf("got the list of %s %v, want at least 4 entries", name, expected[name])
		}
	}

	for _, outdated := range []string{"inbox", "counters", "notifications"} {
		t.Run(outdated, func(t *testing.T) {
			dirs := map[string]string{outdated: t.TempDir()}
			before := w.replica(keepIn(dirs), withNotifications)
			for _, listOf := range sessions {
				listOf(before).all(t, 100, at) // the stores contain what was published
			}
			before.shutDown()

			// What the other stores know in addition changes no list.
			ahead := w.publish(follow("stranger", "zoe"))
			now := w.replica(keepIn(dirs), withSettings)
			now.t = t
			defer now.shutDown()
			mustBeOutdated(t, map[string]*live.Live{"inbox": now.inbox, "counters": now.counters, "notifications": now.notifications}[outdated])
			ask(now, now.graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{UserIds: []string{"zoe"}, AtLeast: ahead})

			for name, listOf := range sessions {
				if diff := cmp.Diff(expected[name], listOf(now).all(t, 1, "")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}

				page, err := listOf(now)(1, "", "")
				if err != nil {
					t.Fatal(err)
				}
				rest, err := listOf(w)(100, page.next, ahead)
				if err != nil {
					t.Fatalf("%s, continued by another process: %v", name, err)
				}
				if diff := cmp.Diff(expected[name], append(page.entries, rest.entries...)); diff != "" {
					t.Errorf("%s, continued by another process (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestSessionByHeatEndsWithItsScores checks that a session by heat is over if its next page comes
// from counters that were built with another half-life. Their scores would repeat entries and leave
// others out (I9).
func TestSessionByHeatEndsWithItsScores(t *testing.T) {
	w := newWorld(t, withFeeds)
	evs := []*skeinv1.Event{follow("ann", "bob")}
	for i := range 4 {
		item := fmt.Sprint("i", i)
		evs = append(evs, pinned("bob", "", item), liked("zoe", item))
	}
	at := w.publish(evs...)
	rebuilt := w.replica(withFeeds, func(o *worldOptions) { o.counters.HalfLife /= 24 })

	for _, order := range []skeinv1.FeedOrder{byHeat, newestFirst} {
		first := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", Order: order, PageSize: 1, AtLeast: at})
		next := &skeinv1.ReadFeedRequest{ReaderId: "ann", Order: order, Start: after(first.GetNextPageToken())}
		if res := w.readFeed(next); len(res.GetEntries()) != 3 {
			t.Errorf("order %v: got the second page %v, want 3 entries", order, pinNames(res.GetEntries()))
		}
		if order == newestFirst {
			if res := rebuilt.readFeed(next); len(res.GetEntries()) != 3 {
				t.Errorf("newest first, of the other counters: got the second page %v, want 3 entries", pinNames(res.GetEntries()))
			}
			continue
		}
		_, err := rebuilt.feed.ReadFeed(t.Context(), connect.NewRequest(next))
		wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
	}

	first := ask(w, w.counterClient.ListTrending, &skeinv1.ListTrendingRequest{PageSize: 1, AtLeast: at})
	next := &skeinv1.ListTrendingRequest{PageToken: first.GetNextPageToken()}
	if res := ask(w, w.counterClient.ListTrending, next); len(res.GetItems()) != 3 {
		t.Errorf("got the second page %v of the global list, want 3 items", res.GetItems())
	}
	_, err := rebuilt.counterClient.ListTrending(t.Context(), connect.NewRequest(next))
	wantError(t, err, connect.CodeInvalidArgument, "EXPIRED_PAGE_TOKEN", "page_token")
}
