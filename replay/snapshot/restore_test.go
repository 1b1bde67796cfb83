package snapshot_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// bucketWithSnapshot returns a bucket with a snapshot "one" of the graph.
func bucketWithSnapshot(t *testing.T) *memoryBucket {
	t.Helper()
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, follows(400))
	n.take(t, "one")
	return b
}

// TestDamagedSnapshotIsRefused damages each object of a snapshot in many ways. The error names the
// object.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	b := bucketWithSnapshot(t)
	if names := b.objectNames(""); len(names) < 5 {
		t.Fatalf("expected at least 5 objects, got %v", names)
	}

	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range b.objectNames("") {
		t.Run(name[:min(30, len(name))], func(t *testing.T) {
			data := b.objects[name].data

			refused := func(what string, damaged []byte) {
				t.Helper()
				bad := b.clone()
				bad.objects[name] = object{damaged, bad.objects[name].time}

				_, err := restoreInMemory(t, bad, "", newGraph())
				if !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrFormat) {
					t.Errorf("%s: got %v, expected ErrDamaged or ErrFormat", what, err)
				} else if !strings.Contains(err.Error(), name) {
					t.Errorf("%s: expected an error that names the object %s, got %q", what, name, err)
				}
			}

			for range min(len(data), 40) {
				bad := []byte(string(data))
				at := r.IntN(len(bad))
				bad[at] ^= 1 << r.IntN(8)
				refused("a flipped bit", bad)
			}
			if len(data) > 0 {
				refused("shorter by a byte", data[:len(data)-1])
			}
			refused("longer by a byte", append([]byte(string(data)), 'x'))

			if strings.HasPrefix(name, "snapshot-files/") {
				bad := b.clone()
				delete(bad.objects, name)
				if _, err := restoreInMemory(t, bad, "one", newGraph()); !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), name) {
					t.Errorf("missing file: got %v, expected ErrDamaged with the name of the object", err)
				}
			}
		})
	}
}

// The manifest of one snapshot under the name of another one is refused.
func TestManifestUnderAnotherNameIsRefused(t *testing.T) {
	b := bucketWithSnapshot(t)
	b.objects["snapshots/two/graph.json"] = b.objects["snapshots/one/graph.json"]
	if _, err := restoreInMemory(t, b, "two", newGraph()); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("got %v, expected ErrDamaged", err)
	}
}

// graphOfOtherVersion is the graph with another version.
type graphOfOtherVersion struct{ *graph.Graph }

func (graphOfOtherVersion) Version() uint32 { return 77 }

func TestUnusableSnapshotIsNotRestored(t *testing.T) {
	b := newMemoryBucket()
	settings := seen.DefaultSettings()
	n := newTestProcess(t, b, newGraph(), seen.New(settings))
	n.fold(t, follows(100))
	n.take(t, "one")

	other := settings
	other.Retention++
	for name, c := range map[string]struct {
		snapshot string
		p        projections.Projection
		is       error
		says     string
	}{
		"another version":  {p: graphOfOtherVersion{graph.New()}, is: snapshot.ErrVersion, says: "has 77"},
		"another setting":  {p: seen.New(other), is: snapshot.ErrBuiltDifferently, says: "setting retention"},
		"no such snapshot": {snapshot: "none", p: newGraph(), is: snapshot.ErrNone, says: "snapshots/none/graph.json"},
		"no such name":     {snapshot: "../one", p: newGraph(), is: snapshot.ErrName, says: "../one"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := restoreInMemory(t, b, c.snapshot, c.p); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, expected %v with %q", err, c.is, c.says)
			}
		})
	}

	o := snapshot.RestoreOptions{Bucket: b, Projection: newGraph(), Dir: "data"}
	t.Run("another log", func(t *testing.T) {
		o, fs := o, vfs.NewMem()
		o.FS = fs
		o.CheckCursor = func(_ context.Context, c events.Cursor) error {
			if c.Log != logID || c.Seq != n.stores[0].Cursor().Seq {
				t.Errorf("Accept was called with %+v, expected the cursor of the snapshot", c)
			}
			return events.ErrOtherLog
		}

		if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, events.ErrOtherLog) {
			t.Errorf("got %v, expected ErrOtherLog", err)
		}
		if left, _ := fs.List("data"); len(left) > 0 {
			t.Errorf("expected an empty directory, got %v", left)
		}
	})
	t.Run("store in place", func(t *testing.T) {
		o := o
		o.FS = vfs.NewMem()
		if _, err := snapshot.Restore(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, snapshot.ErrStore) {
			t.Errorf("got %v, expected ErrStore", err)
		}
	})
	t.Run("disk too full", func(t *testing.T) {
		o, fs := o, vfs.NewMem()
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 2000, TotalBytes: 1 << 20})
		o.FS = fs

		if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, replay.ErrDisk) {
			t.Errorf("got %v, expected ErrDisk", err)
		}
	})
}

