package store_test

import (
	"errors"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// powerCuts is an [errorfs.Injector] that injects no errors. Before every write to the file system,
// it checks disks as a power cut at that moment could leave them.
type powerCuts struct {
	disk *vfs.MemFS
	// check must not end the test, because goroutines of Pebble call it.
	check func(cut int, disk *vfs.MemFS)

	mu     sync.Mutex // guards the following fields: Pebble also writes from goroutines of its own
	random *rand.Rand
	cuts   int
	// removed are the files that were removed since their directory was synced. A disk that is
	// copied by CrashClone still has them. But a file system that does not keep the order of names
	// may have removed them already, although it has not yet created others.
	removed []string
}

// String implements [errorfs.Injector].
func (*powerCuts) String() string { return "power cuts" }

// MaybeError implements [errorfs.Injector].
func (p *powerCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	p.cuts++
	for _, percent := range []int{0, 50, 100} {
		p.check(p.cuts, p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: p.random}))
		if len(p.removed) == 0 {
			continue
		}
		image := p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: p.random})
		for _, name := range p.removed {
			_ = image.Remove(name) // it may not be there
		}
		p.check(p.cuts, image)
	}

	switch op.Kind {
	case errorfs.OpRemove:
		p.removed = append(p.removed, op.Path)
	case errorfs.OpFileSync:
		p.removed = slices.DeleteFunc(p.removed, func(name string) bool { return path.Dir(name) == op.Path })
	}
	return nil
}

// checkPowerCuts calls change with a file system, and check with the number of the cut and the disk
// for each power cut before a write of change.
func checkPowerCuts(t *testing.T, disk *vfs.MemFS, change func(fs store.FS), check func(cut int, disk *vfs.MemFS)) {
	t.Helper()
	p := &powerCuts{disk: disk, check: check, random: rand.New(rand.NewPCG(1, 2))}
	change(errorfs.Wrap(disk, p))
	if p.cuts < 20 {
		t.Errorf("got %d cuts, want at least 20", p.cuts)
	}
}

// checkRowsSurvive returns a check for checkPowerCuts that opens the store and demands the rows.
func checkRowsSurvive(t *testing.T, want conformance.Rows) func(cut int, disk *vfs.MemFS) {
	return func(cut int, disk *vfs.MemFS) {
		s, err := store.Open(store.Options{FS: disk, Dir: "data", Projection: tally.New()})
		if err != nil {
			t.Errorf("cut %d: got error %v, want none", cut, err)
			return
		}
		if rows, err := conformance.FlushedRows(s); err != nil {
			t.Errorf("cut %d: got error %v, want none", cut, err)
		} else if diff := rows.Diff(want); diff != "" {
			t.Errorf("cut %d: %s", cut, diff)
		}
		if err := s.Close(); err != nil {
			t.Errorf("cut %d: close: got error %v, want none", cut, err)
		}
	}
}

// TestPowerCutWhileStoreIsCreatedKeepsNoOldFormat cuts the power at every write while a store is
// created. Pebble creates a store in its oldest format and then moves it on. The store that is
// opened after the power cut must have the format of new stores.
func TestPowerCutWhileStoreIsCreatedKeepsNoOldFormat(t *testing.T) {
	wantFormat := pebble.FormatMajorVersion(store.Format().Engine)
	check := func(cut int, disk *vfs.MemFS) {
		s, err := store.Open(store.Options{FS: disk, Dir: "data", Projection: tally.New()})
		if err != nil {
			t.Errorf("cut %d: got error %v, want none", cut, err)
			return
		}
		if got := s.Status().Format; got != uint32(wantFormat) {
			t.Errorf("cut %d: got format %d, want %d", cut, got, wantFormat)
		}
		if err := s.Close(); err != nil {
			t.Errorf("cut %d: close: got error %v, want none", cut, err)
		}
		checkStoreFormat(t, disk, tallyDir, wantFormat)
	}
	checkPowerCuts(t, vfs.NewCrashableMem(), func(fs store.FS) {
		conformance.Close(t, storetest.OpenTally(t, store.Options{FS: fs}))
	}, check)
}

// TestPowerCutWhileFormatIsFinalizedKeepsStore cuts the power at every write while FinalizeFormat
// moves a store, which replaces the marker of the format several times.
func TestPowerCutWhileFormatIsFinalizedKeepsStore(t *testing.T) {
	disk := vfs.NewCrashableMem()
	makeEmptyStore(t, disk, pebble.FormatMinSupported)
	for _, dir := range []string{"", "data", "data/tally"} {
		if err := store.SyncDir(disk, dir); err != nil {
			t.Fatal(err)
		}
	}
	rows := foldToDisk(t, disk)
	checkPowerCuts(t, disk, func(fs store.FS) {
		if _, err := store.FinalizeFormat(fs, "data", []projections.Projection{tally.New()}, false); err != nil {
			t.Error(err)
		}
	}, checkRowsSurvive(t, rows))
}

// TestPowerCutWhileManifestIsReplacedKeepsStore cuts the power at every write while a store is
// opened and closed, which replaces its manifest and the marker of the manifest.
func TestPowerCutWhileManifestIsReplacedKeepsStore(t *testing.T) {
	disk := vfs.NewCrashableMem()
	rows := foldToDisk(t, disk)
	checkPowerCuts(t, disk, func(fs store.FS) {
		conformance.Close(t, storetest.OpenTally(t, store.Options{FS: fs}))
	}, checkRowsSurvive(t, rows))
}

// TestFailedSyncOfMovedMarkerEndsNoProcess checks that Pebble does not panic if the directory cannot
// be synced after a flush has replaced the manifest. A store replaces its manifest when it has
// 128 MiB, so the test runs Pebble with a lower limit. Memory of Pebble is leaked, so the test runs
// in a process of its own.
func TestFailedSyncOfMovedMarkerEndsNoProcess(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	var isArmed, isMoved atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case isArmed.Load() && op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "db/marker.manifest."):
			isMoved.Store(true)
		case isMoved.Load() && op.Kind == errorfs.OpFileSync && op.Path == "db":
			return errorfs.ErrInjected
		}
		return nil
	}))
	failed := make(chan error, 1)
	fs := store.WithDirectorySyncs(disk, "db", func(err error) {
		failed <- err
		runtime.Goexit()
	})
	db, err := pebble.Open("db", &pebble.Options{FS: fs, DisableWAL: true, Logger: silentLogger{}, MaxManifestFileSize: 1})
	if err != nil {
		t.Fatal(err)
	}

	// Flush until a flush replaces the manifest.
	isArmed.Store(true)
	for {
		if err := db.Set([]byte("key"), []byte("value"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		flushed, err := db.AsyncFlush()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-flushed:
		case err := <-failed:
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("got error %v, want %v", err, errorfs.ErrInjected)
			}
			return
		}
	}
}
