package store_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

// TestDiskErrorStopsProjection checks that a disk error stops the projection for its fold, its
// queries and its waiters. The store can then still be closed, and the disk has a prefix of the
// log.
func TestDiskErrorStopsProjection(t *testing.T) {
	for name, fails := range map[string]func(op errorfs.Op) bool{
		"create": func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") },
		"write":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") },
		"sync": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".sst")
		},
	} {
		t.Run(name, func(t *testing.T) { testDiskFails(t, fails) })
	}
}

// TestFatalErrorOfPebbleStopsProjectionOnly checks that the process continues when Pebble itself
// cannot continue. Goroutines of Pebble are leaked, so the test runs in a process of its own.
func TestFatalErrorOfPebbleStopsProjectionOnly(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	for name, fails := range map[string]func(op errorfs.Op) bool{
		"write": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "MANIFEST")
		},
		"sync": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST")
		},
		"sync of the directory": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync && op.Path == tallyDir
		},
	} {
		t.Run(name, func(t *testing.T) { testDiskFails(t, fails) })
	}
}

// TestFailedOpeningReturnsError checks that Open returns an error if a disk error occurs while
// Pebble opens, or while the first rows are written, even in the background, and that the next Open
// finds everything. Memory of Pebble is leaked, so the test runs in a process of its own.
func TestFailedOpeningReturnsError(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	envs := tally.History(3, 100)
	want := foldStraight(t, envs)
	for name, foldedBefore := range map[string]int{"new store": 0, "existing store": 50} {
		t.Run(name, func(t *testing.T) {
			// After a number of writes that succeed, each further write fails as on a full disk. Every
			// round lets one more write succeed, until Open needs no more.
			writes := int64(0)
			for openOnFullDisk(t, envs, want, foldedBefore, writes) != nil {
				if writes++; writes == 1000 {
					t.Fatalf("opening fails after %d writes, want it to succeed", writes)
				}
			}
			if writes < 5 {
				t.Errorf("opening succeeds after %d writes, want at least 5", writes)
			}
		})
	}
}

// openOnFullDisk folds some envelopes, if any, and opens the store again on a disk of which all
// writes but the given number fail. It returns the error of Open. Then it opens what is on the disk,
// and checks that the rest of the envelopes can be folded, which makes the rows want.
func openOnFullDisk(t *testing.T, envs []*events.Envelope, want conformance.Rows, foldedBefore int, writes int64) error {
	t.Helper()
	var broken atomic.Bool
	var left atomic.Int64
	disk := vfs.NewMem()
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFilePreallocate:
			if broken.Load() && left.Add(-1) < 0 {
				return errorfs.ErrInjected
			}
		}
		return nil
	}))
	if foldedBefore > 0 {
		s := storetest.OpenTally(t, store.Options{FS: fs})
		conformance.Fold(t, s, envs[:foldedBefore])
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	// Open the store while writes fail.
	left.Store(writes)
	broken.Store(true)
	s, openErr := store.Open(store.Options{FS: fs, Dir: "data", Projection: tally.New()})
	broken.Store(false)
	if openErr == nil {
		if err := s.Close(); err != nil {
			t.Errorf("close after %d writes: got error %v, want none", writes, err)
		}
		return nil
	}

	// The next Open finds everything.
	s = storetest.OpenTally(t, store.Options{FS: copyDisk(t, disk)})
	conformance.Fold(t, s, envs)
	conformance.RowsOf(t, s).MustEqual(t, want, "recovered after %d writes", writes)
	return openErr
}

// TestCloseEndsWithFatalErrorOfPebble checks that Close returns if Pebble reports a fatal error
// during a compaction for which Close waits. Pebble never ends that compaction. Its goroutines are
// leaked, so the test runs in a process of its own.
func TestCloseEndsWithFatalErrorOfPebble(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	fs := newCompactionFailure(vfs.NewMem())
	envs := tally.History(3, 60)
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.Fold(t, s, envs[:50])
	row := conformance.RowsOf(t, s)[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Write the same row again, in one table after the other, so that a compaction begins after the
	// next flush.
	changeFiles(t, fs, func(db *pebble.DB) (err error) {
		for range 5 {
			err = errors.Join(err, db.Set(row.Key, row.Value, pebble.NoSync), db.Flush())
		}
		return err
	})
	s = storetest.OpenTally(t, store.Options{FS: fs})
	conformance.Fold(t, s, envs)
	fs.tablesBefore.Store(1) // that of the flush
	fs.editsBefore.Store(1)
	fs.isArmed.Store(true)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	<-fs.waiting

	// Let the compaction fail when Pebble waits for its end.
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	waitForCall("pebble/v2.(*DB).Close(")
	close(fs.goOn)
	if err := <-closed; err != nil {
		t.Errorf("close: got error %v, want none, because everything was flushed before", err)
	}
}

// TestCompactEndsWithFatalErrorOfPebble checks that Compact returns if Pebble reports a fatal error
// during the compaction, and that the store can then be closed. Pebble never ends the compaction.
// Its goroutines are leaked, so the test runs in a process of its own.
func TestCompactEndsWithFatalErrorOfPebble(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}
	fs := newCompactionFailure(vfs.NewMem())
	s := storetest.OpenTally(t, store.Options{FS: fs})
	foldOneTable(t, s)

	fs.isArmed.Store(true)
	compacted := make(chan error)
	go func() { compacted <- s.Compact(t.Context()) }()
	<-fs.waiting
	close(fs.goOn)

	if err := <-compacted; !errors.Is(err, projections.ErrStopped) || !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("compact: got error %v, want %v with %v", err, projections.ErrStopped, errorfs.ErrInjected)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: got error %v, want none", err)
	}
}