// TestPowerCutsLeaveAWholeStoreOrNone cuts the power at every operation on the bucket, and after
// the end. The operations on the bucket come between those on the file system. The store is there
// completely or not at all, and the restore can be repeated.
func TestPowerCutsLeaveAWholeStoreOrNone(t *testing.T) {
	b := bucketWithSnapshot(t)
	envs := follows(400)
	want := conformance.Straight(t, newGraph(), envs)

	for at, over := 0, false; !over; at++ {
		fs, source := vfs.NewCrashableMem(), b.clone()

		var crashed *vfs.MemFS
		source.fault = func(n int, _, _ string) outcome {
			if n == at {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(at), 1))})
			}
			return done
		}

		o := snapshot.RestoreOptions{Bucket: source, Projection: newGraph(), FS: fs, Dir: "data"}
		if _, err := snapshot.Restore(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if over = crashed == nil; over {
			crashed = fs.CrashClone(vfs.CrashCloneCfg{})
		} else {
			o.FS = crashed
			if _, err := snapshot.Restore(t.Context(), o); err != nil {
				t.Fatalf("after a power cut at operation %d: %v", at, err)
			}
		}

		s := conformance.Open(t, crashed, newGraph(), store.Bounds{})
		conformance.RowsOf(t, s).MustEqual(t, want, "after a power cut at operation %d", at)
		conformance.Close(t, s)
	}
}

func TestDrillReadsAllRowsAndLeavesNothing(t *testing.T) {
	b := bucketWithSnapshot(t)
	envs := follows(600)
	fs := vfs.NewMem()
	o := snapshot.DrillOptions{RestoreOptions: snapshot.RestoreOptions{Bucket: b, Projection: newGraph(), FS: fs, Dir: "drill"}}
	rows := uint64(len(conformance.Straight(t, newGraph(), follows(400))))

	t.Run("without a log", func(t *testing.T) {
		d, err := snapshot.Drill(t.Context(), o)
		if err != nil || d.Rows != rows || d.Download <= 0 || d.Open <= 0 || d.Read <= 0 || d.ToSeq != 0 {
			t.Errorf("got %+v and %v, expected %d rows, durations, and no sequence that was folded to", d, err, rows)
		}
		t.Log(d)
	})
	t.Run("with a log", func(t *testing.T) {
		o := o
		o.Tail = func(_ context.Context, s *store.Store) error {
			if err := s.Fold(envs[conformance.IndexAfter(envs, s.Cursor()):]); err != nil {
				return err
			}
			conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, newGraph(), envs), "after the tail")
			return nil
		}

		d, err := snapshot.Drill(t.Context(), o)
		if err != nil || d.ToSeq != envs[len(envs)-1].Seq() || d.Tail <= 0 {
			t.Errorf("got %+v and %v, expected a drill up to sequence %d", d, err, envs[len(envs)-1].Seq())
		}
	})
	t.Run("damaged snapshot", func(t *testing.T) {
		o, bad := o, b.clone()
		o.Bucket = bad
		for _, name := range bad.objectNames("snapshot-files/") {
			if data := bad.objects[name].data; len(data) > 1000 {
				bad.objects[name] = object{data: append([]byte{data[0] ^ 1}, data[1:]...)}
			}
		}

		if _, err := snapshot.Drill(t.Context(), o); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("got %v, expected ErrDamaged", err)
		}
	})

	if left, _ := fs.List("drill"); len(left) > 0 {
		t.Errorf("expected an empty directory, got %v", left)
	}
}
