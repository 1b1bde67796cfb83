package conformance

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
)

// testBuild holds that a build makes the rows of a straight fold, and that the fold continues where it ends.
func testBuild(t *testing.T, c Case, h History, straight Rows) {
	for name, o := range map[string]build.Options{
		"default": {},
		// Runs are of a few rows each.
		"little memory": {Memory: 4 << 10, Workers: 2},
	} {
		for _, until := range []int{len(h.Envelopes), len(h.Envelopes) / 2, 0} {
			o.FS, o.Dir, o.New = vfs.NewMem(), "data/"+c.New().Name()+"/000001", c.New
			buildInto(t, o, h, until)
			s := Open(t, o.FS, c.New(), projections.Bounds{})
			if until > 0 && s.Cursor() != h.Envelopes[until-1].Cursor {
				t.Errorf("%s: the store is at %+v, want %+v", name, s.Cursor(), h.Envelopes[until-1].Cursor)
			}
			Fold(t, s, h.Envelopes[until:])
			rows := RowsOf(t, s)
			Close(t, s)
			rows.MustEqual(t, straight, "%s: build of the first %d envelopes, then a fold", name, until)
		}
	}
}

// buildInto builds the store of a prefix of a history.
func buildInto(t *testing.T, o build.Options, h History, until int) {
	t.Helper()
	b, err := build.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.Add(h.Envelopes[:until]); err != nil {
		t.Fatal(err)
	}
	if err := b.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}
