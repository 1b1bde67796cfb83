package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// readAndCloseView returns all rows of a view except the checkpoint, and closes the view.
func readAndCloseView(t testing.TB, v *projections.View) (rows conformance.Rows) {
	t.Helper()
	it := v.Iter(nil, nil)
	for it.Next() {
		rows = append(rows, conformance.Row{Key: slices.Clone(it.Key()), Value: slices.Clone(it.Value())})
	}
	if err := errors.Join(it.Close(), v.Close()); err != nil {
		t.Error(err)
	}
	return slices.DeleteFunc(rows, isCheckpoint)
}

func isCheckpoint(r conformance.Row) bool { return string(r.Key) == "\xff\xff\x02" }

// TestViewAtShowsExactlyItsPosition checks that ViewAt returns a view of everything up to a
// sequence and nothing after it, also in the middle of a call of Fold and of a commit.
func TestViewAtShowsExactlyItsPosition(t *testing.T) {
	envs := tally.History(12, 120)

	// Calls wait for positions, some of which have no envelope.
	wantRows := map[uint64]conformance.Rows{}
	for seq := uint64(1); seq <= envs[len(envs)-1].Seq(); seq += 7 {
		want := foldStraight(t, envs[:conformance.IndexAfter(envs, events.Cursor{Seq: seq})])
		wantRows[seq] = slices.DeleteFunc(want, isCheckpoint)
	}

	for name, bounds := range map[string]store.Bounds{"default": {}, "steps": {BatchBytes: 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := storetest.OpenTally(t, store.Options{Bounds: bounds})

				var wg sync.WaitGroup
				for seq, want := range wantRows {
					wg.Go(func() {
						v, err := s.ViewAt(t.Context(), seq)
						if err != nil {
							t.Error(err)
							return
						}
						n := conformance.IndexAfter(envs, events.Cursor{Seq: seq})
						if n > 0 && v.Cursor() != envs[n-1].Cursor {
							t.Errorf("view at %d: got position %d, want %d", seq, v.Cursor().Seq, envs[n-1].Seq())
						}
						readAndCloseView(t, v).MustEqual(t, want, "at %d", seq)
					})
				}

				synctest.Wait()
				conformance.Fold(t, s, envs[:50])
				conformance.Fold(t, s, envs[50:])
				wg.Wait()
			})
		})
	}
}

// TestViewAtOfPresentPositionDoesNotWait checks that ViewAt returns a view at once of the present
// position, and an error for an earlier one.
func TestViewAtOfPresentPositionDoesNotWait(t *testing.T) {
	envs := storetest.Follows(20)
	s := storetest.OpenTally(t, store.Options{})
	conformance.Fold(t, s, envs[:10])
	v, err := s.ViewAt(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if v.Cursor() != envs[9].Cursor {
		t.Errorf("got a view at %+v, want %+v", v.Cursor(), envs[9].Cursor)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}

	if _, err := s.ViewAt(t.Context(), 9); !errors.Is(err, projections.ErrPositionPassed) {
		t.Errorf("view at an earlier position: got error %v, want %v", err, projections.ErrPositionPassed)
	}
}

// TestViewAtThatFailsLeavesNoView checks that a call of ViewAt that ends without a view leaves none
// open, because the store could not be closed then.
func TestViewAtThatFailsLeavesNoView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := storetest.Follows(20)
		fs := vfs.NewMem()
		s := storetest.OpenTally(t, store.Options{FS: fs})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup

		// expectError starts a call of ViewAt that must end with the error.
		expectError := func(ctx context.Context, seq uint64, want error) {
			wg.Go(func() {
				v, err := s.ViewAt(ctx, seq)
				if v != nil || !errors.Is(err, want) {
					t.Errorf("view at %d: got view %v, error %v, want no view and %v", seq, v, err, want)
				}
			})
		}

		// The context ends.
		expectError(ctx, 30, context.Canceled)
		synctest.Wait()
		cancel()
		wg.Wait()

		// The store is closed.
		expectError(t.Context(), 31, projections.ErrClosed)
		conformance.Fold(t, s, envs)
		synctest.Wait()
		conformance.Close(t, s)
		wg.Wait()

		// The fold fails.
		s = storetest.OpenTally(t, store.Options{FS: fs, Projection: &tally.Tally{Copies: 5, Chunk: 7, FailAt: 21}})
		expectError(t.Context(), 32, tally.ErrFails)
		synctest.Wait()
		more := storetest.Follows(21)
		if err := s.Fold(more[20:]); !errors.Is(err, tally.ErrFails) {
			t.Errorf("fold: got error %v, want %v", err, tally.ErrFails)
		}
		wg.Wait()
	})
}

// TestViewAtFailsAfterRunHasEnded checks that ViewAt does not wait for a position that a store
// whose Run has ended does not reach.
func TestViewAtFailsAfterRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := storetest.NewLog(storetest.Follows(5)...)
		s := storetest.OpenTally(t, store.Options{})
		stop := startRun(t, s, log)

		var wg sync.WaitGroup
		wg.Go(func() {
			if v, err := s.ViewAt(t.Context(), 6); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("got view %v, error %v, want %v", v, err, projections.ErrStopped)
			}
		})
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		wg.Wait()

		if _, err := s.ViewAt(t.Context(), 6); !errors.Is(err, projections.ErrStopped) {
			t.Errorf("view after Run has ended: got error %v, want %v", err, projections.ErrStopped)
		}

		v, err := s.ViewAt(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		_ = v.Close()
	})
}
