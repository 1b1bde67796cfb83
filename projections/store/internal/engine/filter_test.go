package engine

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestTableFilterHidesNoRow checks that a filter that leaves out tags is smaller, and that every
// row is found, whichever tags the filters of the writing and of the reading program leave out.
func TestTableFilterHidesNoRow(t *testing.T) {
	const rows = 20_000
	someTags, allTags := []byte{7, 9}, []byte{9, 7, 5}
	sizes := map[string]uint64{}
	for name, written := range map[string][]byte{
		"all keys": nil, "some tags left out": someTags, "all tags left out": allTags,
	} {
		fs := vfs.NewMem()
		open := func(excluded []byte) *pebble.DB {
			o := &pebble.Options{FS: fs, DisableWAL: true, Logger: silentLogger{}}
			o.Levels[0].FilterPolicy = Filter(excluded)
			db, err := pebble.Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		key := func(i int) []byte {
			return append([]byte{0, 3, []byte{5, 7, 9}[i%3]}, byte(i>>16), byte(i>>8), byte(i))
		}

		// Write rows with one filter.
		db := open(written)
		b := db.NewBatch()
		for i := range rows {
			if err := b.Set(key(i), []byte("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}

		// Read them with each filter.
		for _, reads := range [][]byte{nil, someTags, allTags} {
			db := open(reads)
			for i := range rows {
				_, closer, err := db.Get(key(i))
				if err != nil {
					t.Fatalf("written with %s, read with the filter %s: row %d: got error %v, want the row",
						name, Filter(reads).Name(), i, err)
				}
				if err := closer.Close(); err != nil {
					t.Fatal(err)
				}
			}
			tables, err := db.SSTables(pebble.WithProperties())
			if err != nil {
				t.Fatal(err)
			}
			for _, level := range tables {
				for _, table := range level {
					sizes[name] = table.Properties.FilterSize
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}

	// A third of the keys has no tag that someTags leaves out.
	full, reduced := sizes["all keys"], sizes["some tags left out"]
	if full == 0 || reduced*5 > full*2 || reduced*4 < full {
		t.Errorf("got filters of %v bytes, want about one third of all keys for some tags left out", sizes)
	}
	if sizes["all tags left out"] > reduced/4 {
		t.Errorf("got filters of %v bytes, want hardly any for all tags left out", sizes)
	}
	if a, b := Filter(someTags).Name(), Filter(allTags).Name(); a == b || !strings.HasSuffix(b, "050709") {
		t.Errorf("got names %s and %s of filters that leave out different tags, want different ones with the tags", a, b)
	}
}
