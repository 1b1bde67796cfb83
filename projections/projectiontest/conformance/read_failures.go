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

// The suite repeats each operation about maxReadFailures times, or maxReadFailuresShort times in
// short mode, and lets another read fail each time. It does not try all reads: a fold without a
// cache makes thousands.
const (
	maxReadFailures      = 400
	maxReadFailuresShort = 4
)

// readingOperation is an operation that reads the files of a store.
type readingOperation struct {
	name string
	// folded is the number of envelopes that are folded into the store in the directory "data"
	// before the operation.
	folded int
	// expected has the rows that the operation must make.
	expected Rows
	// run runs the operation on the file system failing and returns the rows that it makes. disk
	// has the same files, but no read of it fails.
	run func(disk, failing store.FS) (Rows, error)
}

// testReadFailures lets single reads fail while rows are folded, built or copied. The operation
// must either return an error or make the expected rows.
func testReadFailures(t *testing.T, c Case, h History) {
	for _, operation := range readingOperations(t, c, h) {
		t.Run(operation.name, func(t *testing.T) {
			before := vfs.NewCrashableMem()
			if operation.folded > 0 {
				s := Open(t, before, c.New(), store.Bounds{})
				Fold(t, s, h.Envelopes[:operation.folded])
				// Without this, a compaction might read during the operation, and the number of
				// reads would vary.
				if err := s.Compact(t.Context()); err != nil {
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

			maxFailures := int64(maxReadFailures)
			if testing.Short() {
				maxFailures = maxReadFailuresShort
			}
			failed := 0
			for n := int64(1); n <= reads; n += max(1, reads/maxFailures) {
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
				t.Error("got no read that failed, want some")
			}
		})
	}
}

// readingOperations returns the operations: a fold, a build, a copy with fewer partitions, and an
// export of partitions to another process.
func readingOperations(t *testing.T, c Case, h History) []readingOperation {
	var removed events.Partitions
	for p := 0; p < events.NumPartitions; p += 16 {
		removed.Add(uint8(p))
	}
	all := events.AllPartitions()
	some := all.Without(&removed)

	dir := dataDir + "/" + c.New().Name() + "/000001"
	half := len(h.Envelopes) / 2
	straight := Straight(t, c.New(), h.Envelopes)
	straightOfSome := StraightOf(t, c.New(), &some, h.Envelopes)

	fold := func(disk, failing store.FS) (Rows, error) {
		// Keep few rows in memory and no blocks, so that the fold reads files.
		s, err := store.Open(store.Options{
			FS: failing, Dir: dataDir, Projection: c.New(), Bounds: keepFewRows, Cache: newEmptyCache(t),
		})
		if err != nil {
			return nil, err
		}
		// If the read of a goroutine of Pebble fails after Fold has looked for the last time
		// whether the store has failed, Close does not flush, and neither returns the error.
		if err := errors.Join(s.Fold(h.Envelopes[half:]), s.Close(), s.Failure()); err != nil {
			// Another fold must be able to continue where this one has stopped.
			reopened := Open(t, disk, c.New(), store.Bounds{})
			Fold(t, reopened, h.Envelopes[IndexAfter(h.Envelopes, reopened.Cursor()):])
			RowsOf(t, reopened).MustEqual(t, straight, "a fold that continues after a read has failed")
			Close(t, reopened)
			return nil, err
		}
		return readClosedStore(t, disk, c.New(), nil), nil
	}

	buildStore := func(disk, failing store.FS) (Rows, error) {
		b, err := build.New(build.Options{FS: failing, Dir: dir, New: c.New, Memory: 2 << 10, Workers: 1})
		if err == nil {
			err = errors.Join(b.Add(h.Envelopes), b.Finish(t.Context()), b.Close())
		}
		if err != nil {
			return nil, err
		}
		return readClosedStore(t, disk, c.New(), nil), nil
	}

	resize := func(disk, failing store.FS) (Rows, error) {
		if err := store.ResizeCopy(t.Context(), failing, dir, c.New(), some); err != nil {
			return nil, err
		}
		return readClosedStore(t, disk, c.New(), &some), nil
	}

	exchange := func(_, failing store.FS) (Rows, error) { return exchangeRows(t.Context(), failing, c.New, some) }

	return []readingOperation{
		{"fold", half, straight, fold},
		{"build", 0, straight, buildStore},
		{"copy for other partitions", len(h.Envelopes), straightOfSome, resize},
		{"copy to another process", len(h.Envelopes), straightOfSome, exchange},
	}
}

// newEmptyCache returns a cache that keeps no blocks, so that every read of a row reads a file.
func newEmptyCache(t *testing.T) *store.Cache {
	cache := store.NewCache(0)
	t.Cleanup(cache.Unref)
	return cache
}

// readClosedStore opens the store in the directory "data", returns its rows, and closes it.
func readClosedStore(t testing.TB, fs store.FS, p projections.Projection, held *events.Partitions) Rows {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: p, Partitions: held})
	if err != nil {
		t.Fatal(err)
	}
	rows := RowsOf(t, s)
	Close(t, s)
	return rows
}

// exchangeRows exports the rows of some partitions of the store in the directory "data", imports
// them as another process would, and returns the rows of the store that this makes.
func exchangeRows(
	ctx context.Context, fs store.FS, newProjection func() projections.Projection, parts events.Partitions,
) (rows Rows, err error) {
	l, err := live.Open(live.Options{New: newProjection, Options: store.Options{FS: fs, Dir: dataDir}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	eachRow := func(do func(key, value []byte) error) error {
		return l.ExportPartitions(ctx, l.FoldHash(), parts, do)
	}
	imported, err := l.ImportPartitions(ctx, "taken", parts, eachRow)
	if err != nil {
		return nil, err
	}
	rows, err = readRows(imported)
	return rows, errors.Join(err, imported.Close())
}
