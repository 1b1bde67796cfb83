package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// createFromRows creates a store in dir from one table with the rows.
func createFromRows(ctx context.Context, fs store.FS, dir string, rows conformance.Rows) error {
	w, err := store.CreateTable(fs, "table", tally.New(), store.LastLevel)
	if err != nil {
		return err
	}
	for _, r := range rows {
		err = errors.Join(err, w.Set(r.Key, r.Value))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return store.CreateStore(ctx, fs, dir, tally.New(), []string{"table"})
}

// foldToDisk makes the files of a store in the directory data, and returns its rows.
func foldToDisk(t *testing.T, fs store.FS) conformance.Rows {
	t.Helper()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.Fold(t, s, tally.History(3, 50))
	rows := conformance.RowsOf(t, s)
	conformance.Close(t, s)
	return rows
}

// TestFailedManifestOfShortLivedStoreIsAnError checks that the functions that open the files of a
// store for a moment return the error if any write to a manifest or a marker fails, or any sync of
// a directory. Pebble panics for these. The store must be closed then, so that a second call works.
// Pebble leaks goroutines if it cannot open a store, so the test runs in a process of its own.
func TestFailedManifestOfShortLivedStoreIsAnError(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	var ann events.Partitions
	ann.AddHome("ann")
	rows := foldToDisk(t, vfs.NewMem())

	for name, call := range map[string]struct {
		prepare func(t *testing.T, fs store.FS)
		do      func(ctx context.Context, fs store.FS) error
	}{
		"CreateStore": {
			prepare: func(*testing.T, store.FS) {},
			do: func(ctx context.Context, fs store.FS) error {
				return errors.Join(fs.RemoveAll(tallyDir), createFromRows(ctx, fs, tallyDir, rows))
			},
		},
		"ResizeCopy": {
			prepare: func(t *testing.T, fs store.FS) { foldToDisk(t, fs) },
			do: func(ctx context.Context, fs store.FS) error {
				return store.ResizeCopy(ctx, fs, tallyDir, tally.New(), ann)
			},
		},
		"FinalizeFormat": {
			prepare: func(t *testing.T, fs store.FS) { makeEmptyStore(t, fs, pebble.FormatMinSupported) },
			do: func(_ context.Context, fs store.FS) error {
				_, err := store.FinalizeFormat(fs, "data", []projections.Projection{tally.New()}, false)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The left-th of these writes fails. Once there are fewer, every one has failed.
			left := 0
			for failing := 1; ; failing++ {
				disk := vfs.NewMem()
				call.prepare(t, disk)
				left = failing
				fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
					isSyncOfDirectory := op.Kind == errorfs.OpFileSync && op.Path == tallyDir
					isOfManifest := strings.Contains(op.Path, "MANIFEST") || strings.Contains(op.Path, "marker.")
					if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove || !isSyncOfDirectory && !isOfManifest {
						return nil
					}
					left--
					if left == 0 {
						return errorfs.ErrInjected
					}
					return nil
				}))

				err := call.do(t.Context(), fs)
				if left > 0 {
					if err != nil {
						t.Errorf("no write fails: got error %v, want none", err)
					}
					if failing < 5 {
						t.Errorf("got %d writes that may fail, want at least 4", failing-1)
					}
					return
				}
				if !errors.Is(err, errorfs.ErrInjected) {
					t.Errorf("write %d fails: got error %v, want %v", failing, err, errorfs.ErrInjected)
				}

				// The copy that ResizeCopy has left is unusable, so a second call begins with another.
				if err := disk.RemoveAll(tallyDir); err != nil {
					t.Fatal(err)
				}
				call.prepare(t, disk)
				if err := call.do(t.Context(), disk); err != nil {
					t.Errorf("second call after write %d has failed: got error %v, want none", failing, err)
				}
			}
		})
	}
}

// TestDamagedCopyIsAnError checks that the functions that read a copy return an error if its blocks
// are damaged. Without a listener, Pebble would panic instead.
func TestDamagedCopyIsAnError(t *testing.T) {
	disk := vfs.NewMem()
	foldToDisk(t, disk)
	damageTables(t, disk, tallyDir)

	var ann events.Partitions
	ann.AddHome("ann")
	if err := store.ResizeCopy(t.Context(), disk, tallyDir, tally.New(), ann); !isDamage(err) {
		t.Errorf("resize: got error %v, want a damaged block", err)
	}
	err := store.ExportRows(t.Context(), disk, tallyDir, tally.New(), ann, func(_, _ []byte) error { return nil })
	if !isDamage(err) {
		t.Errorf("export: got error %v, want a damaged block", err)
	}
}

// TestCheckpointOfDamagedTableIsAnError checks that Checkpoint returns an error if a table is
// damaged that it copies.
func TestCheckpointOfDamagedTableIsAnError(t *testing.T) {
	disk := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: disk})
	conformance.Fold(t, s, tally.History(3, 50))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	damageTables(t, disk, tallyDir)
	if _, err := s.Checkpoint(t.Context(), "copy"); !isDamage(err) {
		t.Errorf("got error %v, want a damaged block", err)
	}
	if _, err := disk.Stat("copy"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy is left: got error %v, want %v", err, fs.ErrNotExist)
	}
}

// isDamage reports whether an error means that a block is damaged.
func isDamage(err error) bool { return pebble.IsCorruptionError(err) }

// damageTables damages the first half of each table in a directory, up to 600 bytes.
func damageTables(t *testing.T, disk *vfs.MemFS, dir string) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		data, err := disk.UnsafeGetFileDataBuffer(disk.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(data)/2, 600) {
			data[i] ^= 0x55
		}
		damaged++
	}
	if damaged == 0 {
		t.Fatal(fmt.Errorf("%s has no tables", dir))
	}
}
