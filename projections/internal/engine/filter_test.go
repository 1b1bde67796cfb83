package projections

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// plain is a projection of which nothing but its name matters.
type plain struct{ Projection }

// walking is a projection that never asks for rows of some tags.
type walking struct {
	Projection
	tags []Tag
}

func (w walking) Walked() []Tag { return w.tags }

// TestTableFilter: a filter leaves out what is only walked, so that it is smaller, and whatever a table's filter has been told to
// leave out, no row is missed, of whatever tag and by whichever program.
func TestTableFilter(t *testing.T) {
	const rows = 20_000
	some, all := []Tag{7, 9}, []Tag{9, 7, 5}
	sizes := map[string]uint64{}
	for name, written := range map[string]Projection{
		"all keys": plain{}, "some tags left out": walking{plain{}, some}, "all": walking{plain{}, all},
	} {
		fs := vfs.NewMem()
		open := func(p Projection) *pebble.DB {
			o := &pebble.Options{FS: fs, DisableWAL: true, Logger: quiet{}}
			o.Levels[0].FilterPolicy = newTableFilter(p)
			db, err := pebble.Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			return db
		}
		key := func(i int) []byte {
			return append(AppendPrefix(nil, 3, []Tag{5, 7, 9}[i%3]), byte(i>>16), byte(i>>8), byte(i))
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
		for _, reads := range []Projection{plain{}, walking{plain{}, some}, walking{plain{}, all}} {
			db := open(reads)
			for i := range rows {
				_, closer, err := db.Get(key(i))
				if err != nil {
					t.Fatalf("%s left out, read with the filter %s: row %d: %v", name, newTableFilter(reads).Name(), i, err)
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
	if a, b := newTableFilter(walking{plain{}, some}).Name(), newTableFilter(walking{plain{}, all}).Name(); a == b || !strings.HasSuffix(b, "050709") {
		t.Errorf("filters that leave out different tags are named %s and %s", a, b)
	}
}
