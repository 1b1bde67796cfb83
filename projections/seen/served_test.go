package seen

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// encodeServes returns the row of one event that serves items.
func encodeServes(ev *events.Event) []byte {
	serves := make([]serve, len(ev.Items))
	for i, item := range ev.Items {
		serves[i] = serve{stampOf(ev), byte(i), events.AppendID(nil, item)}
	}
	return appendServes(nil, newestServes(serves))
}

// TestMergeOfServesIgnoresOrder checks that the order and grouping in which serves are merged, and
// repetitions, do not change the resulting bytes, which have the newest hundred serves.
func TestMergeOfServesIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxItems := rapid.SampledFrom([]int{4, 60, 400}).Draw(t, "most items")
		item := rapid.Custom(func(t *rapid.T) string {
			n := rapid.IntRange(0, maxItems).Draw(t, "item")
			return []string{fmt.Sprint(n), fmt.Sprint("item-", n)}[n%2]
		})

		var rows [][]byte
		var all []serve
		for i := range rapid.IntRange(2, 10).Draw(t, "events") {
			// The times of live serves differ. Backfilled serves may have the same time.
			ev := events.Event{Time: events.Micros(1000 + i), Items: rapid.SliceOfN(item, 1, events.MaxServedItems).Draw(t, "items")}
			ev.Backfill = rapid.Bool().Draw(t, "backfill")
			if ev.Backfill {
				ev.Time = events.Micros(rapid.IntRange(1, 3).Draw(t, "time"))
			}
			rows = append(rows, encodeServes(&ev))
			for index, item := range ev.Items {
				all = append(all, serve{stampOf(&ev), byte(index), events.AppendID(nil, item)})
			}
		}

		want := appendServes(nil, newestOf(all))
		for range 4 {
			if got := mergeInRandomGroups(t, rows, mergeServes); !bytes.Equal(got, want) {
				t.Fatalf("merge %x: got %x, want %x", rows, got, want)
			}
		}
	})
}

// newestOf does what newestServes does, in the simplest way.
func newestOf(all []serve) (kept []serve) {
	slices.SortStableFunc(all, func(a, b serve) int {
		return cmp.Or(cmp.Compare(b.stamp, a.stamp), cmp.Compare(a.index, b.index), bytes.Compare(a.item, b.item))
	})
	for _, s := range all {
		if len(kept) < 100 && !slices.ContainsFunc(kept, func(k serve) bool { return bytes.Equal(k.item, s.item) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// TestLiveServesComeFirst checks that live serves come before imported ones, even if the times of the
// import are later.
func TestLiveServesComeFirst(t *testing.T) {
	live := events.Event{Time: 5, Items: []string{"live"}}
	old := events.Event{Time: 1 << 62, Backfill: true, Items: []string{"imported", "live"}}
	row, err := mergeServes(nil, [][]byte{encodeServes(&old), encodeServes(&live)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeServes(nil, row)
	if err != nil {
		t.Fatal(err)
	}
	var items []string
	for _, s := range got {
		items = append(items, string(s.item))
	}
	if want := []string{"\x03live\x00", "\x03imported\x00"}; !slices.Equal(items, want) {
		t.Errorf("got the items %q, want %q", items, want)
	}
}

// TestDecodeServesRejectsOtherRows checks that rows that no merge can have written are refused.
func TestDecodeServesRejectsOtherRows(t *testing.T) {
	a := []byte("\x03a\x00")
	b := []byte("\x03b\x00")
	var tooMany []serve
	for i := range maxServed + 1 {
		tooMany = append(tooMany, serve{stamp: uint64(1000 - i), item: events.AppendID(nil, fmt.Sprint(i))})
	}

	// group encodes n serves of one stamp, and at one serve of a group.
	group := func(stamp byte, n byte, rest ...[]byte) []byte {
		return slices.Concat([]byte{0, 0, 0, 0, 0, 0, 0, stamp, n}, slices.Concat(rest...))
	}
	at := func(index byte, item []byte) []byte { return append([]byte{index}, item...) }

	good := slices.Concat([]byte{versionServes}, group(5, 2, at(0, a), at(1, b)))
	if _, err := decodeServes(nil, good); err != nil {
		t.Fatal(err)
	}

	for name, row := range map[string][]byte{
		"empty":               {},
		"no serve":            {versionServes},
		"another version":     append([]byte{versionServes + 1}, good[1:]...),
		"cut":                 good[:len(good)-1],
		"prolonged":           append(bytes.Clone(good), 0),
		"an empty group":      slices.Concat(good, group(4, 0)),
		"indexes run back":    slices.Concat([]byte{versionServes}, group(5, 2, at(1, a), at(0, b))),
		"ids run back":        slices.Concat([]byte{versionServes}, group(5, 2, at(0, b), at(0, a))),
		"times run back":      slices.Concat([]byte{versionServes}, group(5, 1, at(0, a)), group(6, 1, at(0, b))),
		"one time, two parts": slices.Concat([]byte{versionServes}, group(5, 1, at(0, a)), group(5, 1, at(1, b))),
		"no id":               slices.Concat([]byte{versionServes}, group(5, 1, at(0, []byte("\x09a\x00")))),
		"a hundred and one":   appendServes(nil, tooMany),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := decodeServes(nil, row); err == nil {
				t.Errorf("row %x: got the serves %v, want an error", row, got)
			}
		})
	}
}
