package build_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestInterruptedBuildContinues cuts the power at ten points of a build with a key, evenly spread
// over the partitions that are folded and the pieces that are merged. The build that continues
// makes the store that a fold makes, and folds no range of partitions again that was saved.
func TestInterruptedBuildContinues(t *testing.T) {
	const key, points = "what it is built from", 10
	newCounters := func() projections.Projection { return counters.New(counters.DefaultSettings()) }
	envs := histories.Envelopes(histories.FixedFeeds(1, 600))
	want := conformance.Straight(t, newCounters(), envs)

	// finish makes a store on fs, continuing an earlier build if there is one. It calls step after
	// each partition and before each part of the merge.
	finish := func(fs store.FS, step func()) (resumed bool, partitions int) {
		t.Helper()
		var mu sync.Mutex
		o := build.Options{
			FS: fs, Dir: "data/counters/000001", New: newCounters, Workers: 1, Key: key,
			AroundFold: func(_ context.Context, fold func() error) error {
				err := fold()
				mu.Lock()
				defer mu.Unlock()
				partitions++
				step()
				return err
			},
			Merging: func(_ context.Context, _ int64, merge func() (int64, error)) error {
				mu.Lock()
				step()
				mu.Unlock()
				_, err := merge()
				return err
			},
		}
		if err := fs.RemoveAll(o.Dir); err != nil {
			t.Fatal(err)
		}
		b, err := build.New(o)
		if err != nil {
			t.Fatal(err)
		}
		resumed = b.HasAllEvents()
		if !resumed {
			if err := b.Add(envs); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if built, err := build.IsBuilt(fs, o.Dir, key); !built || err != nil {
			t.Errorf("after the build: got complete %v, error %v, want a complete store", built, err)
		}
		return resumed, partitions
	}

	steps := 0
	_, all := finish(vfs.NewMem(), func() { steps++ })
	if steps < points {
		t.Fatalf("got a build of %d steps, want at least %d", steps, points)
	}

	leastFolded := all
	for point := range points {
		fs, n := vfs.NewCrashableMem(), 0
		if err := errors.Join(fs.MkdirAll("data/counters", 0o755), store.SyncDir(fs, "data"), store.SyncDir(fs, "/")); err != nil {
			t.Fatal(err)
		}
		var crashed *vfs.MemFS
		finish(fs, func() {
			if n == point*(steps-1)/(points-1) {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{})
			}
			n++
		})

		resumed, folded := finish(crashed, func() {})
		if !resumed {
			t.Errorf("point %d: the build began again, want it continued", point)
		}
		leastFolded = min(leastFolded, folded)
		s := conformance.Open(t, crashed, newCounters(), store.Bounds{})
		rows := conformance.RowsOf(t, s)
		conformance.Close(t, s)
		rows.MustEqual(t, want, "continued at point %d", point)
	}
	if leastFolded > 0 {
		t.Errorf("after the last partition was folded, %d were folded again, want none", leastFolded)
	}
}
