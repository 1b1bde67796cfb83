package inbox_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// smallSettings returns settings with which generated histories reach every case, because inboxes
// are trimmed.
func smallSettings(threshold int64) inbox.Settings {
	s := inbox.DefaultSettings()
	s.Threshold = threshold
	s.Keep = 3
	return s
}

// thresholds are settings with which all owners are pulled, nearly all, some, or none.
var thresholds = []int64{0, 1, 2, -1}

// relations caches whom readers follow, for all stores in memory.
var relations = querycache.New(1 << 20)

func openMem(t fataler, s inbox.Settings) *store.Store {
	t.Helper()
	return openMemWith(t, s, relations)
}

func openMemWith(t fataler, s inbox.Settings, cache *querycache.Cache) *store.Store {
	t.Helper()
	store, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: inbox.NewWith(s, cache)})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return store
}

func mustFold(t fataler, s *store.Store, env *events.Envelope) {
	t.Helper()
	if err := s.Fold([]*events.Envelope{env}); err != nil {
		t.Fatalf("fold %d: %v", env.Seq(), err)
	}
}

// drawHistory draws a history of users in many partitions, in two, or in one.
func drawHistory(t *rapid.T) []events.Event {
	history := histories.History(t, histories.Options{Feeds: true})
	if ids := rapid.SampledFrom([][]string{nil, oneCrowd, twoCrowds}).Draw(t, "users"); ids != nil {
		history = renameUsers(history, ids)
	}
	return history
}

// TestFeedsAreThoseOfModel checks that, at every position of every history, for every threshold,
// every feed and list is the model's, up to its end (I8).
func TestFeedsAreThoseOfModel(t *testing.T) {
	t.Cleanup(func() {
		if relations.Stats().Hits == 0 {
			t.Error("got no hits in the cache of relations, want some")
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := smallSettings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep")
		s := openMem(t, set)
		defer s.Close()
		folded := 0
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			folded += len(env.Events)
			compareFeeds(t, s, history[:folded])
		}
	})
}

