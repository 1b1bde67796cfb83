package build_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func newSeen() projections.Projection { return seen.New(seen.DefaultSettings()) }

// newMonthsLog returns a log in which ann plays once, and others, of other partitions, continue for
// months.
func newMonthsLog() (envs []*events.Envelope) {
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for _, user := range []string{"ann", "bob", "cid", "dee", "bob", "cid", "dee"} {
		c.Seq++
		c.LastTime += events.Micros(12 * 24 * time.Hour / time.Microsecond)
		envs = append(envs, &events.Envelope{
			Kinds: events.Kinds(events.Played), Cursor: c, Events: []events.Event{{
				Kind: events.Played, User: user, Item: "7", Time: c.LastTime, Seq: c.Seq,
			}},
		})
	}
	return envs
}

// TestLogTimePassesForIdlePartitions checks that months of a user who is idle are closed by the log
// time of events of others.
func TestLogTimePassesForIdlePartitions(t *testing.T) {
	envs := newMonthsLog()
	fs := vfs.NewMem()
	b := beginBuild(t, fs, envs)
	if err := b.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	s := conformance.Open(t, fs, newSeen(), store.Bounds{})
	rows := conformance.RowsOf(t, s)
	conformance.Close(t, s)
	rows.MustEqual(t, conformance.Straight(t, newSeen(), envs), "built")
}

// beginBuild begins a build of a seen store from envelopes. It is closed at the end of the test.
func beginBuild(t *testing.T, fs store.FS, envs []*events.Envelope) *build.Builder {
	t.Helper()
	b, err := build.New(build.Options{FS: fs, Dir: "data/seen/000001", New: newSeen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.Add(envs); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBuiltStoreNeedsNoCompaction checks that the tables of the last set are in the level directly
// above those that they overlap. From level 0, Pebble would merge them with all others.
func TestBuiltStoreNeedsNoCompaction(t *testing.T) {
	envs := newMonthsLog()
	fs := vfs.NewMem()
	if err := beginBuild(t, fs, envs).Finish(t.Context()); err != nil {
		t.Fatal(err)
	}

	s := conformance.Open(t, fs, newSeen(), store.Bounds{})
	defer conformance.Close(t, s)
	if e, ok := s.Engine(); !ok || e.Sublevels != 0 || e.ReadAmplification != 2 {
		t.Errorf("got engine %+v, %v, want no sublevels and a read amplification of 2", e, ok)
	}
}

// TestInterruptedBuildLeavesNoFiles checks that an interrupted build leaves no store, and no other
// file once it is closed.
func TestInterruptedBuildLeavesNoFiles(t *testing.T) {
	fs := vfs.NewMem()
	b := beginBuild(t, fs, newMonthsLog())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Finish(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted build: got error %v, want %v", err, context.Canceled)
	}

	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if names, _ := fs.List("data/seen"); len(names) > 0 {
		t.Errorf("an interrupted build left the files %v, want none", names)
	}
}

// openFilesFS is a file system that counts the files that are open for reading and writing.
type openFilesFS struct {
	vfs.FS
	open, opened int
}

// OpenReadWrite implements [vfs.FS].
func (fs *openFilesFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	fs.open++
	fs.opened++
	return &countedFile{f, fs}, nil
}

// countedFile is a file that openFilesFS counts.
type countedFile struct {
	vfs.File
	fs *openFilesFS
}

// Close implements [vfs.File].
func (f *countedFile) Close() error {
	f.fs.open--
	return f.File.Close()
}

// TestCloseClosesFileOfEvents checks that Close closes the file of events, wherever the build ends.
func TestCloseClosesFileOfEvents(t *testing.T) {
	for name, end := range map[string]func(b *build.Builder) error{
		"not finished": func(*build.Builder) error { return nil },
		"saved":        (*build.Builder).Save,
		"handed over": func(b *build.Builder) error {
			_, err := b.HandOver()
			return err
		},
		"finished": func(b *build.Builder) error { return b.Finish(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			fs := &openFilesFS{FS: vfs.NewMem()}
			b := beginBuild(t, fs, newMonthsLog())
			if err := errors.Join(end(b), b.Close()); err != nil {
				t.Fatal(err)
			}
			if fs.open != 0 || fs.opened != 1 {
				t.Errorf("got %d of %d files open, want 0 of 1", fs.open, fs.opened)
			}
		})
	}
}

// TestEventsOfOtherPartitionsAreDropped checks that events for partitions that are not built are
// dropped when they are added.
func TestEventsOfOtherPartitionsAreDropped(t *testing.T) {
	var none, bob events.Partitions
	bob.AddHome("bob")
	for _, test := range []struct {
		held *events.Partitions
		want int64
	}{{nil, 7}, {&bob, 2}, {&none, 0}} {
		b, err := build.New(build.Options{FS: vfs.NewMem(), Dir: "data/seen/000001", New: newSeen, Partitions: test.held})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add(newMonthsLog()); err != nil {
			t.Fatal(err)
		}
		if n := b.ScatteredEvents(); n != test.want {
			t.Errorf("partitions %v: got %d scattered events, want %d", test.held, n, test.want)
		}
		if err := errors.Join(b.Finish(t.Context()), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuildFoldsPinsAtHomeOnly checks that a build folds a pin only at the home of its owner. A
// live fold gets it in every partition, for the inboxes in memory.
func TestBuildFoldsPinsAtHomeOnly(t *testing.T) {
	b, err := build.New(build.Options{
		FS: vfs.NewMem(), Dir: "new", New: func() projections.Projection { return inbox.New(inbox.DefaultSettings()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()

	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, Seq: 1, LastTime: 1_700_000_000_000_000}
	for _, ev := range []events.Event{
		{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		{Kind: events.PinCreated, User: "bob", Pin: "p", Item: "p"},
		{Kind: events.PinMoved, User: "bob", Pin: "p", Board: "art"},
	} {
		ev.Time = c.LastTime
		ev.Seq = c.Seq
		env := &events.Envelope{Kinds: events.Kinds(ev.Kind), Cursor: c, Events: []events.Event{ev}}
		if err := b.Add([]*events.Envelope{env}); err != nil {
			t.Fatal(err)
		}
		if n := b.ScatteredEvents(); n != int64(c.Seq) {
			t.Errorf("after %d events: got %d scattered events, want one per event", c.Seq, n)
		}
		c.Seq++
		c.LastTime++
	}
}
