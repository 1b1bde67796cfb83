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

// TestDescribeRowKnowsEveryRow describes every row that long histories make, and demands every kind
// of row among them.
func TestDescribeRowKnowsEveryRow(t *testing.T) {
	seen := map[string]string{}
	for seed := range uint64(6) {
		set := DefaultSettings()
		set.Threshold, set.Keep = int64(seed%2), 3
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
				t.Errorf("%x = %x: %v", it.Key(), it.Value(), err)
				continue
			}
			seen[strings.Fields(text)[1]] = text
			// A key that is cut, or stands in another shard, is none.
			if _, err := projections.Text(DescribeRow(it.Key()[:len(it.Key())-1], it.Value())); err == nil {
				t.Errorf("a cut key of %q is described", text)
			}
			other := bytes.Clone(it.Key())
			if strings.Contains(text, " week=") {
				other[4] ^= 1
			} else {
				other[1] ^= 1
			}
			if _, err := projections.Text(DescribeRow(other, it.Value())); err == nil {
				t.Errorf("%q is described in a foreign shard", text)
			}
		}
		for _, err := range []error{it.Close(), v.Close(), s.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, form := range rowForms {
		if seen[form.Name] == "" {
			t.Errorf("no history makes a row of kind %s", form.Name)
		}
	}
}

// FuzzPageCursors: random bytes are no page cursor, or one that comes back the same.
func FuzzPageCursors(f *testing.F) {
	sortKey := sortKeyOf(17, "ann", "p1")
	f.Add([]byte(newestCursor(sortKey, nil)))
	f.Add([]byte(newestCursor(sortKey, sortKey)))
	f.Add([]byte(trendingCursor(heatSession{3, 4}, &trendingKey{true, -5, sortKey})))
	f.Add([]byte(topCursor(99)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := PageCursor(data)
		if p, top, err := parseNewestCursor(m); err == nil && len(newestCursor(p, top)) > len(m) {
			t.Fatalf("%x", data)
		}
		if s, h, err := parseTrendingCursor(m); err == nil && len(trendingCursor(s, &h)) > len(m) {
			t.Fatalf("%x", data)
		}
		if p, err := parseTopCursor(m); err == nil && !bytes.Equal(topCursor(events.Micros(0))[:1], m[:1]) {
			t.Fatalf("%x", p)
		}
		_, _ = parsePinsCursor(m)
	})
}
