package seen_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// exactSettings returns settings with which no false positive is expected in many years of tests, so
// that answers are those of the model.
func exactSettings() seen.Settings {
	s := seen.DefaultSettings()
	s.FalsePositives = 1e-9
	return s
}

// TestUnseenAreThoseOfModel checks that, at every position of every history, with every window, the
// unseen items are the model's (I10), and so are the served and hidden ones.
func TestUnseenAreThoseOfModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Plays: true})
		s := exactSettings()
		s.Retention = rapid.SampledFrom([]int{6, 1, 2, 3}).Draw(t, "retention")
		s.Window = rapid.IntRange(1, s.Retention).Draw(t, "window")
		bounds := rapid.SampledFrom([]store.Bounds{{}, {BatchBytes: 1}, {BatchBytes: 200, FlushBytes: 8 << 10}}).Draw(t, "bounds")
		store, err := store.Open(store.Options{
			FS: vfs.NewMem(), Dir: "data", Projection: seen.New(s), Bounds: bounds,
		})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		defer store.Close()

		folded := 0
		for _, env := range histories.Envelopes(history) {
			if err := store.Fold([]*events.Envelope{env}); err != nil {
				t.Fatalf("fold %d: %v", env.Seq(), err)
			}
			folded += len(env.Events)
			compareWithModel(t, store, s, history[:folded])
		}
	})
}

// TestLongHistories checks the same at some positions of long seeded histories, folded many envelopes
// at a time.
func TestLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(4) {
		s := exactSettings()
		history := histories.FixedPlays(seed, n)
		store := openMem(t, s)
		envs := histories.Envelopes(history)
		folded := 0
		for len(envs) > 0 {
			some := envs[:min(24, len(envs))]
			envs = envs[len(some):]
			if err := store.Fold(some); err != nil {
				t.Fatal(err)
			}
			for _, env := range some {
				folded += len(env.Events)
			}
			compareWithModel(t, store, s, history[:folded])
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// compareWithModel compares every answer of a store with that of the model.
func compareWithModel(t fataler, store *store.Store, s seen.Settings, history []events.Event) {
	t.Helper()
	v, err := store.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	defer v.Close()
	q := seen.Query(v, s)
	want := model.New(history)
	items := itemsIn(history)
	for _, user := range append(want.Users(), "stranger") {
		served, err := q.Served(user)
		if err != nil {
			t.Fatalf("served to %s: %v", user, err)
		}
		if !slices.Equal(served, want.Served(user)) {
			t.Fatalf("at %d: served to %s: got %v, want %v after\n%s",
				v.Cursor().Seq, user, served, want.Served(user), formatHistory(history))
		}

		// The hidden items, and their number.
		hidden := map[string]bool{}
		var wantHidden []seen.HiddenItem
		for _, h := range want.Hidden(user) {
			hidden[h.Item] = true
			wantHidden = append(wantHidden, seen.HiddenItem{Item: h.Item, Since: h.Since})
		}
		if got := mustReadHidden(t, q, user); !slices.Equal(got, wantHidden) {
			t.Fatalf("at %d: hidden by %s: got %v, want %v after\n%s",
				v.Cursor().Seq, user, got, wantHidden, formatHistory(history))
		}
		if n, err := q.HiddenCount(user); err != nil || n != int64(len(wantHidden)) {
			t.Fatalf("at %d: number of items hidden by %s: got %d, error %v, want %d (I7)", v.Cursor().Seq, user, n, err, len(wantHidden))
		}

		// The unseen items, for every window.
		for window := 1; window <= s.Retention+1; window++ {
			played := want.Played(user, v.Cursor().LastTime, min(window, s.Retention))
			for _, ignoreServed := range []bool{true, false} {
				var wantUnseen []string
				for _, item := range items {
					if !hidden[item] && !played[item] && (ignoreServed || !slices.Contains(served, item)) {
						wantUnseen = append(wantUnseen, item)
					}
				}
				question := seen.Question{User: user, Window: window, IgnoreServed: ignoreServed}
				indexes, months, err := q.Filter(question, items, nil)
				if err != nil {
					t.Fatalf("at %d: filter for %s: %v", v.Cursor().Seq, user, err)
				}
				if months != min(window, s.Retention) {
					t.Fatalf("at %d: filter for %s: got a window of %d months, want %d",
						v.Cursor().Seq, user, months, min(window, s.Retention))
				}
				var got []string
				for _, i := range indexes {
					got = append(got, items[i])
				}
				if !slices.Equal(got, wantUnseen) {
					t.Fatalf("at %d, %v: unseen by %s in %d months, served ignored %v: missing %v, not wanted %v after\n%s",
						v.Cursor().Seq, v.Cursor().LastTime.Time(), user, window, ignoreServed,
						missingFrom(got, wantUnseen), missingFrom(wantUnseen, got), formatHistory(history))
				}
			}
		}
	}
}

// mustReadHidden reads the list of hidden items in pages of two.
func mustReadHidden(t fataler, q *seen.Queries, user string) (all []seen.HiddenItem) {
	t.Helper()
	for after := []byte(nil); ; {
		page, next, err := q.Hidden(context.Background(), user, after, 2)
		if err != nil {
			t.Fatalf("hidden items of %s: %v", user, err)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		after = next
	}
}

// missingFrom returns the elements of all that list does not have.
func missingFrom(list, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(list, s) })
}

// itemsIn returns the items of a history, and two that it does not have.
func itemsIn(history []events.Event) []string {
	items := []string{"never", "4711"}
	for _, ev := range history {
		for _, item := range append([]string{ev.Item}, ev.Items...) {
			if item != "" && !slices.Contains(items, item) {
				items = append(items, item)
			}
		}
	}
	return items
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
		fmt.Fprintf(&b, " at %s user=%s item=%s items=%v\n", ev.Time.Time(), ev.User, ev.Item, ev.Items)
	}
	return b.String()
}
