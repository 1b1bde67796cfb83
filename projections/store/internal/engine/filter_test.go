package engine

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestTableFilterHidesNoRow checks that a filter that leaves out tags is smaller, and that every row is found, whichever tags the filters of the
// writing and of the reading program leave out.
func TestTableFilterHidesNoRow(t *testing.T) {
	const rows = 20_000
	some, all := []byte{7, 9}, []byte{9, 7, 5}
	sizes := map[string]uint64{}
	for name, written := range map[string][]byte{
		"all keys": nil, "some tags left out": some, "all": all,
	} {
		fs := vfs.NewMem()
		open := func(walked []byte) *pebble.DB {
			o := &pebble.Options{FS: fs, DisableWAL: true, Logger: quiet{}}
			o.Levels[0].FilterPolicy = Filter(walked)
			db, err := pebble.Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		key := func(i int) []byte {
			return append([]byte{0, 3, []byte{5, 7, 9}[i%3]}, byte(i>>16), byte(i>>8), byte(i))
		}
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
		for _, reads := range [][]byte{nil, some, all} {
			db := open(reads)
			for i := range rows {
				_, closer, err := db.Get(key(i))
				if err != nil {
					t.Fatalf("%s left out, read with the filter %s: row %d: %v", name, Filter(reads).Name(), i, err)
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
	if all, one := sizes["all keys"], sizes["some tags left out"]; all == 0 || one*5 > all*2 || one*4 < all || sizes["all"] > one/4 {
		t.Errorf("filters of %v bytes", sizes)
	}
	if a, b := Filter(some).Name(), Filter(all).Name(); a == b || !strings.HasSuffix(b, "050709") {
		t.Errorf("filters that leave out different tags are named %s and %s", a, b)
	}
}
