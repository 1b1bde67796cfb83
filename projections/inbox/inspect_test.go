package inbox

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestDescribeRowKnowsEveryRow describes every row that long histories make, and checks that every
// kind of row is among them.
func TestDescribeRowKnowsEveryRow(t *testing.T) {
	textByKind := map[string]string{}
	for seed := range uint64(6) {
		set := DefaultSettings()
		set.Threshold = int64(seed % 2)
		set.Keep = 3
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: New(set)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fold(histories.Envelopes(histories.FixedFeeds(seed, 400))); err != nil {
			t.Fatal(err)
		}

		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		it := v.Iter(nil, nil)
		for it.Next() {
			if projections.IsRuntimeKey(it.Key()) {
				continue
			}
			text, err := projections.Text(DescribeRow(it.Key(), it.Value()))
			if err != nil {
				t.Errorf("describe %x = %x: %v", it.Key(), it.Value(), err)
				continue
			}
			textByKind[strings.Fields(text)[1]] = text

			// A key that is cut, or that is in another shard, cannot be described.
			if _, err := projections.Text(DescribeRow(it.Key()[:len(it.Key())-1], it.Value())); err == nil {
				t.Errorf("describe a cut key of %q: got no error, want one", text)
			}
			other := bytes.Clone(it.Key())
			if strings.Contains(text, " week=") {
				other[4] ^= 1
			} else {
				other[1] ^= 1
			}
			if _, err := projections.Text(DescribeRow(other, it.Value())); err == nil {
				t.Errorf("describe %q in another shard: got no error, want one", text)
			}
		}

		for _, err := range []error{it.Close(), v.Close(), s.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, form := range rowForms {
		if textByKind[form.Name] == "" {
			t.Errorf("got no row of kind %s from any history, want at least one", form.Name)
		}
	}
}

// FuzzPageCursors checks that random bytes are either no page cursor, or one that does not encode
// to more bytes.
func FuzzPageCursors(f *testing.F) {
	sortKey := sortKeyOf(17, "ann", "p1")
	f.Add([]byte(newestCursor(sortKey, nil)))
	f.Add([]byte(newestCursor(sortKey, sortKey)))
	f.Add([]byte(trendingCursor(heatSession{3, 4, sortKey}, &trendingKey{true, -5, sortKey})))
	f.Add([]byte(TrendingCursorOfV01(events.Cursor{Seq: 3, LastTime: 4}, "ann", "p1", 17)))
	f.Add([]byte(topCursor(99)))
	f.Fuzz(func(t *testing.T, data []byte) {
		cursor := PageCursor(data)
		if p, top, err := parseNewestCursor(cursor); err == nil && len(newestCursor(p, top)) > len(cursor) {
			t.Fatalf("cursor %x encodes as %x, want no more bytes", data, newestCursor(p, top))
		}
		if s, h, err := parseTrendingCursor(cursor); err == nil && s.oldest != nil && len(trendingCursor(s, &h)) > len(cursor) {
			t.Fatalf("cursor %x encodes as %x, want no more bytes", data, trendingCursor(s, &h))
		}
		if _, err := parseTopCursor(cursor); err == nil && !bytes.Equal(topCursor(events.Micros(0))[:1], cursor[:1]) {
			t.Fatalf("cursor %x was read as a top cursor, want an error because of its first byte", data)
		}
		_, _ = parsePinsCursor(cursor) // it only must not panic
	})
}
