package conformance

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// fataler has what a *testing.T and a *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// randomPartitions returns a set that has each partition with a chance of one half. The same seed
// gives the same set.
func randomPartitions(seed uint64) (s events.Partitions) {
	r := rand.New(rand.NewPCG(seed, 9))
	for i := range s {
		s[i] = r.Uint64()
	}
	return s
}

// testPartitions checks that a fold for some partitions makes exactly the rows that these
// partitions have in a fold for all (I13).
func testPartitions(t *testing.T, c Case, h History, straight Rows) {
	// RegionHome must recognize exactly the rows of the tags that Regions returns.
	if r, ok := c.New().(projections.Regional); ok {
		for _, row := range straight {
			_, hasRegionHome := r.RegionHome(row.Key)
			hasRegionTag := slices.Contains(r.Regions(), projections.Tag(row.Key[2]))
			if hasRegionHome != hasRegionTag {
				t.Fatalf("row %x is in a region: got %v from RegionHome, want %v because of its tag",
					row.Key, hasRegionHome, hasRegionTag)
			}
		}
	}

	for seed := range uint64(3) {
		parts := randomPartitions(seed)
		if diff := diffPartitions(t, c.New, h.Envelopes, &parts, straight, commitEveryStep); diff != "" {
			t.Fatalf("set %d of partitions: rows of a fold for the set differ from those of a fold for all:\n%s", seed, diff)
		}
	}
	none := events.Partitions{}
	if diff := diffPartitions(t, c.New, h.Envelopes, &none, straight, store.Bounds{}); diff != "" {
		t.Fatalf("no partition: rows of a fold for none differ from the store-wide rows of a fold for all:\n%s", diff)
	}
}

// diffPartitions folds for a set of partitions, and describes how the rows differ from the rows of
// these partitions in all, which are the rows of a fold for all partitions. It returns an empty
// string if they are equal.
func diffPartitions(t fataler, newProjection func() projections.Projection, envs []*events.Envelope, parts *events.Partitions,
	all Rows, bounds store.Bounds,
) string {
	t.Helper()
	rows := foldPartitions(t, newProjection(), envs, bounds, parts)
	want := all.ofPartitions(newProjection(), parts)
	return rows.withoutTag(fingerprintTag).Diff(want.withoutTag(fingerprintTag))
}

// foldPartitions folds in one call, for a set of partitions, and returns the rows. nil means all
// partitions.
func foldPartitions(t fataler, p projections.Projection, envs []*events.Envelope, bounds store.Bounds, parts *events.Partitions) Rows {
	t.Helper()
	s, err := store.Open(store.Options{
		FS: vfs.NewMem(), Dir: dataDir, Projection: p, Bounds: bounds, Partitions: parts,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}

	if err := s.Fold(envs); err != nil {
		t.Fatalf("fold for %s: %v", parts, err)
	}
	if err := s.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}

	rows, err := readRows(s)
	if err != nil {
		t.Fatalf("rows: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return rows
}

// fingerprintTag is the tag of the fingerprint, which names the partitions of a store and so
// differs between sets.
const fingerprintTag projections.Tag = 0x01

// withoutTag returns the rows that do not have the tag.
func (rows Rows) withoutTag(tag projections.Tag) (rest Rows) {
	for _, row := range rows {
		if projections.Tag(row.Key[2]) != tag {
			rest = append(rest, row)
		}
	}
	return rest
}

// ofPartitions returns the rows of the partitions, and those of the store as a whole.
func (rows Rows) ofPartitions(p projections.Projection, parts *events.Partitions) (held Rows) {
	for _, row := range rows {
		part := projections.PartitionOf(p, row.Key)
		if part == projections.StoreWide || parts.Has(uint8(part)) {
			held = append(held, row)
		}
	}
	return held
}

// testRoutes checks that an event only changes rows of partitions to which a build delivers it. It
// cannot check this for projections whose rows also change with time. For these it follows from the
// law of partitions, which testPartitions checks.
func testRoutes(t *testing.T, c Case, h History) {
	p := c.New()
	if _, ok := p.(projections.ClockTicker); ok {
		return
	}
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	defer Close(t, s)

	kindsRead := events.Kinds(p.Kinds()...)
	var before Rows
	for _, env := range h.Envelopes {
		Fold(t, s, []*events.Envelope{env})
		after, err := readRows(s)
		if err != nil {
			t.Fatal(err)
		}

		var to events.Partitions
		var kinds []events.Kind
		for i := range env.Events {
			if ev := &env.Events[i]; kindsRead.Has(ev.Kind) {
				projections.RouteRows(p, ev, &to)
				kinds = append(kinds, ev.Kind)
			}
		}
		for _, key := range changedKeys(before, after) {
			if part := projections.PartitionOf(p, key); part != projections.StoreWide && !to.Has(uint8(part)) {
				t.Fatalf("%v changes the row %x of partition %d, to which it is not delivered", kinds, key, part)
			}
		}
		before = after
	}
}

// changedKeys returns the keys of the rows that were added, removed or changed.
func changedKeys(before, after Rows) (keys [][]byte) {
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && bytes.Compare(before[0].Key, after[0].Key) < 0:
			keys = append(keys, before[0].Key)
			before = before[1:]
		case len(before) == 0 || bytes.Compare(before[0].Key, after[0].Key) > 0:
			keys = append(keys, after[0].Key)
			after = after[1:]
		default:
			if !bytes.Equal(before[0].Value, after[0].Value) {
				keys = append(keys, before[0].Key)
			}
			before = before[1:]
			after = after[1:]
		}
	}
	return keys
}
