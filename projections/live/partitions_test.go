package live_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// nodeOn are the options of a node of a cluster.
func nodeOn(fs store.FS) live.Options {
	o := liveOn(fs)
	o.Partitioned = true
	return o
}

// buildHeld builds the next generation, for a set of partitions.
func buildHeld(t testing.TB, l *live.Live, envs []*events.Envelope, held events.Partitions) *store.Store {
	t.Helper()
	next, err := l.BuildNext(t.Context(), func(dir string) error {
		b, err := build.New(build.Options{FS: l.FS(), Dir: dir, New: l.New, Partitions: &held})
		if err != nil {
			return err
		}
		return errors.Join(b.Add(envs), b.Finish(t.Context()), b.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func wantHeld(t testing.TB, l *live.Live, want events.Partitions) {
	t.Helper()
	if held := l.Holds(); held != want {
		t.Errorf("it holds %s, want %s", &held, &want)
	}
	v, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	if held := v.Partitions(); held != want {
		t.Errorf("a view has %s, want %s", &held, &want)
	}
	for _, id := range []string{"ann", "bob", "cid"} {
		if v.Holds(id) != want.Has(events.ShardOf(id).Partition()) {
			t.Errorf("%s: %v", id, v.Holds(id))
		}
	}
}

// TestPartitionsBelongToGeneration checks that the set of partitions belongs to a generation across restarts, cut-overs and a rollback, and that
// views of the old generation keep their set.
func TestPartitionsBelongToGeneration(t *testing.T) {
	envs, fs := tally.History(3, 60), vfs.NewMem()
	var none, ann events.Partitions
	ann.AddHome("ann")
	l := openLive(t, nodeOn(fs))
	wantHeld(t, l, none)
	conformance.Fold(t, l.Serving(), envs)
	before, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, buildHeld(t, l, envs, ann))
	wantHeld(t, l, ann)
	if before.Holds("ann") || before.Partitions() != none {
		t.Error("a view has got partitions")
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	closeLive(t, l)

	l = openLive(t, nodeOn(fs))
	wantHeld(t, l, ann)
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, previous)
	wantHeld(t, l, none)
	cutOver(t, l, buildHeld(t, l, envs, events.AllPartitions()))
	wantHeld(t, l, events.AllPartitions())
	closeLive(t, l)

	// A store of all partitions is a whole one, whoever has built it.
	l = openLive(t, liveOn(fs))
	wantHeld(t, l, events.AllPartitions())
	conformance.RowsOf(t, l.Serving()).MustEqual(t, straight(t, envs), "of all")
}

// TestPartialStoreIsNotTakenForWholeOne checks that a process without a cluster refuses the store of a node, and that a node opens a store of all
// partitions.
func TestPartialStoreIsNotTakenForWholeOne(t *testing.T) {
	fs := vfs.NewMem()
	closeLive(t, openLive(t, nodeOn(fs)))
	refused := func() {
		t.Helper()
		o := liveOn(fs)
		o.New, o.Dir = newTally, "data"
		_, err := live.Open(o)
		if !errors.Is(err, projections.ErrPartial) || !strings.Contains(err.Error(), "data/tally/000001 has 0 of 256; start the process as") {
			t.Errorf("%v", err)
		}
	}
	refused()
	if err := fs.Remove("data/tally/" + disk.GenerationsFile); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := fs.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	closeLive(t, openLive(t, liveOn(fs)))
	wantHeld(t, openLive(t, nodeOn(fs)), events.AllPartitions())
}

// TestDamagedGenerationKeepsItsPartitions checks that the file of generations says which partitions to rebuild if the generation cannot be read.
func TestDamagedGenerationKeepsItsPartitions(t *testing.T) {
	envs, fs := tally.History(3, 60), vfs.NewMem()
	var ann events.Partitions
	ann.AddHome("ann")
	l := openLive(t, nodeOn(fs))
	cutOver(t, l, buildHeld(t, l, envs, ann))
	closeLive(t, l)
	names, err := fs.List("data/tally/000002")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			if err := fs.Remove("data/tally/000002/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	l = openLive(t, nodeOn(fs))
	if l.Serving() != nil || l.Holds() != ann {
		t.Errorf("serving %v", l.Serving())
	}
	cutOver(t, l, buildHeld(t, l, envs, l.Holds()))
	wantHeld(t, l, ann)
	closeLive(t, l)

	if err := disk.WriteFile(fs, "data/tally/"+disk.GenerationsFile, []byte(`{"version":1,"live":3,"partitions":"no"}`)); err != nil {
		t.Fatal(err)
	}
	if l = openLive(t, nodeOn(fs)); l.Holds() != (events.Partitions{}) || !l.Status().Damaged {
		t.Errorf("%+v", l.Status())
	}
}