// TestLongHistories checks the same at some positions of long seeded histories, in which much state
// accumulates.
func TestLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(4) {
		history := histories.FixedFeeds(seed, n)
		if seed > 0 {
			history = renameUsers(history, oneCrowd)
		}

		s := openMem(t, smallSettings(thresholds[seed]))
		folded := 0
		for i, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			folded += len(env.Events)
			if i%24 == 0 || folded == len(history) {
				compareFeeds(t, s, history[:folded])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func mustView(t fataler, s *store.Store) *projections.View {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	return v
}

// compareFeeds compares every answer of a store with that of the model.
func compareFeeds(t fataler, s *store.Store, history []events.Event) {
	t.Helper()
	v := mustView(t, s)
	defer v.Close()
	want := model.New(history).At(v.Cursor().LastTime)
	q := inbox.CachedQuery(v)
	expectSame := func(got, want any, format string, args ...any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("at %d: %s:\n got %+v\nwant %+v\nafter\n%s",
				v.Cursor().Seq, fmt.Sprintf(format, args...), got, want, formatHistory(history))
		}
	}
	expectPages := func(f inbox.Feed, n int, want []inbox.Pin, format string, args ...any) {
		t.Helper()
		expectSame(mustReadPages(t, q, f, n), want, format, args...)
	}
	heats := model.Heats(history, secondHeat)
	score := func(item string) (int64, bool) { score, ok := heats[item]; return score, ok }

	for _, reader := range append(want.Users(), "stranger") {
		// Each feed in order of time, whole and in part, and the newest pins by heat.
		for _, own := range []bool{false, true} {
			feed := want.Feed(reader, own)
			f := inbox.Feed{Reader: reader, IncludeOwn: own}
			expectPages(f, 2, toPins(feed, nil), "feed of %s, own %v", reader, own)

			f = inbox.Feed{Reader: reader, IncludeOwn: own, OnePerItem: true}
			expectPages(f, 1, toPins(model.OnePerItem(feed), nil), "feed of %s, own %v, one per item", reader, own)

			f = inbox.Feed{Reader: reader, IncludeOwn: own, UnreadOnly: true}
			expectPages(f, 2, toPins(model.After(want.Read(reader), feed), nil), "unread of %s, own %v", reader, own)

			for _, only := range []events.FollowSettings{events.SettingFavorite, events.SettingNotify} {
				feed := want.FeedWith(reader, own, only)
				f := inbox.Feed{Reader: reader, IncludeOwn: own, Only: only}
				expectPages(f, 2, toPins(feed, nil), "feed of %s, own %v, only %b", reader, own, only)
				f.UnreadOnly = true
				unread := model.After(want.Read(reader), feed)
				expectPages(f, 2, toPins(unread, nil), "unread of %s, own %v, only %b", reader, own, only)
			}
			for _, ranked := range []int{3, 1000} {
				trending := want.TrendingFeed(reader, own, ranked, score)
				f := rankByHeat(inbox.Feed{Reader: reader, IncludeOwn: own}, ranked, v.Cursor(), history)
				expectPages(f, 2, toPins(trending, heats), "the newest %d of the feed of %s by heat, own %v", ranked, reader, own)
			}
		}

		// The lists of the reader's own pins, and the read marker.
		expectOwnPins := func(board *string, want []model.Pin) {
			t.Helper()
			var got []inbox.Pin
			var after inbox.PageCursor
			for {
				page, next, err := q.Pins(context.Background(), reader, board, after, 2)
				if err != nil {
					t.Fatalf("pins of %s: %v", reader, err)
				}
				got = append(got, page...)
				if next == nil {
					break
				}
				after = next
			}
			expectSame(got, toPins(want, nil), "pins of %s", reader)
			n, err := q.PinCount(reader, board)
			if err != nil {
				t.Fatalf("number of pins of %s: %v", reader, err)
			}
			expectSame(n, int64(len(want)), "number of pins of %s (I7)", reader)
		}
		page, err := q.Feed(context.Background(), inbox.Feed{Reader: reader}, nil, 1)
		if err != nil {
			t.Fatalf("feed of %s: %v", reader, err)
		}
		expectSame(page.ReadMarker, want.Read(reader), "read marker of %s", reader)
		expectOwnPins(nil, want.Pins(reader))
		for _, b := range want.BoardsMentioned() {
			if b.Owner == reader {
				expectOwnPins(&b.Board, want.BoardPins(b.Owner, b.Board))
			}
		}
	}
}

// mustReadPages reads all pages of a feed, and checks that each but the last is full and has a new
// page cursor.
func mustReadPages(t fataler, q *inbox.Queries, f inbox.Feed, n int) (all []inbox.Pin) {
	t.Helper()
	var after inbox.PageCursor
	for {
		page, err := q.Feed(context.Background(), f, after, n)
		if err != nil {
			t.Fatalf("feed %+v: %v", f, err)
		}
		all = append(all, page.Pins...)
		if page.Next == nil {
			return all
		}
		if len(page.Pins) != n {
			t.Fatalf("a page before the last has %d pins, want %d", len(page.Pins), n)
		}
		if bytes.Equal(page.Next, after) {
			t.Fatalf("a page has the page cursor %x of the page before, want a new one", after)
		}
		after = page.Next
	}
}

// toPins converts pins of the model to pins of a feed, with the scores of their items.
func toPins(want []model.Pin, heats map[string]int64) (list []inbox.Pin) {
	for _, p := range want {
		list = append(list, inbox.Pin{
			Owner: p.Owner, ID: p.ID, Board: p.Board, Item: p.Item, Repin: p.Repin, RepinOwner: p.RepinOwner, RepinPin: p.RepinPin,
			Attributes: p.Attributes, Created: p.Created, Edited: p.Edited, Score: heats[p.Item],
		})
	}
	return list
}

// formatHistory returns a history as text, with one event per line.
func formatHistory(history []events.Event) string {
	var b strings.Builder
	for i := range history {
		ev := &history[i]
		fmt.Fprintf(&b, "%d.%d %v", ev.Seq, ev.Slot, ev.Kind)
		if ev.Backfill {
			fmt.Fprintf(&b, " (%s %d)", ev.Source, ev.Offset)
		}
		fmt.Fprintf(&b, " at %d user=%s peer=%s board=%q pin=%s item=%s repin=%s/%s\n", ev.Time-histories.Start, ev.User, ev.Peer,
			ev.Board, ev.Pin, ev.Item, ev.RepinUser, ev.RepinPin)
		if ev.Settings != 0 || ev.Until != 0 {
			fmt.Fprintf(&b, "\tsettings=%b until=%d\n", ev.Settings, ev.Until-histories.Start)
		}
	}
	return b.String()
}
