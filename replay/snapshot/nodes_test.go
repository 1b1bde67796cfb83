package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// erasureStateFunc returns which erasures a node has performed.
type erasureStateFunc func(context.Context) (*snapshot.ErasureState, error)

// newSchedulerOf returns a scheduler of the snapshots of a store.
func newSchedulerOf(s *store.Store, fs store.FS, b bucket.Bucket, erasureState erasureStateFunc) *snapshot.Scheduler {
	return snapshot.New(snapshot.Options{
		Bucket: b, FS: fs, Scratch: "snapshots",
		Stores:       func() []snapshot.Store { return []snapshot.Store{s} },
		ErasureState: erasureState,
	})
}

// A snapshot of a store of some partitions can be checked, drilled and restored, and the restored
// store holds these partitions.
func TestSnapshotOfSomePartitions(t *testing.T) {
	envs := makeLog(histories.FixedPlays(0, 300))
	var held events.Partitions
	for p := range 256 {
		if p%3 != 1 {
			held.Add(uint8(p))
		}
	}

	for _, newProjection := range allConstructors() {
		t.Run(newProjection().Name(), func(t *testing.T) {
			fs := vfs.NewMem()
			s, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: newProjection(), Partitions: &held})
			if err != nil {
				t.Fatal(err)
			}
			defer conformance.Close(t, s)
			conformance.Fold(t, s, envs[:200])

			// Take and check a snapshot.
			b := newMemoryBucket()
			wantErased := &snapshot.ErasureState{Epoch: 3, Flushed: 7}
			erasureState := func(context.Context) (*snapshot.ErasureState, error) { return wantErased, nil }
			if _, err := newSchedulerOf(s, fs, b, erasureState).Take(t.Context(), "one", nil, nil); err != nil {
				t.Fatal(err)
			}
			c, err := snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
			if err != nil || len(c.Damaged)+len(c.Broken) > 0 {
				t.Errorf("Check returned %+v and %v, expected no damage", c, err)
			}

			// Drill it.
			o := snapshot.RestoreOptions{Bucket: b, Projection: newProjection(), FS: vfs.NewMem(), Dir: "data"}
			wantRows := conformance.StraightOf(t, newProjection(), &held, envs)
			foldTail := func(_ context.Context, s *store.Store) error {
				conformance.Fold(t, s, envs[conformance.IndexAfter(envs, s.Cursor()):])
				conformance.RowsOf(t, s).MustEqual(t, wantRows, "drilled")
				return nil
			}
			d, err := snapshot.Drill(t.Context(), snapshot.DrillOptions{RestoreOptions: o, Tail: foldTail})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantErased, d.Manifest.Erased); diff != "" {
				t.Fatalf("erasures in the manifest (-want +got):\n%s", diff)
			}

			// Restore it. If BeforePlacing fails, there is no store.
			fault := errors.New("BeforePlacing fails")
			o.BeforePlacing = func(*snapshot.Manifest) error { return fault }
			if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, fault) {
				t.Errorf("got %v, expected the error of BeforePlacing", err)
			}
			o.BeforePlacing = nil
			if _, err := snapshot.Restore(t.Context(), o); err != nil {
				t.Fatal(err)
			}

			// The restored store holds the same partitions.
			_, err = store.Open(store.Options{FS: o.FS, Dir: "data", Projection: newProjection()})
			if !errors.Is(err, projections.ErrPartial) {
				t.Errorf("opened as a store of all partitions, got %v, expected ErrPartial", err)
			}
			restored, err := store.Open(store.Options{FS: o.FS, Dir: "data", Projection: newProjection(), Partitioned: true})
			if err != nil {
				t.Fatal(err)
			}
			defer conformance.Close(t, restored)
			if got := restored.Holds(); got != held {
				t.Errorf("the restored store holds the partitions %s, expected %s", &got, &held)
			}
			conformance.Fold(t, restored, envs[conformance.IndexAfter(envs, restored.Cursor()):])
			conformance.RowsOf(t, restored).MustEqual(t, wantRows, "restored")
		})
	}
}

