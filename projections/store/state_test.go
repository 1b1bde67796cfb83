package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestWaitForReturnsWhenVisible checks that a call of WaitFor ends once its position is visible,
// and not when other calls end.
func TestWaitForReturnsWhenVisible(t *testing.T) {
	envs := storetest.Follows(40)
	s := storetest.OpenTally(t, store.Options{})
	if err := s.WaitFor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	cancelled, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, env := range envs {
		for range 3 {
			wg.Go(func() {
				if err := s.WaitFor(t.Context(), env.Seq()); err != nil {
					t.Error(err)
				}
				v, err := s.View()
				if err != nil {
					t.Error(err)
					return
				}
				if v.Cursor().Seq < env.Seq() {
					t.Errorf("got a view at %d after waiting for %d", v.Cursor().Seq, env.Seq())
				}
				if err := v.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		// Callers whose contexts end, in any order, do not disturb the others.
		wg.Go(func() {
			err := s.WaitFor(cancelled, env.Seq()+100*uint64(i%2))
			if i%2 == 1 && !errors.Is(err, context.Canceled) {
				t.Errorf("wait with an ended context: got error %v, want %v", err, context.Canceled)
			}
		})
	}

	for i, env := range envs {
		if i == 20 {
			cancel()
		}
		if err := s.Fold([]*events.Envelope{env}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestWaitForEndsWithItsContext checks that WaitFor ends with its context, but reports a visible
// position even then.
func TestWaitForEndsWithItsContext(t *testing.T) {
	s := storetest.OpenTally(t, store.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.WaitFor(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait with an ended context: got error %v, want %v", err, context.DeadlineExceeded)
	}

	// A position that is visible is reported even if the context has ended.
	if err := s.WaitFor(ctx, 0); err != nil {
		t.Errorf("wait for a visible position with an ended context: got error %v, want none", err)
	}
}

// TestStateNames checks the name of a state, and that of a number that is no state.
func TestStateNames(t *testing.T) {
	if store.CatchingUp.String() != "catching_up" || store.State(9).String() != "state_9" {
		t.Errorf("got names %s and %s, want catching_up and state_9", store.CatchingUp, store.State(9))
	}
}
