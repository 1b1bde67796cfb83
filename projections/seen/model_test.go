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

// exact are settings with which no false positive is to be met in a lifetime of tests, so that
// answers are those of the model.
func exact() seen.Settings {
	s := seen.DefaultSettings()
	s.FalsePositives = 1e-9
	return s
}

// TestUnseenAreThoseOfModel: at every position of every history, with every window, the unseen are
// the model's (I10), and so are the serves.
func TestUnseenAreThoseOfModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Plays: true})
		s := exact()
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
			compare(t, store, s, history[:folded])
		}
	})
}

// TestLongHistories does the same at some positions of long seeded histories, folded many envelopes
// at a time.
func TestLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(4) {
		s := exact()
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
			compare(t, store, s, history[:folded])
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// compare asks everything that can be asked of a store.
func compare(t fataler, store *store.Store, s seen.Settings, history []events.Event) {
	t.Helper()
	v, err := store.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	defer v.Close()
	q, want := seen.Query(v, s), model.New(history)
	items := itemsOf(history)
	for _, user := range append(want.Users(), "stranger") {
		served, err := q.Served(user)
		if err != nil || !slices.Equal(served, want.Served(user)) {
			t.Fatalf("at %d: served to %s: %v (%v), want %v after\n%s", v.Cursor().Seq, user, served, err, want.Served(user), tell(history))
		}
		hidden := map[string]bool{}
		var wantHidden []seen.HiddenItem
		for _, h := range want.Hidden(user) {
			hidden[h.Item] = true
			wantHidden = append(wantHidden, seen.HiddenItem{Item: h.Item, Since: h.Since})
		}
		if got := hiddenPages(t, q, user); !slices.Equal(got, wantHidden) {
			t.Fatalf("at %d: %s hides %v, want %v after\n%s", v.Cursor().Seq, user, got, wantHidden, tell(history))
		}
		if n, err := q.HiddenCount(user); err != nil || n != int64(len(wantHidden)) {
			t.Fatalf("at %d: %s hides %d items (%v), want %d (I7)", v.Cursor().Seq, user, n, err, len(wantHidden))
		}
		for window := 1; window <= s.Retention+1; window++ {
			played := want.Played(user, v.Cursor().LastTime, min(window, s.Retention))
			for _, ignoreServed := range []bool{true, false} {
				var unseen []string
				for _, item := range items {
					if !hidden[item] && !played[item] && (ignoreServed || !slices.Contains(served, item)) {
						unseen = append(unseen, item)
					}
				}
				indexes, months, err := q.Filter(seen.Question{User: user, Window: window, IgnoreServed: ignoreServed}, items, nil)
				if err != nil || months != min(window, s.Retention) {
					t.Fatalf("at %d: filter for %s: %d months, %v", v.Cursor().Seq, user, months, err)
				}
				var got []string
				for _, i := range indexes {
					got = append(got, items[i])
				}
				if !slices.Equal(got, unseen) {
					t.Fatalf("at %d, %v: in %d months, served ignored %v, %s has wrongly seen %v, not seen %v after\n%s", v.Cursor().Seq,
						v.Cursor().LastTime.Time(), window, ignoreServed, user, less(unseen, got), less(got, unseen), tell(history))
				}
			}
		}
	}
}

// hiddenPages reads the list of hidden items in pages of two.
func hiddenPages(t fataler, q *seen.Queries, user string) (all []seen.HiddenItem) {
	t.Helper()
	for after := []byte(nil); ; {
		page, next, err := q.Hidden(context.Background(), user, after, 2)
		if err != nil {
			t.Fatalf("hidden items of %s: %v", user, err)
		}
		if all = append(all, page...); next == nil {
			return all
		}
		after = next
	}
}

func less(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func itemsOf(history []events.Event) []string {
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

// tell writes a history for people.
func tell(history []events.Event) string {
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
