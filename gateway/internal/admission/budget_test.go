package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/gateway/internal/apierror"
)

// mustTake takes n for a caller, and stops the test if the budget refuses.
func mustTake(t *testing.T, b *Budget, caller string, n int64) {
	t.Helper()
	if f := b.Take(caller, n); f != nil {
		t.Fatalf("Take(%q, %d): got the refusal %v, want none", caller, n, f)
	}
}

// TestRefusalsNameTheLimit checks that a refusal names the limit that was exceeded, its value, and
// the flag that sets it. A refusal takes nothing of the budget.
func TestRefusalsNameTheLimit(t *testing.T) {
	b := NewBudget(Class{Name: "plates", Limit: 5, CallerLimit: 3, Flag: "--plates"})
	mustTake(t, b, "ann", 3)

	for _, c := range []struct {
		name   string
		caller string
		n      int64
		want   string
	}{
		{"of a caller", "ann", 1, "one caller may have 3 plates at a time (set by --plates); nothing was done"},
		{"of all callers", "bob", 3, "the service allows 5 plates at a time (set by --plates), and others have taken them; nothing was done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.Take(c.caller, c.n)
			if f == nil {
				t.Fatalf("Take(%q, %d): got no refusal, want one", c.caller, c.n)
			}
			if diff := cmp.Diff(c.want, f.Text); diff != "" {
				t.Errorf("text of the refusal (-want +got):\n%s", diff)
			}
			if got := b.Used(); got != 3 {
				t.Errorf("plates that are held after the refusal: got %d, want 3", got)
			}
		})
	}

	// What ann gives back, bob can take.
	b.Release("ann", 3)
	mustTake(t, b, "bob", 3)
	if got := b.Used(); got != 3 {
		t.Errorf("plates that are held: got %d, want 3", got)
	}
	if got := b.Refused(); got != 2 {
		t.Errorf("refusals: got %d, want 2", got)
	}
	if got := b.Peak(); got != 3 {
		t.Errorf("plates that were held at a time: got at most %d, want 3", got)
	}
}

// TestWaitEndsWithAPlaceOrAnError checks that a caller who waits gets a place that was given back,
// or an error: at once if the queue is full, when the patience of the class ends, or when the call
// itself ends.
func TestWaitEndsWithAPlaceOrAnError(t *testing.T) {
	errCallEnded := errors.New("the client is gone")
	isNil := func(err error) bool { return err == nil }
	isCallEnded := func(err error) bool { return errors.Is(err, errCallEnded) }
	isRefusal := func(err error) bool {
		_, ok := errors.AsType[*apierror.Failure](err)
		return ok
	}

	for _, c := range []struct {
		name string
		// endWait is what happens while a caller waits. cancel ends the call of that caller.
		endWait func(t *testing.T, b *Budget, cancel context.CancelCauseFunc)
		// isWanted reports whether the wait ends with the expected error.
		isWanted     func(error) bool
		wantRefusals uint64
	}{
		{
			"a place is given back",
			func(_ *testing.T, b *Budget, _ context.CancelCauseFunc) { b.Done() },
			isNil, 0,
		},
		{
			"the patience ends",
			func(*testing.T, *Budget, context.CancelCauseFunc) { <-time.After(time.Second) }, // by the clock of synctest
			isRefusal, 1,
		},
		{
			"the call ends",
			func(_ *testing.T, _ *Budget, cancel context.CancelCauseFunc) { cancel(errCallEnded) },
			isCallEnded, 0,
		},
		{
			"too many wait",
			func(t *testing.T, b *Budget, _ context.CancelCauseFunc) {
				// The queue is full, so this caller is refused at once. The one in the queue still
				// gets the place.
				if err := b.Wait(t.Context()); !isRefusal(err) {
					t.Errorf("Wait while the queue is full: got %v, want a refusal", err)
				}
				b.Done()
			},
			isNil, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// One caller holds the only place, and another one waits in the queue.
				b := NewBudget(Class{Name: "plates", Limit: 1, Queue: 1, MaxWait: time.Second})
				if err := b.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				waitEnded := make(chan error, 1)
				go func() { waitEnded <- b.Wait(ctx) }()
				synctest.Wait()
				if got := b.Waiting(); got != 1 {
					t.Fatalf("callers that wait: got %d, want 1", got)
				}

				c.endWait(t, b, cancel)
				err := <-waitEnded
				if !c.isWanted(err) {
					t.Errorf("the wait ended with the error %v, want another result", err)
				}

				// Exactly one of the two callers holds the place now, and gives it back.
				if got := b.Used(); got != 1 {
					t.Errorf("places that are held after the wait: got %d, want 1", got)
				}
				b.Done()
				if got := b.Used(); got != 0 {
					t.Errorf("places that are held in the end: got %d, want 0", got)
				}
				if got := b.Waiting(); got != 0 {
					t.Errorf("callers that wait in the end: got %d, want 0", got)
				}
				if got := b.Refused(); got != c.wantRefusals {
					t.Errorf("refusals: got %d, want %d", got, c.wantRefusals)
				}
			})
		})
	}
}
