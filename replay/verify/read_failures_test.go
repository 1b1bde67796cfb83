package verify_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/verify"
)

// TestFailedReadIsNotTakenForEqualRows compares a store with an empty one, while one read after the
// other fails. The comparison must fail or find every row.
func TestFailedReadIsNotTakenForEqualRows(t *testing.T) {
	faults, disk, cache := &conformance.FailingRead{}, vfs.NewMem(), store.NewCache(0)
	defer cache.Unref()
	open := func(dir string, envs []*events.Envelope) *store.Store {
		s, err := store.Open(store.Options{
			FS: faults.FileSystem(disk), Dir: dir, Projection: newProjection(0), Cache: cache,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conformance.Close(t, s) })
		conformance.Fold(t, s, envs)
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	live, empty := open("live", histories.Envelopes(histories.Fixed(1, 100))), open("empty", nil)

	all := events.AllPartitions()
	compare := func() (c *verify.Comparison, err error) {
		l, err := live.View()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		e, err := empty.View()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		return verify.Compare(t.Context(), l, e, verify.Options{
			New: func() projections.Projection { return newProjection(0) }, Partitions: &all,
		})
	}
	var expected *verify.Comparison
	reads := faults.Count(func() {
		var err error
		if expected, err = compare(); err != nil || expected.Differences == 0 {
			t.Fatalf("%d rows differ, error %v", expected.Differences, err)
		}
	})
	if reads == 0 {
		t.Fatal("nothing was read")
	}
	for n := int64(1); n <= reads; n++ {
		faults.FailAt(n)
		got, err := compare()
		if err == nil && (got.Rows != expected.Rows || got.Differences != expected.Differences) {
			t.Errorf("read %d of %d fails: expected %d rows that differ, got %d of %d rows", n, reads, expected.Differences, got.Differences, got.Rows)
		}
	}
}
