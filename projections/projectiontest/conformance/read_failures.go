package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

// mostReadFailures is about how many reads of an operation fail, one at a time, at full length, and mostReadFailuresShort in the merge
// gate. A fold without a cache makes thousands of reads.
const (
	mostReadFailures      = 400
	mostReadFailuresShort = 4
)

// readingOperation is an operation that reads the files of a store.
type readingOperation struct {
	name string
	// folded is how many envelopes are in the store in the directory "data" before the operation.
	folded int
	// expected are the rows that the operation makes.
	expected Rows
	// run makes the rows. Reads of the file system failing may fail; disk has the same files.
	run func(disk, failing store.FS) (Rows, error)
}

// testReadFailures makes one read after the other fail while rows are folded, built or copied. The operation must return an error or make
// the right rows.
func testReadFailures(t *testing.T, c Case, h History) {
	for _, operation := range readingOperations(t, c, h) {
		t.Run(operation.name, func(t *testing.T) {
			before := vfs.NewCrashableMem()
			if operation.folded > 0 {
				s := Open(t, before, c.New(), store.Bounds{})
				Fold(t, s, h.Envelopes[:operation.folded])
				if err := s.Compact(t.Context()); err != nil { // so that no compaction reads at the same time
					t.Fatal(err)
				}
				Close(t, s)
			}
			faults := &FailingRead{}
			run := func() (Rows, error) {
				disk := before.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
				return operation.run(disk, faults.FileSystem(disk))
			}
			reads := faults.Count(func() {
				rows, err := run()
				if err != nil {
					t.Fatal(err)
				}
				rows.MustEqual(t, operation.expected, "no read fails")
			})
			most := int64(mostReadFailures)
			if testing.Short() {
				most = mostReadFailuresShort
			}

			failed := 0
			for n := int64(1); n <= reads; n += max(1, reads/most) {
				faults.FailAt(n)
				rows, err := run()
				if faults.HasFailed() {
					failed++
				}
				faults.FailAt(0)
				if err == nil {
					rows.MustEqual(t, operation.expected, "read %d of %d fails", n, reads)
				}
			}
			if failed == 0 {
				t.Error("no read has failed")
			}
		})
	}
}

// readingOperations returns the operations: a fold, a build, and two ways to copy a part of the partitions.
func readingOperations(t *testing.T, c Case, h History) []readingOperation {
	some := events.AllPartitions()
	for p := 0; p < events.NumPartitions; p += 16 {
		one := events.Partitions{}
		one.Add(uint8(p))
		some = some.Without(&one)
	}
	all, half, dir := len(h.Envelopes), len(h.Envelopes)/2, dataDir+"/"+c.New().Name()+"/000001"
	straight, ofSome := Straight(t, c.New(), h.Envelopes), StraightOf(t, c.New(), &some, h.Envelopes)

	fold := func(disk, failing store.FS) (Rows, error) {
		// Hardly any row is kept in memory, and no block.
		s, err := store.Open(store.Options{
			FS: failing, Dir: dataDir, Projection: c.New(), Bounds: keepFewRows, Cache: noBlocks(t),
		})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(s.Fold(h.Envelopes[half:]), s.Close()); err != nil {
			// Another fold continues where this one has stopped.
			again := Open(t, disk, c.New(), store.Bounds{})
			Fold(t, again, h.Envelopes[IndexAfter(h.Envelopes, again.Cursor()):])
			RowsOf(t, again).MustEqual(t, straight, "a fold that continues after a read has failed")
			Close(t, again)
			return nil, err
		}
		return rowsOfDirectory(t, disk, c.New(), nil), nil
	}
	finish := func(disk, failing store.FS) (Rows, error) {
		b, err := build.New(build.Options{FS: failing, Dir: dir, New: c.New, Memory: 4 << 10, Workers: 1})
		if err == nil {
			err = errors.Join(b.Add(h.Envelopes), b.Finish(t.Context()), b.Close())
		}
		if err != nil {
			return nil, err
		}
		return rowsOfDirectory(t, disk, c.New(), nil), nil
	}
	resize := func(disk, failing store.FS) (Rows, error) {
		if err := store.ResizeCopy(t.Context(), failing, dir, c.New(), some); err != nil {
			return nil, err
		}
		return rowsOfDirectory(t, disk, c.New(), &some), nil
	}
	take := func(_, failing store.FS) (Rows, error) { return takeRows(t.Context(), failing, c.New, some) }
	return []readingOperation{
		{"fold", half, straight, fold},
		{"build", 0, straight, finish},
		{"copy for other partitions", all, ofSome, resize},
		{"copy to another process", all, ofSome, take},
	}
}

// noBlocks returns a cache that keeps no block, so that every read of a row is one of a file.
func noBlocks(t *testing.T) *store.Cache {
	cache := store.NewCache(0)
	t.Cleanup(cache.Unref)
	return cache
}

// rowsOfDirectory returns the rows of the store of a projection in the directory "data", which is not open.
func rowsOfDirectory(t testing.TB, fs store.FS, p projections.Projection, held *events.Partitions) Rows {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: p, Partitions: held})
	if err != nil {
		t.Fatal(err)
	}
	rows := RowsOf(t, s)
	Close(t, s)
	return rows
}

// takeRows returns the rows of some partitions of the store in the directory "data" as another process gets them.
func takeRows(ctx context.Context, fs store.FS, newProjection func() projections.Projection, of events.Partitions) (rows Rows, err error) {
	l, err := live.Open(live.Options{New: newProjection, Options: store.Options{FS: fs, Dir: dataDir}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	taken, err := l.ImportPartitions(ctx, "taken", of, func(do func(key, value []byte) error) error { return l.ExportPartitions(ctx, l.FoldHash(), of, do) })
	if err != nil {
		return nil, err
	}
	rows, err = rowsOf(taken)
	return rows, errors.Join(err, taken.Close())
}
