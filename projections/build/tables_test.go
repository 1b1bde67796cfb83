package build

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// TestPieces: together the pieces of a merge have every row of all runs once, in the order of keys, and each about as many.
func TestPieces(t *testing.T) {
	const rows, files, n = 100_000, 7, 5
	b, err := New(Options{FS: vfs.NewMem(), Dir: "new", New: func() projections.Projection { return graph.New() }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := &runs{b: b, most: rows * (8 + 24) / files}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(rows) {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		if err := r.set(key, key[7:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	pieces := r.pieces(n)
	if len(pieces) != n || len(r.names) < files {
		t.Fatalf("%d pieces of %d runs", len(pieces), len(r.names))
	}
	var merged []uint64
	for _, p := range pieces {
		it, err := projections.MergeTables(t.Context(), b.o.FS, r.names, b.projection, p.lower, p.upper)
		if err != nil {
			t.Fatal(err)
		}
		before := len(merged)
		for ok := it.First(); ok; ok = it.Next() {
			key := binary.BigEndian.Uint64(it.Key())
			if value, err := it.ValueAndErr(); err != nil || len(value) != 1 || value[0] != byte(key) {
				t.Fatalf("row %d has the value %x, %v", key, value, err)
			}
			merged = append(merged, key)
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		if got := len(merged) - before; got < rows/n/2 || got > rows/n*2 {
			t.Errorf("%d of %d rows are in one of %d pieces", got, rows, n)
		}
	}
	if len(merged) != rows || !slices.IsSorted(merged) {
		t.Errorf("%d rows were merged, in order: %v", len(merged), slices.IsSorted(merged))
	}
}

// TestFewRows: what is in no sample is one piece, without bounds.
func TestFewRows(t *testing.T) {
	r := &runs{most: 1 << 20}
	for i := range uint64(100) {
		if err := r.set(binary.BigEndian.AppendUint64(nil, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if p := r.pieces(4); len(p) != 1 || p[0].lower != nil || p[0].upper != nil {
		t.Errorf("%v", p)
	}
}
