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

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// setOf returns a set in which each partition is with a chance of one half.
func setOf(seed uint64) (s events.Partitions) {
	r := rand.New(rand.NewPCG(seed, 9))
	for i := range s {
		s[i] = r.Uint64()
	}
	return s
}

// testPartitions holds that a fold for some partitions leaves their rows of the fold for all, and no others (I13).
func testPartitions(t *testing.T, c Case, h History, straight Rows) {
	if r, ok := c.New().(projections.Regional); ok {
		for _, row := range straight {
			if _, of := r.RegionHome(row.Key); of != slices.Contains(r.Regions(), projections.Tag(row.Key[2])) {
				t.Fatalf("%x is a row of a region: %v, by its tag %v", row.Key, of, !of)
			}
		}
	}
	for seed := range uint64(3) {
		s := setOf(seed)
		if diff := partitionsDiffer(t, c.New, h.Envelopes, &s, straight, commitEveryStep); diff != "" {
			t.Fatalf("set %d:\n%s", seed, diff)
		}
	}
	none := events.Partitions{}
	if diff := partitionsDiffer(t, c.New, h.Envelopes, &none, straight, store.Bounds{}); diff != "" {
		t.Fatalf("no partition:\n%s", diff)
	}
}

// partitionsDiffer describes where a fold for a set differs from what the set has of the rows of all; empty means nowhere.
func partitionsDiffer(t fataler, newProjection func() projections.Projection, envs []*events.Envelope, s *events.Partitions,
	all Rows, bounds store.Bounds,
) string {
	t.Helper()
	rows := fold(t, newProjection(), envs, bounds, s)
	return rows.without(fingerprintTag).Diff(all.restrict(newProjection(), s).without(fingerprintTag))
}

// fold returns the rows of a fold in one call, for a set of partitions; nil means all.
func fold(t fataler, p projections.Projection, envs []*events.Envelope, bounds store.Bounds, s *events.Partitions) Rows {
	t.Helper()
	store, err := store.Open(store.Options{
		FS: vfs.NewMem(), Dir: dataDir, Projection: p, Bounds: bounds, Partitions: s,
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := store.Fold(envs); err != nil {
		t.Fatalf("fold for %s: %v", s, err)
	}
	if err := store.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	rows, err := rowsOf(store)
	if err != nil {
		t.Fatalf("rows: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return rows
}

// fingerprintTag is that of the row which tells two sets of partitions apart.
const fingerprintTag projections.Tag = 0x01

func (rows Rows) without(tag projections.Tag) (rest Rows) {
	for _, row := range rows {
		if projections.Tag(row.Key[2]) != tag {
			rest = append(rest, row)
		}
	}
	return rest
}

// restrict returns the rows that a store which holds a set has: those whose homes are in it, and those of the store as a whole.
func (rows Rows) restrict(p projections.Projection, s *events.Partitions) (held Rows) {
	for _, row := range rows {
		part := projections.PartitionOf(p, row.Key)
		if part == projections.StoreWide || s.Has(uint8(part)) {
			held = append(held, row)
		}
	}
	return held
}

// testRoutes holds that an event changes rows of those homes alone to which it is delivered, in a build too. Where rows change with time
// as well, it follows from the law.
func testRoutes(t *testing.T, c Case, h History) {
	p := c.New()
	if _, ok := p.(projections.Clocked); ok {
		return
	}
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	defer Close(t, s)
	reads := events.Kinds(p.Kinds()...)
	var before Rows
	for _, env := range h.Envelopes {
		Fold(t, s, []*events.Envelope{env})
		after, err := rowsOf(s)
		if err != nil {
			t.Fatal(err)
		}
		var to events.Partitions
		var kinds []events.Kind
		for i := range env.Events {
			if ev := &env.Events[i]; reads.Has(ev.Kind) {
				projections.RouteRows(p, ev, &to)
				kinds = append(kinds, ev.Kind)
			}
		}
		for _, key := range changed(before, after) {
			if part := projections.PartitionOf(p, key); part != projections.StoreWide && !to.Has(uint8(part)) {
				t.Fatalf("%v changes the row %x of partition %d, to which it is not delivered", kinds, key, part)
			}
		}
		before = after
	}
}

// changed returns the keys of the rows that two states do not share.
func changed(a, b Rows) (keys [][]byte) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && bytes.Compare(a[0].Key, b[0].Key) < 0:
			keys, a = append(keys, a[0].Key), a[1:]
		case len(a) == 0 || bytes.Compare(a[0].Key, b[0].Key) > 0:
			keys, b = append(keys, b[0].Key), b[1:]
		default:
			if !bytes.Equal(a[0].Value, b[0].Value) {
				keys = append(keys, a[0].Key)
			}
			a, b = a[1:], b[1:]
		}
	}
	return keys
}
