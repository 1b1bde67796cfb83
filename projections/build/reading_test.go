package build_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// readingCuts copies a disk, as a power cut would leave it, before every write while a build adds
// the envelopes of a log.
type readingCuts struct {
	disk   *vfs.MemFS
	random *rand.Rand

	mu sync.Mutex
	// savedSeq is the sequence up to which the build was saved when Save returned last.
	savedSeq uint64
	images   []readingImage
}

// readingImage is a disk after a power cut. savedSeq is the least sequence after which a build must
// continue on it.
type readingImage struct {
	disk     *vfs.MemFS
	savedSeq uint64
	name     string
}

func (*readingCuts) String() string { return "power cuts" }

func (c *readingCuts) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addImages(fmt.Sprintf("before write %d, to %s", len(c.images), op.Path))
	return nil
}

// addImages copies the disk: once without anything that was not synced, and once with a part of it.
func (c *readingCuts) addImages(name string) {
	for _, unsynced := range []int{0, 50} {
		image := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: c.random})
		c.images = append(c.images, readingImage{image, c.savedSeq, fmt.Sprintf("%s, %d %% unsynced", name, unsynced)})
	}
}

func tallyOptions(fs store.FS) build.Options {
	return build.Options{
		FS: fs, Dir: "data/tally/000001", New: func() projections.Projection { return tally.New() }, Key: "the log", Workers: 2,
	}
}

// TestPowerCutsWhileLogIsRead cuts the power before every write of a build that is saved now and
// then while it adds the envelopes of a log. The next build must continue after what was saved last
// at least, be interrupted once more, and then make the store that a fold of the whole log makes.
func TestPowerCutsWhileLogIsRead(t *testing.T) {
	envs := tally.History(5, 60)
	want := conformance.Straight(t, tally.New(), envs)
	c := &readingCuts{random: rand.New(rand.NewPCG(5, 6)), disk: vfs.NewCrashableMem()}
	if err := errors.Join(c.disk.MkdirAll("data/tally", 0o755), store.SyncDir(c.disk, "data"), store.SyncDir(c.disk, "/")); err != nil {
		t.Fatal(err)
	}

	b, err := build.New(tallyOptions(errorfs.Wrap(c.disk, c)))
	if err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(envs, len(envs)/5) {
		if err := errors.Join(b.Add(some), b.Save()); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.savedSeq = b.Cursor().Seq
		c.mu.Unlock()
	}
	c.addImages("after the last write")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	t.Logf("%d images of the disk", len(c.images))
	for _, image := range c.images {
		checkContinues(t, image, envs).MustEqual(t, want, "%s", image.name)
	}
}

// checkContinues continues a build after a power cut, and returns the rows of the store that it
// makes.
func checkContinues(t *testing.T, image readingImage, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	o := tallyOptions(image.disk)
	b, err := build.New(o)
	if err != nil {
		t.Fatalf("%s: %v", image.name, err)
	}
	if b.Cursor().Seq < image.savedSeq || b.HasAllEvents() {
		t.Fatalf("%s: the build continues after sequence %d, want at least %d", image.name, b.Cursor().Seq, image.savedSeq)
	}

	// Add half of the rest and begin once more, over events that were not saved.
	rest := envs[conformance.IndexAfter(envs, b.Cursor()):]
	half := rest[:(len(rest)+1)/2]
	rest = rest[len(half):]
	if err := errors.Join(b.Add(half), b.Save(), b.Add(rest), b.Close()); err != nil {
		t.Fatalf("%s: %v", image.name, err)
	}
	cursor := b.Cursor()
	if len(half) > 0 {
		cursor = half[len(half)-1].Cursor
	}
	b, err = build.New(o)
	if err != nil {
		t.Fatalf("%s: %v", image.name, err)
	}
	if b.Cursor() != cursor {
		t.Fatalf("%s: the build continues after %v, want %v", image.name, b.Cursor(), cursor)
	}
	if err := errors.Join(b.Add(rest), b.Finish(t.Context()), b.Close()); err != nil {
		t.Fatalf("%s: %v", image.name, err)
	}

	s := conformance.Open(t, o.FS, o.New(), store.Bounds{})
	defer conformance.Close(t, s)
	return conformance.RowsOf(t, s)
}

