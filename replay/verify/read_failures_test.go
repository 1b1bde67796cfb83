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
	faults := &conformance.FailingRead{}
	disk := vfs.NewMem()
	cache := store.NewCache(0)
	defer cache.Unref()

	openStore := func(dir string, envs []*events.Envelope) *store.Store {
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
	live := openStore("live", histories.Envelopes(histories.Fixed(1, 100)))
	empty := openStore("empty", nil)

	all := events.AllPartitions()
	compare := func() (c *verify.Comparison, err error) {
		liveView, err := live.View()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, liveView.Close()) }()
		emptyView, err := empty.View()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, emptyView.Close()) }()
		return verify.Compare(t.Context(), liveView, emptyView, verify.Options{
			New: func() projections.Projection { return newProjection(0) }, Partitions: &all,
		})
	}

	// Count the reads of a comparison without failures.
	var want *verify.Comparison
	reads := faults.Count(func() {
		var err error
		want, err = compare()
		if err != nil {
			t.Fatal(err)
		}
	})
	if want.Differences == 0 {
		t.Fatal("without failures: got no difference, expected that all rows differ from an empty store")
	}
	if reads == 0 {
		t.Fatal("without failures: got no reads, expected some")
	}

	for n := int64(1); n <= reads; n++ {
		faults.FailAt(n)
		got, err := compare()
		if err == nil && (got.Rows != want.Rows || got.Differences != want.Differences) {
			t.Errorf("read %d of %d fails: got %d differences in %d rows and no error, expected %d in %d rows or an error",
				n, reads, got.Differences, got.Rows, want.Differences, want.Rows)
		}
	}
}
