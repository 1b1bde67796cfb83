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

// nodeOptions returns the options of a node of a cluster.
func nodeOptions(fs store.FS) live.Options {
	o := liveOptions(fs)
	o.Partitioned = true
	return o
}

// buildNextFor builds the next generation for a set of partitions.
func buildNextFor(t testing.TB, l *live.Live, envs []*events.Envelope, held events.Partitions) *store.Store {
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

// checkPartitions checks which partitions the serving generation and its views hold.
func checkPartitions(t testing.TB, l *live.Live, want events.Partitions) {
	t.Helper()
	if held := l.Holds(); held != want {
		t.Errorf("the generation holds %s, want %s", &held, &want)
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
		t.Errorf("a view holds %s, want %s", &held, &want)
	}
	for _, id := range []string{"ann", "bob", "cid"} {
		if v.Holds(id) != want.Has(events.ShardOf(id).Partition()) {
			t.Errorf("the view holds %s: got %v, want %v", id, v.Holds(id), !v.Holds(id))
		}
	}
}

// TestPartitionsBelongToGeneration checks that the set of partitions belongs to a generation across
// restarts, cut-overs and a rollback, and that views of the old generation keep their set.
func TestPartitionsBelongToGeneration(t *testing.T) {
	envs := tally.History(3, 60)
	fs := vfs.NewMem()
	var none, ann events.Partitions
	ann.AddHome("ann")

	// A cut-over changes the partitions of the Live, but not those of a view that is already open.
	l := openLive(t, nodeOptions(fs))
	checkPartitions(t, l, none)
	conformance.Fold(t, l.Serving(), envs)
	before, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, buildNextFor(t, l, envs, ann))
	checkPartitions(t, l, ann)
	if before.Holds("ann") || before.Partitions() != none {
		t.Errorf("the earlier view holds %v after the cut-over, want none", before.Partitions())
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	closeLive(t, l)

	// The set survives a restart. A rollback and a further cut-over change it.
	l = openLive(t, nodeOptions(fs))
	checkPartitions(t, l, ann)
	previous, err := l.OpenPrevious(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cutOver(t, l, previous)
	checkPartitions(t, l, none)
	cutOver(t, l, buildNextFor(t, l, envs, events.AllPartitions()))
	checkPartitions(t, l, events.AllPartitions())
	closeLive(t, l)

	// A store of all partitions that a node has built can be opened without a cluster.
	l = openLive(t, liveOptions(fs))
	checkPartitions(t, l, events.AllPartitions())
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "all partitions")
}

// TestPartialStoreIsNotTakenForWholeOne checks that a process without a cluster refuses the store
// of a node, and that a node opens a store of all partitions.
func TestPartialStoreIsNotTakenForWholeOne(t *testing.T) {
	fs := vfs.NewMem()
	closeLive(t, openLive(t, nodeOptions(fs)))
	checkRefused := func() {
		t.Helper()
		o := liveOptions(fs)
		o.New, o.Dir = newTally, "data"
		_, err := live.Open(o)
		if !errors.Is(err, projections.ErrPartial) || !strings.Contains(err.Error(), "data/tally/000001 has 0 of 256; start the process as") {
			t.Errorf("open the store of a node: got error %v, want %v", err, projections.ErrPartial)
		}
	}
	// The process refuses the store also without its file of generations.
	checkRefused()
	if err := fs.Remove("data/tally/" + disk.GenerationsFile); err != nil {
		t.Fatal(err)
	}
	checkRefused()

	// A node opens a store that was made without a cluster.
	if err := fs.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	closeLive(t, openLive(t, liveOptions(fs)))
	checkPartitions(t, openLive(t, nodeOptions(fs)), events.AllPartitions())
}

// TestDamagedGenerationKeepsItsPartitions checks that the file of generations says which partitions
// to rebuild if the generation cannot be read.
func TestDamagedGenerationKeepsItsPartitions(t *testing.T) {
	envs := tally.History(3, 60)
	fs := vfs.NewMem()
	var ann events.Partitions
	ann.AddHome("ann")
	l := openLive(t, nodeOptions(fs))
	cutOver(t, l, buildNextFor(t, l, envs, ann))
	closeLive(t, l)

	// Remove the tables of the live generation.
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

	// The generation cannot be opened, and can be rebuilt for the same partitions.
	l = openLive(t, nodeOptions(fs))
	if l.Serving() != nil || l.Holds() != ann {
		t.Errorf("got serving store %v and partitions %v, want none and %v", l.Serving(), l.Holds(), ann)
	}
	cutOver(t, l, buildNextFor(t, l, envs, l.Holds()))
	checkPartitions(t, l, ann)
	closeLive(t, l)

	// A damaged file of generations says no partitions.
	if err := disk.WriteFile(fs, "data/tally/"+disk.GenerationsFile, []byte(`{"version":1,"live":3,"partitions":"no"}`)); err != nil {
		t.Fatal(err)
	}
	l = openLive(t, nodeOptions(fs))
	if l.Holds() != (events.Partitions{}) {
		t.Errorf("after damage to %s: got partitions %v, want none", disk.GenerationsFile, l.Holds())
	}
	if !l.Status().Damaged {
		t.Errorf("after damage to %s: got status %+v, want Damaged true", disk.GenerationsFile, l.Status())
	}
}
