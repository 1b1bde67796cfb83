package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// openCopy opens a copy that Checkpoint has made in dir, as tally/000001. The caller must close it.
func openCopy(t *testing.T, fs store.FS, dir string, readOnly bool) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dir, Projection: tally.New(), ReadOnly: readOnly})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCopyOfFoldingStoreIsWhole copies a store repeatedly while it folds. Each copy must have the
// rows of a fold up to its position, and be able to continue from there.
func TestCopyOfFoldingStoreIsWhole(t *testing.T) {
	for name, bounds := range map[string]store.Bounds{
		"default":              {},
		"commit every step":    {BatchBytes: 1, FlushBytes: 4 << 10},
		"flush often":          {BatchBytes: 1 << 10, FlushBytes: 8 << 10},
		"flush every position": {FlushEnvelopes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := storetest.OpenTally(t, store.Options{FS: fs, Bounds: bounds})
			envs := tally.History(5, 250)

			// The fold continues with another fifty envelopes for each step.
			folded := make(chan error, 1)
			steps := make(chan struct{})
			go func() {
				defer close(folded)
				for i, env := range envs {
					if i%50 == 0 {
						<-steps
					}
					if err := s.Fold(envs[i : i+1]); err != nil {
						folded <- fmt.Errorf("envelope %d: %w", env.Seq(), err)
						return
					}
				}
			}()

			// Make three copies while the fold continues, five times.
			var copies []string
			var cursors []events.Cursor
			for i := range 5 {
				steps <- struct{}{}
				for j := range 3 {
					dir := fmt.Sprintf("copies/%d-%d", i, j)
					before := s.Cursor()
					cursor, err := s.Checkpoint(t.Context(), dir+"/tally/000001")
					if err != nil {
						t.Fatal(err)
					}
					if cursor.Seq < before.Seq {
						t.Errorf("got a copy at %d, want at least the position %d before the call", cursor.Seq, before.Seq)
					}
					copies = append(copies, dir)
					cursors = append(cursors, cursor)
				}
			}
			if err := <-folded; err != nil {
				t.Fatal(err)
			}

			// Each copy is at the position that Checkpoint returned, and continues from there.
			all := foldStraight(t, envs)
			for i, dir := range copies {
				c := openCopy(t, fs, dir, false)
				if c.Cursor() != cursors[i] {
					t.Errorf("got a copy at %+v, want %+v as Checkpoint has returned", c.Cursor(), cursors[i])
				}
				n := conformance.IndexAfter(envs, cursors[i])
				conformance.RowsOf(t, c).MustEqual(t, foldStraight(t, envs[:n]), "copy %s at %d", dir, cursors[i].Seq)
				conformance.Fold(t, c, envs[n:])
				conformance.RowsOf(t, c).MustEqual(t, all, "copy %s after the tail", dir)
				conformance.Close(t, c)
			}
		})
	}
}

// TestCopyIsNeverInsideEvent makes copies while every flush ends inside an event. The copies must
// be at whole positions.
func TestCopyIsNeverInsideEvent(t *testing.T) {
	items := make([]string, 400)
	for i := range items {
		items[i] = fmt.Sprintf("item%03d", i)
	}
	var lists [][]events.Event
	for range 100 {
		lists = append(lists, storetest.One(events.Event{Kind: events.Served, User: "ann", Items: items}))
	}
	envs := storetest.Envelopes(lists...)

	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs, Bounds: store.Bounds{BatchBytes: 1, FlushBytes: 4 << 10}})
	ctx, stop := context.WithCancel(t.Context())
	folded := make(chan error, 1)
	go func() {
		defer close(folded)
		for i := range envs {
			if err := s.Fold(envs[i : i+1]); err != nil || ctx.Err() != nil {
				folded <- err
				return
			}
		}
	}()
	defer func() {
		stop()
		if err := <-folded; err != nil {
			t.Error(err)
		}
	}()

	copies := 20
	if testing.Short() {
		copies = 8
	}
	for i := range copies {
		dir := fmt.Sprintf("copies/%d", i)
		cursor, err := s.Checkpoint(t.Context(), dir+"/tally/000001")
		if err != nil {
			t.Fatal(err)
		}
		c := openCopy(t, fs, dir, true)
		if c.Cursor() != cursor {
			t.Errorf("got a copy at %+v, want %+v as Checkpoint has returned", c.Cursor(), cursor)
		}
		if v, err := c.View(); err != nil {
			t.Errorf("view of a copy: got error %v, want none, because the position is whole", err)
		} else if err := v.Close(); err != nil {
			t.Error(err)
		}
		conformance.Close(t, c)
	}
}

