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

// testBuild checks that a build makes the same rows as a straight fold, and that a fold can
// continue where the build ends.
func testBuild(t *testing.T, c Case, h History, straight Rows) {
	for name, o := range map[string]build.Options{
		"default":   {},
		"temporary": {Temporary: true},
		// Each sorted run has only a few rows.
		"little memory": {Memory: 4 << 10, Workers: 2},
	} {
		for _, until := range []int{len(h.Envelopes), len(h.Envelopes) / 2, 0} {
			o.FS = vfs.NewMem()
			o.Dir = dataDir + "/" + c.New().Name() + "/000001"
			o.New = c.New
			buildPrefix(t, o, h, until)

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

// testBuildOfSome checks that a build for some partitions makes the same rows as a fold for them,
// including the fingerprint (I13).
func testBuildOfSome(t *testing.T, c Case, h History) {
	none, all := events.Partitions{}, events.AllPartitions()
	for _, parts := range []events.Partitions{randomPartitions(1), randomPartitions(2), none, all} {
		if diff := diffBuild(t, c.New, h.Envelopes, parts); diff != "" {
			t.Fatalf("partitions %s: the store of a build differs from that of a fold:\n%s", &parts, diff)
		}
	}
}

// diffBuild builds for a set of partitions, and describes how the store differs from that of a fold
// for the set. It returns an empty string if they are equal.
func diffBuild(t fataler, newProjection func() projections.Projection, envs []*events.Envelope, parts events.Partitions) string {
	t.Helper()
	fs, name := vfs.NewMem(), newProjection().Name()
	b, err := build.New(build.Options{FS: fs, Dir: dataDir + "/" + name + "/000001", New: newProjection, Partitions: &parts})
	if err == nil {
		err = errors.Join(b.Add(envs), b.Finish(context.Background()), b.Close())
	}
	if err != nil {
		t.Fatalf("build of %s: %v", &parts, err)
	}

	// Open with the partitions that the store itself says it holds.
	opened, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: newProjection(), Partitioned: true})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	held := opened.Holds()
	rows, err := readRows(opened)
	if err := errors.Join(err, opened.Close()); err != nil {
		t.Fatalf("rows: %v", err)
	}

	if held != parts {
		return fmt.Sprintf("the store holds the partitions %s, want %s", &held, &parts)
	}
	return rows.Diff(foldPartitions(t, newProjection(), envs, store.Bounds{}, &parts))
}

// buildPrefix builds the store of the first envelopes of a history.
func buildPrefix(t *testing.T, o build.Options, h History, until int) {
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
