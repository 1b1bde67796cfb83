package snapshot_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// keeperOf returns a keeper of the snapshots of a store.
func keeperOf(s *store.Store, fs store.FS, b bucket.Bucket, erased func(context.Context) (*snapshot.ErasureState, error)) *snapshot.Scheduler {
	return snapshot.New(snapshot.Options{
		Bucket: b, FS: fs, Scratch: "snapshots", Stores: func() []snapshot.Store { return []snapshot.Store{s} }, ErasureState: erased,
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

	for _, p := range allConstructors() {
		t.Run(p().Name(), func(t *testing.T) {
			fs, b := vfs.NewMem(), newMemoryBucket()
			s, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: p(), Partitions: &held})
			if err != nil {
				t.Fatal(err)
			}
			defer conformance.Close(t, s)
			conformance.Fold(t, s, envs[:200])

			want := &snapshot.ErasureState{Epoch: 3, Flushed: 7}
			if _, err := keeperOf(s, fs, b, func(context.Context) (*snapshot.ErasureState, error) { return want, nil }).
				Take(t.Context(), "one", nil, nil); err != nil {
				t.Fatal(err)
			}

			if c, err := snapshot.Check(t.Context(), b, false, replay.Pace{}, nil); err != nil || len(c.Damaged)+len(c.Broken) > 0 {
				t.Errorf("Check returned %+v and %v, expected no damage", c, err)
			}

			o := snapshot.RestoreOptions{Bucket: b, Projection: p(), FS: vfs.NewMem(), Dir: "data"}
			rows := conformance.StraightOf(t, p(), &held, envs)
			d, err := snapshot.Drill(t.Context(), snapshot.DrillOptions{
				RestoreOptions: o, Tail: func(_ context.Context, s *store.Store) error {
					conformance.Fold(t, s, envs[conformance.IndexAfter(envs, s.Cursor()):])
					conformance.RowsOf(t, s).MustEqual(t, rows, "drilled")
					return nil
				},
			})
			if err != nil || d.Manifest.Erased == nil || *d.Manifest.Erased != *want {
				t.Fatalf("Drill returned the manifest %+v and %v, expected %+v as its erasures", d.Manifest, err, want)
			}

			failed := errors.New("it cannot be noted")
			o.BeforePlacing = func(*snapshot.Manifest) error { return failed }
			if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, failed) {
				t.Errorf("got %v, expected the error of Place", err)
			}

			o.BeforePlacing = nil
			if _, err := snapshot.Restore(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Open(store.Options{FS: o.FS, Dir: "data", Projection: p()}); !errors.Is(err, projections.ErrPartial) {
				t.Errorf("opened as a store of all partitions, got %v, expected ErrPartial", err)
			}

			again, err := store.Open(store.Options{FS: o.FS, Dir: "data", Projection: p(), Partitioned: true})
			if err != nil {
				t.Fatal(err)
			}
			defer conformance.Close(t, again)
			if again.Holds() != held {
				t.Error("the restored store holds other partitions than the snapshot")
			}
			conformance.Fold(t, again, envs[conformance.IndexAfter(envs, again.Cursor()):])
			conformance.RowsOf(t, again).MustEqual(t, rows, "restored")
		})
	}
}

// A removal waits for a snapshot that is being taken, and then removes it.
func TestRemovalWaitsForSnapshotInProgress(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, follows(100))

	removed := make(chan error, 1)
	began := make(chan struct{}, 1)
	b.setOutcomes(func(_ int, op, name string) outcome {
		if op == "list" && name == "snapshot-claims/" { // by the snapshot, and later by the removal
			select {
			case began <- struct{}{}:
			default:
			}
		}
		return done
	})

	busy := 0
	k := keeperOf(n.stores[0], n.fs, b, func(ctx context.Context) (*snapshot.ErasureState, error) {
		if busy++; busy == 1 {
			return nil, snapshot.ErrBusy // the keeper tries again
		}

		for len(began) > 0 {
			<-began
		}
		go func() {
			_, err := snapshot.RemoveIf(context.WithoutCancel(ctx), b, func(l snapshot.ListedSnapshot) bool { return l.Manifest.Erased.Epoch < 2 })
			removed <- err
		}()
		<-began

		return &snapshot.ErasureState{Epoch: 1}, nil
	})

	if _, err := k.TakeNow(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil || len(b.objectNames("")) > 0 || busy != 2 || k.Stats().Failed > 0 {
		t.Errorf("got %v, the objects %v, %d attempts and %+v, expected no objects, 2 attempts and no failure", err, b.objectNames(""), busy, k.Stats())
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
			t.Errorf("name %q: expected an error, got a bucket at %s", name, b)
		}
	}

	for _, name := range []string{"b", "A-1_x"} {
		b, err := snapshot.OfNode(shared, name)
		if err != nil {
			t.Fatal(err)
		}
		n := newTestProcess(t, b, newGraph())
		n.fold(t, follows(10))
		n.take(t, "one")
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