// A removal waits for a snapshot that is being taken, and then removes it.
func TestRemovalWaitsForSnapshotInProgress(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, makeFollows(100))

	// claimsListed receives a value when the claims are listed: by the snapshot, and later by the
	// removal.
	claimsListed := make(chan struct{}, 1)
	b.setOutcomes(func(_ int, op, name string) outcome {
		if op == "list" && name == "snapshot-claims/" {
			select {
			case claimsListed <- struct{}{}:
			default:
			}
		}
		return success
	})

	removed := make(chan error, 1)
	scheduler := newSchedulerOf(n.stores[0], n.fs, b, func(ctx context.Context) (*snapshot.ErasureState, error) {
		// Begin the removal, and wait until it has listed the claims.
		for len(claimsListed) > 0 {
			<-claimsListed
		}
		go func() {
			isOld := func(l snapshot.ListedSnapshot) bool { return l.Manifest.Erased.Epoch < 2 }
			_, err := snapshot.RemoveIf(context.WithoutCancel(ctx), b, isOld)
			removed <- err
		}()
		<-claimsListed

		return &snapshot.ErasureState{Epoch: 1}, nil
	})

	if _, err := scheduler.TakeNow(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil {
		t.Errorf("the removal returned %v, expected no error", err)
	}
	if names := b.objectNames(""); len(names) > 0 {
		t.Errorf("got the objects %v, expected that the snapshot is removed", names)
	}
	if failed := scheduler.Stats().Failed; failed > 0 {
		t.Errorf("got %d failed snapshots, expected none", failed)
	}
}

// A requested snapshot does not wait for a rebuild of the stores, because the rebuild waits until the
// operation that takes the snapshot has ended.
func TestRequestedSnapshotDoesNotWaitForRebuild(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, makeFollows(100))
	pending := fmt.Errorf("%w, because a user was erased", snapshot.ErrRebuildPending)
	scheduler := newSchedulerOf(n.stores[0], n.fs, b, func(context.Context) (*snapshot.ErasureState, error) {
		return nil, pending
	})

	if _, err := scheduler.Take(t.Context(), "", nil, nil); !errors.Is(err, snapshot.ErrRebuildPending) {
		t.Errorf("got %v, expected %v", err, snapshot.ErrRebuildPending)
	}
	if failed := scheduler.Stats().Failed; failed > 0 {
		t.Errorf("got %d failed snapshots, expected none", failed)
	}
}

// Nodes that share a bucket see only their own snapshots, and no name of a node leads out of its
// part.
func TestNodesSeeOnlyTheirOwnSnapshots(t *testing.T) {
	shared, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"", "..", ".", "a/b", "/a", "-a", "_a", "a.b", "a b", "ä", "a\x00"} {
		if b, err := snapshot.OfNode(shared, name); err == nil {
			t.Errorf("name %q: got a bucket at %s, expected an error", name, b)
		}
	}

	for _, name := range []string{"b", "A-1_x"} {
		b, err := snapshot.OfNode(shared, name)
		if err != nil {
			t.Fatal(err)
		}
		n := newTestProcess(t, b, newGraph())
		n.fold(t, makeFollows(10))
		n.mustTake(t, "one")
		if list, err := snapshot.List(t.Context(), b); err != nil || len(list) != 1 {
			t.Errorf("node %s: got the snapshots %v and %v, expected one", name, list, err)
		}
	}

	if names, err := snapshot.Nodes(t.Context(), shared); err != nil || !slices.Equal(names, []string{"A-1_x", "b"}) {
		t.Errorf("got the nodes %v and %v, expected A-1_x and b", names, err)
	}
	if list, err := snapshot.List(t.Context(), shared); err != nil || len(list) > 0 {
		t.Errorf("got the snapshots %v and %v of the whole bucket, expected none", list, err)
	}
}