// TestSavedEnvelopesAreNotReadAgain interrupts a build after every save, when it has added more than
// it has saved. The next build must continue after the save, with the events that were saved, and
// in the end make the store that a fold of the whole log makes.
func TestSavedEnvelopesAreNotReadAgain(t *testing.T) {
	newGraph := func() projections.Projection { return graph.New() }
	envs := histories.Envelopes(histories.Fixed(1, 400))
	o := build.Options{FS: vfs.NewMem(), Dir: "data/graph/000001", New: newGraph, Key: "the log"}
	b, err := build.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(envs, len(envs)/8) {
		if err := errors.Join(b.Add(some), b.Save()); err != nil {
			t.Fatal(err)
		}
		cursor, count := b.Cursor(), b.ScatteredEvents()
		if err := errors.Join(b.Add(envs[conformance.IndexAfter(envs, cursor):]), b.Close()); err != nil {
			t.Fatal(err)
		}

		if b, err = build.New(o); err != nil {
			t.Fatal(err)
		}
		if b.Cursor() != cursor || b.ScatteredEvents() != count {
			t.Fatalf("the build continues after %v with %d events, want %v and %d", b.Cursor(), b.ScatteredEvents(), cursor, count)
		}
	}
	if err := errors.Join(b.Finish(t.Context()), b.Close()); err != nil {
		t.Fatal(err)
	}

	s := conformance.Open(t, o.FS, newGraph(), store.Bounds{})
	defer conformance.Close(t, s)
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, newGraph(), envs), "continued")
}

// TestDamagedReadingIsNotContinued damages each byte of what a build has saved while the log is
// read. A build with the same key must report the damage, and one with another key must begin
// again.
func TestDamagedReadingIsNotContinued(t *testing.T) {
	envs := newMonthsLog()
	o := build.Options{FS: vfs.NewMem(), Dir: "data/seen/000001", New: newSeen, Key: "the log", Workers: 1}
	b, err := build.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Add(envs), b.Save(), b.Close()); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"saved", "events"} {
		name = o.Dir + ".parts/" + name
		whole, err := disk.ReadFile(o.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			damaged := append([]byte(nil), whole...)
			damaged[i] ^= 1
			for what, content := range map[string][]byte{"is damaged": damaged, "is missing": whole[:i]} {
				// With the race detector, Pebble's file system in memory changes what was written.
				if err := disk.WriteFile(o.FS, name, bytes.Clone(content)); err != nil {
					t.Fatal(err)
				}
				if _, err := build.New(o); err == nil {
					t.Fatalf("byte %d of %s %s: got no error", i, name, what)
				}
			}
		}
		if err := disk.WriteFile(o.FS, name, bytes.Clone(whole)); err != nil {
			t.Fatal(err)
		}
	}

	for _, test := range []struct {
		key     string
		wantSeq uint64
	}{{"the log", envs[len(envs)-1].Seq()}, {"another log", 0}} {
		o.Key = test.key
		b, err := build.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Cursor().Seq; got != test.wantSeq {
			t.Errorf("key %q: the build continues after sequence %d, want %d", test.key, got, test.wantSeq)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSavedReadingGolden pins the files: a build must continue what was saved in testdata/reading
// after the first 20 envelopes. A program that writes or reads them in another way needs another
// savedVersion, and golden files that it has saved.
func TestSavedReadingGolden(t *testing.T) {
	envs := tally.History(5, 60)
	o := tallyOptions(vfs.NewMem())
	if err := o.FS.MkdirAll(o.Dir+".parts", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"saved", "events"} {
		data, err := os.ReadFile("testdata/reading/" + name + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(o.FS, o.Dir+".parts/"+name, data); err != nil {
			t.Fatal(err)
		}
	}

	b, err := build.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if want := envs[19].Cursor; b.Cursor() != want {
		t.Errorf("the build continues after %v, want %v", b.Cursor(), want)
	}
	if err := errors.Join(b.Add(envs[20:]), b.Finish(t.Context()), b.Close()); err != nil {
		t.Fatal(err)
	}
	s := conformance.Open(t, o.FS, tally.New(), store.Bounds{})
	defer conformance.Close(t, s)
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, tally.New(), envs), "continued")
}
