package live_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// openWithPrevious opens a Live that has a previous generation, 1, and waits until that is closed.
func openWithPrevious(t *testing.T, fs store.FS) *live.Live {
	t.Helper()
	l := openLive(t, liveOptions(fs))
	envs := storetest.Follows(20)
	if err := l.Serving().Fold(envs); err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, buildNext(t, l, envs))
	checkGenerations(t, l, 2, 1)
	return l
}

// TestDeletePreviousReturnsErrors checks that DeletePrevious fails if it cannot find or remove the
// files of the previous generation, and that the next call removes them. An erasure would otherwise
// report success while the files of the erased user are still there.
func TestDeletePreviousReturnsErrors(t *testing.T) {
	errDisk := errors.New("the disk fails")
	for name, failing := range map[string]errorfs.Op{
		"remove": {Kind: errorfs.OpRemoveAll, Path: "data/tally/000001"},
		"list":   {Kind: errorfs.OpList, Path: "data/tally"},
	} {
		t.Run(name, func(t *testing.T) {
			var isArmed atomic.Bool
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if isArmed.Load() && op.Kind == failing.Kind && op.Path == failing.Path {
					return errDisk
				}
				return nil
			}))
			l := openWithPrevious(t, fs)

			isArmed.Store(true)
			if err := l.DeletePrevious(t.Context()); !errors.Is(err, errDisk) {
				t.Errorf("got error %v, want %v", err, errDisk)
			}
			isArmed.Store(false)
			if err := l.DeletePrevious(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := listDirectories(fs); got != "000002 GENERATIONS" {
				t.Errorf("after the second call: got the directories %s, want generation 2 only", got)
			}
		})
	}
}

// TestPowerCutDoesNotBringBackPrevious checks that the files of the previous generation do not
// appear again when the power is cut after DeletePrevious.
func TestPowerCutDoesNotBringBackPrevious(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := openWithPrevious(t, fs)
	if err := l.DeletePrevious(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := listDirectories(fs.CrashClone(vfs.CrashCloneCfg{})); got != "000002 GENERATIONS" {
		t.Errorf("after a power cut: got the directories %s, want generation 2 only", got)
	}
}

// TestDeletePreviousRemovesLeftCopies checks that DeletePrevious removes copies of generations that
// an export or a rebuild could not remove. It keeps the copy of an export that is under way, and
// the temporary stores of others.
func TestDeletePreviousRemovesLeftCopies(t *testing.T) {
	errDisk := errors.New("the disk fails")
	var isArmed atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isArmed.Load() && op.Kind == errorfs.OpRemoveAll && op.Path == "data/tally/shadow-given-1" {
			return errDisk
		}
		return nil
	}))
	l := openWithPrevious(t, fs)
	if err := errors.Join(fs.MkdirAll("data/tally/shadow-next.copies", 0o700), fs.MkdirAll("data/tally/shadow-audit", 0o700)); err != nil {
		t.Fatal(err)
	}
	isArmed.Store(true)
	err := l.ExportPartitions(t.Context(), l.FoldHash(), events.AllPartitions(), func(_, _ []byte) error { return nil })
	if !errors.Is(err, errDisk) {
		t.Fatalf("an export whose copy cannot be removed: got error %v, want %v", err, errDisk)
	}
	isArmed.Store(false)

	rows := 0
	err = l.ExportPartitions(t.Context(), l.FoldHash(), events.AllPartitions(), func(_, _ []byte) error {
		rows++
		if rows > 1 {
			return nil
		}
		if err := l.DeletePrevious(t.Context()); err != nil {
			return err
		}
		if got := listDirectories(fs); got != "000002 GENERATIONS shadow-audit shadow-given-2" {
			t.Errorf("during an export: got the directories %s, want those of generation 2, the export and the audit", got)
		}
		return nil
	})
	if err != nil || rows < 2 {
		t.Errorf("an export during DeletePrevious: got %d rows, error %v, want several rows", rows, err)
	}
	if got := listDirectories(fs); got != "000002 GENERATIONS shadow-audit" {
		t.Errorf("after the export: got the directories %s, want those of generation 2 and the audit", got)
	}
}
