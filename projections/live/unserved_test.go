package live_test

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/projections/live"
)

// TestStoresOfOtherProjectionsAreRemoved checks that RemoveUnserved removes the stores of
// projections that the process does not have, and what was prepared for them. It removes nothing
// else.
func TestStoresOfOtherProjectionsAreRemoved(t *testing.T) {
	var failing atomic.Pointer[errorfs.Op]
	errDisk := errors.New("the disk fails")
	disk := vfs.NewCrashableMem()
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpList && op.Path == "data/lost+found" {
			return os.ErrPermission // as for a process that is not root
		}
		if f := failing.Load(); f != nil && op.Kind == f.Kind && op.Path == f.Path {
			return errDisk
		}
		return nil
	}))
	l := openLive(t, liveOptions(fs))
	for _, dir := range []string{
		"earlier/000012", "next/prepared/next/000001", "copied/shadow-next", "shadow-snapshots/tally/000001", "lost+found/7",
	} {
		if err := fs.MkdirAll("data/"+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"data", "data/earlier"} {
		f, err := fs.OpenDir(dir)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, op := range []errorfs.Op{
		{Kind: errorfs.OpList, Path: "data"},
		{Kind: errorfs.OpList, Path: "data/earlier"},
		{Kind: errorfs.OpRemoveAll, Path: "data/earlier"},
	} {
		failing.Store(&op)
		if _, err := live.RemoveUnserved([]*live.Live{l}); !errors.Is(err, errDisk) {
			t.Errorf("with a fault at %v: got error %v, want %v", op, err, errDisk)
		}
	}
	failing.Store(nil)
	if _, err := live.RemoveUnserved([]*live.Live{l}); err != nil {
		t.Fatal(err)
	}

	names, err := disk.CrashClone(vfs.CrashCloneCfg{}).List("data")
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		names[i] = path.Base(names[i])
	}
	slices.Sort(names)
	if diff := cmp.Diff("lost+found shadow-snapshots tally", strings.Join(names, " ")); diff != "" {
		t.Errorf("directories after a power cut (-want +got):\n%s", diff)
	}
}
