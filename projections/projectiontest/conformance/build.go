package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/store"
)

// testBuild holds that a build makes the rows of a straight fold, and that the fold continues where it ends.
func testBuild(t *testing.T, c Case, h History, straight Rows) {
	for name, o := range map[string]build.Options{
		"default":   {},
		"temporary": {Temporary: true},
		// Runs are of a few rows each.
		"little memory": {Memory: 4 << 10, Workers: 2},
	} {
		for _, until := range []int{len(h.Envelopes), len(h.Envelopes) / 2, 0} {
			o.FS, o.Dir, o.New = vfs.NewMem(), dataDir+"/"+c.New().Name()+"/000001", c.New
			buildInto(t, o, h, until)
			s := Open(t, o.FS, c.New(), store.Bounds{})
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

// testBuildOfSome holds that a build for some partitions makes the rows of a fold for them, the fingerprint among them (I13).
func testBuildOfSome(t *testing.T, c Case, h History) {
	none, all := events.Partitions{}, events.AllPartitions()
	for _, s := range []events.Partitions{setOf(1), setOf(2), none, all} {
		if diff := buildDiffers(t, c.New, h.Envelopes, s); diff != "" {
			t.Fatalf("partitions %s:\n%s", &s, diff)
		}
	}
}

// buildDiffers describes where a build for a set differs from a fold for it; empty means nowhere.
func buildDiffers(t fataler, newProjection func() projections.Projection, envs []*events.Envelope, s events.Partitions) string {
	t.Helper()
	fs, name := vfs.NewMem(), newProjection().Name()
	b, err := build.New(build.Options{FS: fs, Dir: "data/" + name + "/000001", New: newProjection, Partitions: &s})
	if err == nil {
		err = errors.Join(b.Add(envs), b.Finish(context.Background()), b.Close())
	}
	if err != nil {
		t.Fatalf("build of %s: %v", &s, err)
	}
	// It says itself which partitions it has.
	opened, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: newProjection(), Partitioned: true})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	held := opened.Holds()
	rows, err := rowsOf(opened)
	if err := errors.Join(err, opened.Close()); err != nil {
		t.Fatalf("rows: %v", err)
	}
	if held != s {
		return fmt.Sprintf("it holds %s, want %s", &held, &s)
	}
	return rows.Diff(fold(t, newProjection(), envs, store.Bounds{}, &s))
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