// TestCloseCancelsCompact checks that Close does not wait for the parts of a Compact that have not
// begun, and that Compact then reports that the store is closed.
func TestCloseCancelsCompact(t *testing.T) {
	fs := newCompactionFailure(vfs.NewMem())
	s := storetest.OpenTally(t, store.Options{FS: fs})
	foldOneTable(t, s)

	// The manifest waits, so the compaction cannot end before Close has begun.
	fs.succeeds = true
	fs.isArmed.Store(true)
	compacted := make(chan error)
	go func() { compacted <- s.Compact(t.Context()) }()
	<-fs.waiting
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	if err := <-compacted; !errors.Is(err, projections.ErrClosed) {
		t.Errorf("compact: got error %v, want %v", err, projections.ErrClosed)
	}
	close(fs.goOn)
	if err := <-closed; err != nil {
		t.Errorf("close: got error %v, want none", err)
	}
}

// foldOneTable folds into one table, which Compact moves to another level.
func foldOneTable(t *testing.T, s *store.Store) {
	t.Helper()
	conformance.Fold(t, s, tally.History(3, 80))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// compactionFailure is a file system on which the compactions of a store of tally wait, once it is
// armed, until the test lets them write to the manifest.
type compactionFailure struct {
	vfs.FS
	isArmed atomic.Bool
	// tablesBefore and editsBefore are the numbers of tables that are created, and of writes to the
	// manifest, before those of the compaction.
	tablesBefore, editsBefore atomic.Int64
	// waiting is closed when a compaction is about to create a table or to write to the manifest.
	// The test closes goOn. The write to the manifest then fails, unless succeeds is set.
	waiting, goOn chan struct{}
	succeeds      bool
}

func newCompactionFailure(disk vfs.FS) *compactionFailure {
	f := &compactionFailure{waiting: make(chan struct{}), goOn: make(chan struct{})}
	var once sync.Once
	f.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		isTable := op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst")
		isEdit := op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, tallyDir+"/MANIFEST")
		switch {
		case !f.isArmed.Load():
			return nil
		case isTable && f.tablesBefore.Add(-1) < 0, isEdit && f.editsBefore.Add(-1) < 0:
			once.Do(func() { close(f.waiting) })
			<-f.goOn
			if isEdit && !f.succeeds {
				return errorfs.ErrInjected
			}
		}
		return nil
	}))
	return f
}

// waitForCall returns when a goroutine is inside of a function.
func waitForCall(function string) {
	stacks := make([]byte, 1<<20)
	for !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function) {
		runtime.Gosched()
	}
}

// testDiskFails folds until the disk fails, and then opens what is left on the disk.
func testDiskFails(t *testing.T, fails func(op errorfs.Op) bool) {
	envs := tally.History(3, 400)
	disk := vfs.NewCrashableMem()
	var broken atomic.Bool
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && fails(op) {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s := storetest.OpenTally(t, store.Options{FS: fs, Bounds: store.Bounds{FlushBytes: 8 << 10, BatchBytes: 1 << 10}})
	conformance.Fold(t, s, envs[:50])
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}

	// Break the disk, and fold until a write fails.
	waited := make(chan error)
	go func() { waited <- s.WaitFor(t.Context(), 1<<40) }()
	broken.Store(true)
	var err error
	for i := 50; i < len(envs) && err == nil; i++ {
		err = s.Fold(envs[i : i+1])
	}
	if err == nil {
		err = s.Flush()
	}

	if !errors.Is(err, projections.ErrStopped) || errors.Is(err, projections.ErrClosed) {
		t.Fatalf("fold: got error %v, want %v", err, projections.ErrStopped)
	}
	if err := <-waited; !errors.Is(err, projections.ErrStopped) {
		t.Errorf("wait: got error %v, want %v", err, projections.ErrStopped)
	}
	if st := s.Status(); st.State != store.Failed || !strings.Contains(fmt.Sprint(st.Error), "injected error") {
		t.Errorf("got status %+v, want state failed with the injected error", st)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: got error %v, want none", err)
	}

	// What is left on the disk has a prefix of the log.
	s = storetest.OpenTally(t, store.Options{FS: disk.CrashClone(vfs.CrashCloneCfg{})})
	if c := s.Cursor(); c.Seq < envs[49].Seq() {
		t.Errorf("the reopened store is at %d, want at least the flushed position %d", c.Seq, envs[49].Seq())
	}
	conformance.Fold(t, s, envs)
	conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "recovered")
}

