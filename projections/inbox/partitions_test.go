package inbox_test

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestPartitionsFoldAlone checks that a fold for some partitions has their rows of the fold for all.
// Some partitions have so many followers that owners are pulled, inboxes are trimmed and dropped,
// and large events are cut (I13).
func TestPartitionsFoldAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		envs := histories.Envelopes(history)
		set := smallSettings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep")

		// Hold the partitions of some users.
		var some events.Partitions
		for _, ev := range rapid.SliceOfN(rapid.SampledFrom(history), 0, 6).Draw(t, "held") {
			some.AddHome(ev.User)
		}
		bounds := rapid.SampledFrom([]store.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds")

		all := rowsOf(t, set, envs, nil, store.Bounds{})
		p := inbox.New(set)
		var want conformance.Rows
		for _, row := range all {
			partition := projections.PartitionOf(p, row.Key)
			if partition == projections.StoreWide || some.Has(uint8(partition)) {
				want = append(want, row)
			}
		}

		if diff := rowsOf(t, set, envs, &some, bounds).Diff(want); diff != "" {
			t.Fatalf("rows of a fold for the partitions %s differ from those of a fold for all:\n%s", &some, diff)
		}
	})
}

// rowsOf returns the rows of the projection after a fold for some partitions; nil means all.
func rowsOf(
	t fataler, set inbox.Settings, envs []*events.Envelope, partitions *events.Partitions, bounds store.Bounds,
) (rows conformance.Rows) {
	t.Helper()
	s, err := store.Open(store.Options{
		FS: vfs.NewMem(), Dir: "data", Projection: inbox.New(set), Partitions: partitions, Bounds: bounds,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer s.Close()
	if err := s.Fold(envs); err != nil {
		t.Fatalf("fold: %v", err)
	}
	eachRow(t, s, func(key, value []byte) {
		rows = append(rows, conformance.Row{Key: bytes.Clone(key), Value: bytes.Clone(value)})
	})
	return rows
}
