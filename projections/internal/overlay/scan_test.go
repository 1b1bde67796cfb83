package overlay

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestScansAreKept: the next scan has the iterator of one that was closed, with bounds of its own, and what is closed after Drop is not
// kept. The database reports an iterator that nobody has closed.
func TestScansAreKept(t *testing.T) {
	db := overlayDB(t)
	for _, key := range []string{"a", "b", "c"} {
		if err := db.Set([]byte(key), nil, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	scans := Scans{Keep: 1}
	one := func(lower, upper string) *pebble.Iterator {
		t.Helper()
		s := scans.Scan(db, []byte(lower), []byte(upper))
		it := s.it
		if !s.Next() || string(s.Key()) != lower || s.Next() {
			t.Errorf("from %s to %s: not the one row", lower, upper)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return it
	}
	if first, second := one("b", "c"), one("a", "b"); first != second {
		t.Error("an iterator was made where one was kept")
	}
	open := []*Scan{scans.Scan(db, nil, nil), scans.Scan(db, nil, nil), scans.Scan(db, nil, nil)}
	for _, s := range open[:2] {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(scans.kept) != 1 || scans.Open() != 1 {
		t.Errorf("%d iterators are kept and %d open", len(scans.kept), scans.Open())
	}
	scans.Drop()
	if err := open[2].Close(); err != nil || len(scans.kept) != 0 {
		t.Error(err, len(scans.kept))
	}
}