// TestCorruptTableStopsProjection checks that rows that cannot be read stop the projection (I11).
func TestCorruptTableStopsProjection(t *testing.T) {
	disk := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: disk})
	conformance.Fold(t, s, tally.History(3, 200))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	damageTables(t, disk, s.Dir())

	// Either Open or the fold must find the damage.
	s, err := store.Open(store.Options{FS: disk, Dir: "data", Projection: tally.New()})
	if err == nil {
		err = s.Fold(tally.History(3, 300))
		if !errors.Is(err, projections.ErrStopped) {
			t.Errorf("fold over a corrupt table: got error %v, want %v", err, projections.ErrStopped)
		}
		err = s.Close()
		if err != nil {
			t.Errorf("close: got error %v, want none", err)
		}
		return
	}
	t.Logf("refused: %v", err)
}

// TestOpeningDoesNotWaitForCompactions checks that opening a store does not wait for compactions
// that are due, and that they begin with the next flush. A store with so many sublevels that the
// fold waits for compactions must continue, too.
func TestOpeningDoesNotWaitForCompactions(t *testing.T) {
	envs := tally.History(3, 60)
	for _, flushes := range []int{5, 40} {
		fs := vfs.NewMem()
		s := storetest.OpenTally(t, store.Options{FS: fs})
		conformance.Fold(t, s, envs[:50])
		row := conformance.RowsOf(t, s)[0]
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}

		// Write the same row again, in one table after the other.
		changeFiles(t, fs, func(db *pebble.DB) (err error) {
			for range flushes {
				err = errors.Join(err, db.Set(row.Key, row.Value, pebble.NoSync), db.Flush())
			}
			return err
		})

		compacted := make(chan struct{}, 1)
		s = storetest.OpenTally(t, store.Options{FS: fs, Listener: store.Listener{Compacted: func(store.FlushInfo) {
			select {
			case compacted <- struct{}{}:
			default:
			}
		}}})

		// With few sublevels, the fold does not wait for compactions, so opening has not run any.
		if e, _ := s.Engine(); flushes == 5 && (e.Compactions != 0 || e.Sublevels < flushes) {
			t.Errorf("got engine %+v, want no compactions and at least %d sublevels", e, flushes)
		}

		conformance.Fold(t, s, envs)
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		<-compacted
		conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "compacted")
	}
}

// TestOpenStoreIsNotOpenedAgain checks that opening a store that is open fails, and that the error
// says so.
func TestOpenStoreIsNotOpenedAgain(t *testing.T) {
	opts := store.Options{Dir: t.TempDir(), Projection: tally.New()}
	s, err := store.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Projection = tally.New()
	if _, err := store.Open(opts); !errors.Is(err, projections.ErrInUse) || !strings.Contains(err.Error(), opts.Dir) {
		t.Errorf("open twice: got error %v, want %v with the directory", err, projections.ErrInUse)
	}
	conformance.Close(t, s)
}

// TestStoreWorksOnRealDisk runs a store on a real disk, with a shared cache.
func TestStoreWorksOnRealDisk(t *testing.T) {
	cache := store.NewCache(1 << 20)
	defer cache.Unref()
	envs := tally.History(8, 300)
	opts := store.Options{Dir: t.TempDir(), Projection: tally.New(), Cache: cache}
	for i := 0; i < len(envs); i += 100 {
		s, err := store.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		conformance.Fold(t, s, envs[:i+100])
		if i == 200 {
			conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "on disk")
		}
		if st := s.Status(); st.DiskBytes == 0 || st.Generation != 1 {
			t.Errorf("got status %+v, want generation 1 with files", st)
		}
		conformance.Close(t, s)
	}
}

// copyDisk returns a copy of a disk on which this process holds no lock.
func copyDisk(t *testing.T, disk vfs.FS) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	ok, err := vfs.Clone(disk, fs, "data", "data")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Fatal("got no copy of the directory data, want one")
	}
	return fs
}