// TestCheckpointRefusesImpossibleCopies checks that Checkpoint returns an error for a copy that
// cannot be made, and neither leaves nor changes a directory.
func TestCheckpointRefusesImpossibleCopies(t *testing.T) {
	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	envs := tally.History(2, 20)
	conformance.Fold(t, s, envs)

	t.Run("a cancelled call", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Checkpoint(ctx, "cancelled"); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want %v", err, context.Canceled)
		}
		if _, err := fs.Stat("cancelled"); err == nil {
			t.Error("the directory of the copy is left, want it removed")
		}
	})
	t.Run("an existing directory", func(t *testing.T) {
		if err := fs.MkdirAll("taken/kept", 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Checkpoint(t.Context(), "taken"); err == nil {
			t.Error("got no error, want one")
		}
		if _, err := fs.Stat("taken/kept"); err != nil {
			t.Errorf("the content of the directory is not as before: %v", err)
		}
	})
	t.Run("a closed store", func(t *testing.T) {
		conformance.Close(t, s)
		if _, err := s.Checkpoint(t.Context(), "closed"); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("got error %v, want %v", err, projections.ErrClosed)
		}
	})
	t.Run("a store for reading only", func(t *testing.T) {
		c := openCopy(t, fs, "data", true)
		defer conformance.Close(t, c)
		if _, err := c.Checkpoint(t.Context(), "read"); err == nil {
			t.Error("got no error, want one")
		}
	})
}

// TestFailedSyncOfCopyReturnsError checks that Checkpoint returns the error if the directory of the
// copy cannot be synced. It leaves no directory, and the store continues.
func TestFailedSyncOfCopyReturnsError(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileSync && op.Path == "copy" {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s := storetest.OpenTally(t, store.Options{FS: fs})
	envs := tally.History(2, 40)
	conformance.Fold(t, s, envs[:20])

	broken.Store(true)
	if _, err := s.Checkpoint(t.Context(), "copy"); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("got error %v, want %v", err, errorfs.ErrInjected)
	}
	if _, err := fs.Stat("copy"); err == nil {
		t.Error("the directory of the copy is left, want it removed")
	}

	broken.Store(false)
	conformance.Fold(t, s, envs)
	if _, err := s.Checkpoint(t.Context(), "copy"); err != nil {
		t.Errorf("the next copy: got error %v, want none", err)
	}
}

// TestEmptyStoreCanBeCopied checks that a copy of an empty store can be folded into.
func TestEmptyStoreCanBeCopied(t *testing.T) {
	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	cursor, err := s.Checkpoint(t.Context(), "copy/tally/000001")
	if err != nil || cursor != (events.Cursor{}) {
		t.Fatalf("got cursor %+v, error %v, want the zero cursor", cursor, err)
	}

	c := openCopy(t, fs, "copy", false)
	defer conformance.Close(t, c)
	envs := tally.History(2, 20)
	conformance.Fold(t, c, envs)
	conformance.RowsOf(t, c).MustEqual(t, foldStraight(t, envs), "a fold into a copy of an empty store")
}

// TestCheckpointEndsWithFatalErrorOfPebble checks that Checkpoint returns if Pebble reports a fatal
// error while it copies tables and the store is being closed. After the fatal error nothing writes
// tables any more, so Pebble never returns from its copying. Its goroutines are leaked, so the test
// runs in a process of its own.
func TestCheckpointEndsWithFatalErrorOfPebble(t *testing.T) {
	if runInOwnProcess(t) {
		return
	}

	// The first link of a table waits, and so does the next write to the manifest, which then fails.
	var isArmed atomic.Bool
	var links, writes atomic.Int64
	linking, goOnLinking := make(chan struct{}), make(chan struct{})
	writing, failWriting := make(chan struct{}), make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpLink && links.Add(1) == 1:
			close(linking)
			<-goOnLinking
		case isArmed.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, tallyDir+"/MANIFEST"):
			if writes.Add(1) == 1 {
				close(writing)
			}
			<-failWriting
			return errorfs.ErrInjected
		}
		return nil
	}))

	// The store has two tables to copy, and then gets rows that are not on disk.
	envs := tally.History(3, 90)
	s := storetest.OpenTally(t, store.Options{FS: fs})
	for from := 0; from < 80; from += 40 {
		conformance.Fold(t, s, envs[from:from+40])
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	copied := make(chan error)
	go func() {
		_, err := s.Checkpoint(t.Context(), "copy")
		copied <- err
	}()
	<-linking
	conformance.Fold(t, s, envs[80:])

	// Close ends the waiters before it flushes what is left, which waits in the manifest.
	isArmed.Store(true)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	if err := s.WaitFor(t.Context(), 1<<40); !errors.Is(err, projections.ErrClosed) {
		t.Errorf("wait: got error %v, want %v", err, projections.ErrClosed)
	}
	<-writing

	// Let Checkpoint see that the store is being closed before there is a fatal error.
	for range 1000 {
		runtime.Gosched()
	}
	close(failWriting)
	if err := <-closed; !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("close: got error %v, want %v", err, errorfs.ErrInjected)
	}

	// Pebble goes on to the second table.
	close(goOnLinking)
	if err := <-copied; !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("copy: got error %v, want %v", err, errorfs.ErrInjected)
	}
}
