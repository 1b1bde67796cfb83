package build

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
)

// TestPiecesWriteEveryRowOnce checks that a merge in pieces writes every row of all runs once, into
// tables that do not overlap, and counts the rows.
func TestPiecesWriteEveryRowOnce(t *testing.T) {
	const rows, files = 100_000, 7
	reported := int64(0)
	b, err := New(Options{
		FS: vfs.NewMem(), Dir: "new", New: func() projections.Projection { return graph.New() },
		Merging: func(_ context.Context, all int64, merge func() (int64, error)) error {
			if all != rows {
				t.Errorf("got %d rows to be merged, want %d", all, rows)
			}
			merged, err := merge()
			reported += merged
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := &runSet{builder: b, maxBytes: rows * (8 + 24) / files}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(rows) {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		if err := r.set(key, key[7:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	if err := b.writeStoreRows(); err != nil {
		t.Fatal(err)
	}
	tables, err := b.merge(t.Context(), []*runSet{r}, 1)
	if err != nil || len(tables) != tasksPerWorker || len(r.names) < files {
		t.Fatalf("got %d tables from %d runs, error %v, want %d tables from at least %d runs", len(tables), len(r.names), err, tasksPerWorker, files)
	}
	if all := rows + countRows(t, b, b.storeRowsFile()); reported != all || b.Rows() != all {
		t.Errorf("got %d rows reported and %d written, want %d", reported, b.Rows(), all)
	}
	for _, name := range tables {
		if got := countRows(t, b, name); got < rows/tasksPerWorker/3 || got > rows/tasksPerWorker*3 {
			t.Errorf("got %d of %d rows in one of %d pieces, want about as many in each", got, rows, tasksPerWorker)
		}
	}
	if got := readKeys(t, b, tables...); !slices.IsSorted(got[:rows]) || got[0] != 0 || got[rows-1] != rows-1 {
		t.Errorf("got rows %d to %d, want 0 to %d in order", got[0], got[rows-1], rows-1)
	}
	if err := store.CreateStore(t.Context(), b.options.FS, b.options.Dir, b.projection, tables); err != nil {
		t.Errorf("the tables do not make a store, as if they overlapped: %v", err)
	}
}

// countRows returns the number of rows in tables.
func countRows(t *testing.T, b *Builder, tables ...string) int64 {
	t.Helper()
	return int64(len(readKeys(t, b, tables...)))
}

// readKeys returns the first eight bytes of the keys of all rows.
func readKeys(t *testing.T, b *Builder, tables ...string) (keys []uint64) {
	t.Helper()
	it, err := store.MergeTables(t.Context(), b.options.FS, tables, b.projection, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		var head [8]byte
		copy(head[:], it.Key())
		keys = append(keys, binary.BigEndian.Uint64(head[:]))
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestFewRowsAreOnePiece checks that rows without a sample are one piece without bounds.
func TestFewRowsAreOnePiece(t *testing.T) {
	r := &runSet{maxBytes: 1 << 20}
	for i := range uint64(100) {
		if err := r.set(binary.BigEndian.AppendUint64(nil, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if p := r.pieces(4); len(p) != 1 || p[0].lower != nil || p[0].upper != nil {
		t.Errorf("got pieces %v, want one without bounds", p)
	}
}

// TestRangesOfSavedBuildAreSmall checks that an interruption of a large build loses the folding of
// a few partitions only.
func TestRangesOfSavedBuildAreSmall(t *testing.T) {
	for name, c := range map[string]struct {
		bytesPerPartition int64
		wantRanges        int
	}{
		"small log":      {1 << 10, tasksPerWorker},
		"log of 4 GiB":   {16 << 20, 128},
		"log of 256 GiB": {1 << 30, events.NumPartitions},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := New(Options{FS: vfs.NewMem(), Dir: "new", New: func() projections.Projection { return graph.New() }, Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for i := range b.scatter.parts {
				b.scatter.parts[i].rawBytes = c.bytesPerPartition
			}
			if got := len(b.rangesToSave()); got != c.wantRanges {
				t.Errorf("got %d ranges, want %d", got, c.wantRanges)
			}
		})
	}
}
