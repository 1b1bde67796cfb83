package overlay

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
)

// TestClosedScansAreReused checks that a scan reuses the iterator of a closed one with bounds of
// its own, but not after Drop. Pebble reports an iterator that was not closed.
func TestClosedScansAreReused(t *testing.T) {
	db := openTestDB(t)
	for _, key := range []string{"a", "b", "c"} {
		if err := db.Set([]byte(key), nil, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}

	scans := Scans{MaxIdle: 1}
	scanOneRow := func(lower, upper string) *pebble.Iterator {
		t.Helper()
		s := scans.Scan(db, []byte(lower), []byte(upper))
		it := s.it
		if !s.Next() || string(s.Key()) != lower || s.Next() {
			t.Errorf("scan from %s to %s: want only the row %s", lower, upper, lower)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return it
	}

	if first, second := scanOneRow("b", "c"), scanOneRow("a", "b"); first != second {
		t.Error("a scan created an iterator, want the idle one")
	}

	// Of two closed scans, one iterator is kept.
	open := []*Scan{scans.Scan(db, nil, nil), scans.Scan(db, nil, nil), scans.Scan(db, nil, nil)}
	for _, s := range open[:2] {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(scans.idle) != 1 || scans.Open() != 1 {
		t.Errorf("got %d idle iterators and %d open scans, want 1 and 1", len(scans.idle), scans.Open())
	}

	scans.Drop()
	if err := open[2].Close(); err != nil || len(scans.idle) != 0 {
		t.Errorf("close after Drop: got error %v and %d idle iterators, want none", err, len(scans.idle))
	}
}

// TestScanKeepsItsFirstError checks that after a failed seek a scan finds no row, although Pebble
// would find one again, and neither does an iterator over the dirty rows above it.
func TestScanKeepsItsFirstError(t *testing.T) {
	var failing bool
	db, err := pebble.Open("db", &pebble.Options{
		FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if failing && op.Kind == errorfs.OpFileReadAt {
				return errorfs.ErrInjected
			}
			return nil
		})),
		DisableWAL: true, CacheSize: 1, Logger: silentLogger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()

	first, last, dirty := appendPrefix(nil, 1, 1), appendPrefix(nil, 3, 1), appendPrefix(nil, 2, 1)
	for _, key := range [][]byte{first, last} {
		if err := db.Set(key, make([]byte, 64<<10), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}

	var o Overlay
	o.Init(db, 0, nil)
	defer o.Close()
	o.Set(dirty, nil)
	scans := Scans{MaxIdle: 1}
	for name, it := range map[string]Iterator{"scan": scans.Scan(db, nil, nil), "merged": o.Iter(nil, nil, &scans)} {
		failing = true
		if it.SeekGE(last) || !errors.Is(it.Error(), errorfs.ErrInjected) {
			t.Errorf("%s: got error %v of a failing seek, want %v", name, it.Error(), errorfs.ErrInjected)
		}
		failing = false
		if it.SeekGE(first) || it.Next() || it.SeekGE(dirty) {
			t.Errorf("%s: the iterator moved to %x after an error, want no row", name, it.Key())
		}
		if err := it.Close(); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("%s: got error %v from Close, want %v of the seek", name, err, errorfs.ErrInjected)
		}
	}
	if len(scans.idle) > 0 {
		t.Error("an iterator that has failed is kept for the next scan, want it closed")
	}
}

// TestFinderWorksAfterFailedLookup checks that a lookup that fails returns an error, and that the
// next lookup is correct.
func TestFinderWorksAfterFailedLookup(t *testing.T) {
	readsLeft := 0
	db, err := pebble.Open("db", &pebble.Options{
		FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt {
				readsLeft--
				if readsLeft == 0 {
					return errorfs.ErrInjected
				}
			}
			return nil
		})),
		DisableWAL: true, CacheSize: 1, Logger: silentLogger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()

	const rows = 40
	key := func(i int) []byte { return appendPrefix(nil, events.Shard(i), 1) }
	for i := range rows {
		if err := db.Set(key(i), bytes.Repeat([]byte{byte(i)}, 4<<10), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}

	failed := 0
	for n := 1; n < 2*rows; n++ {
		var f Finder
		readsLeft = n
		for i := range rows {
			value, ok, err := f.Find(db, key(i))
			if err != nil {
				failed++
				value, ok, err = f.Find(db, key(i))
			}
			if err != nil || !ok || value[0] != byte(i) {
				t.Errorf("read %d fails: row %d: got a row: %v, error %v, want the row", n, i, ok, err)
			}
		}
		f.Close()
	}
	if failed == 0 {
		t.Error("no lookup has failed, want some")
	}
}
