package snapshot_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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
	n.fold(t, makeFollows(400))
	n.mustTake(t, "one")
	return b
}

// TestDamagedSnapshotIsRefused damages each object of a snapshot in many ways. The error names the
// object.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	b := bucketWithSnapshot(t)
	if names := b.objectNames(""); len(names) < 5 {
		t.Fatalf("got the objects %v, expected at least 5", names)
	}

	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range b.objectNames("") {
		t.Run(name[:min(30, len(name))], func(t *testing.T) {
			data := b.objects[name].data

			checkRefused := func(damage string, damaged []byte) {
				t.Helper()
				damagedBucket := b.clone()
				damagedBucket.objects[name] = object{damaged, b.objects[name].time}

				_, err := restoreInMemory(t, damagedBucket, "", newGraph())
				if !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrFormat) {
					t.Errorf("%s: got %v, expected ErrDamaged or ErrFormat", damage, err)
				} else if !strings.Contains(err.Error(), name) {
					t.Errorf("%s: got %q, expected an error that names the object %s", damage, err, name)
				}
			}

			for range min(len(data), 40) {
				flipped := slices.Clone(data)
				flipped[random.IntN(len(flipped))] ^= 1 << random.IntN(8)
				checkRefused("a flipped bit", flipped)
			}
			if len(data) > 0 {
				checkRefused("shorter by a byte", data[:len(data)-1])
			}
			checkRefused("longer by a byte", append(slices.Clone(data), 'x'))

			if strings.HasPrefix(name, "snapshot-files/") {
				withoutFile := b.clone()
				delete(withoutFile.objects, name)
				_, err := restoreInMemory(t, withoutFile, "one", newGraph())
				if !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), name) {
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
	n.fold(t, makeFollows(100))
	n.mustTake(t, "one")

	otherSettings := settings
	otherSettings.Retention++
	for name, c := range map[string]struct {
		snapshot   string // empty means the newest
		projection projections.Projection
		wantErr    error
		wantText   string // in the error
	}{
		"another version": {
			projection: graphOfOtherVersion{graph.New()}, wantErr: snapshot.ErrVersion, wantText: "has 77",
		},
		"another setting": {
			projection: seen.New(otherSettings), wantErr: snapshot.ErrBuiltDifferently, wantText: "setting retention",
		},
		"no such snapshot": {
			snapshot: "none", projection: newGraph(), wantErr: snapshot.ErrNone, wantText: "snapshots/none/graph.json",
		},
		"no such name": {
			snapshot: "../one", projection: newGraph(), wantErr: snapshot.ErrName, wantText: "../one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := restoreInMemory(t, b, c.snapshot, c.projection)
			if !errors.Is(err, c.wantErr) || !strings.Contains(err.Error(), c.wantText) {
				t.Errorf("got %v, expected %v with %q", err, c.wantErr, c.wantText)
			}
		})
	}

	o := snapshot.RestoreOptions{Bucket: b, Projection: newGraph(), Dir: "data"}
	t.Run("another log", func(t *testing.T) {
		fs := vfs.NewMem()
		o := o
		o.FS = fs
		o.CheckCursor = func(_ context.Context, c events.Cursor) error {
			if wantSeq := n.stores[0].Cursor().Seq; c.Log != logID || c.Seq != wantSeq {
				t.Errorf("CheckCursor was called with %+v, expected the cursor of the snapshot at sequence %d of log %x", c, wantSeq, logID)
			}
			return events.ErrOtherLog
		}

		if _, err := snapshot.Restore(t.Context(), o); !errors.Is(err, events.ErrOtherLog) {
			t.Errorf("got %v, expected ErrOtherLog", err)
		}
		if names, _ := fs.List("data"); len(names) > 0 {
			t.Errorf("got the files %v, expected an empty directory", names)
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
		fs := vfs.NewMem()
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 2000, TotalBytes: 1 << 20})
		o := o
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
	envs := makeFollows(400)
	want := conformance.Straight(t, newGraph(), envs)

	// Cut the power one operation later each time, until there is no such operation.
	isCut := true
	for cutAt := 0; isCut; cutAt++ {
		fs := vfs.NewCrashableMem()
		source := b.clone()
		var crashed *vfs.MemFS
		source.outcomeOf = func(number int, _, _ string) outcome {
			if number == cutAt {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(cutAt), 1))})
			}
			return success
		}

		o := snapshot.RestoreOptions{Bucket: source, Projection: newGraph(), FS: fs, Dir: "data"}
		if _, err := snapshot.Restore(t.Context(), o); err != nil {
			t.Fatal(err)
		}

		// Repeat the restore after the power cut. Without one, cut the power now.
		isCut = crashed != nil
		if isCut {
			o.FS = crashed
			if _, err := snapshot.Restore(t.Context(), o); err != nil {
				t.Fatalf("restore after a power cut at operation %d: got %v, expected no error", cutAt, err)
			}
		} else {
			crashed = fs.CrashClone(vfs.CrashCloneCfg{})
		}

		s := conformance.Open(t, crashed, newGraph(), store.Bounds{})
		conformance.RowsOf(t, s).MustEqual(t, want, "after a power cut at operation %d", cutAt)
		conformance.Close(t, s)
	}
}

func TestDrillReadsAllRowsAndLeavesNothing(t *testing.T) {
	b := bucketWithSnapshot(t)
	envs := makeFollows(600)
	fs := vfs.NewMem()
	o := snapshot.DrillOptions{RestoreOptions: snapshot.RestoreOptions{Bucket: b, Projection: newGraph(), FS: fs, Dir: "drill"}}
	wantRows := uint64(len(conformance.Straight(t, newGraph(), makeFollows(400))))

	t.Run("without a log", func(t *testing.T) {
		d, err := snapshot.Drill(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d.Rows != wantRows || d.ToSeq != 0 {
			t.Errorf("got %d rows, folded up to %d, expected %d rows and nothing folded", d.Rows, d.ToSeq, wantRows)
		}
		if d.Download <= 0 || d.Open <= 0 || d.Read <= 0 {
			t.Errorf("got the durations %v, %v and %v, expected more than 0 for the download, the opening and the reading",
				d.Download, d.Open, d.Read)
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
		damaged := b.clone()
		for _, name := range damaged.objectNames("snapshot-files/") {
			if data := damaged.objects[name].data; len(data) > 1000 {
				damaged.objects[name] = object{data: append([]byte{data[0] ^ 1}, data[1:]...)}
			}
		}
		o := o
		o.Bucket = damaged

		if _, err := snapshot.Drill(t.Context(), o); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("got %v, expected ErrDamaged", err)
		}
	})

	if names, _ := fs.List("drill"); len(names) > 0 {
		t.Errorf("got the files %v after the drills, expected an empty directory", names)
	}
}
