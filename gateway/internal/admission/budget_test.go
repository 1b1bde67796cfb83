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

// A refusal names the limit that was exceeded, its value, and the flag that sets it.
func TestRefusalsNameTheLimit(t *testing.T) {
	b := NewBudget(Class{Name: "plates", Limit: 5, CallerLimit: 3, Flag: "--plates"})
	mustTake(t, b, "ann", 3)
	for _, c := range []struct{ name, caller, want string }{
		{"of a caller", "ann", "one caller may have 3 plates at a time (set by --plates); nothing was done"},
		{"of all callers", "bob", "the service allows 5 plates at a time (set by --plates), and others have taken them; nothing was done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := int64(1)
			if c.caller == "bob" {
				n = 3
			}
			f := b.Take(c.caller, n)
			if f == nil {
				t.Fatal("expected a refusal")
			}
			if diff := cmp.Diff(c.want, f.Text); diff != "" {
				t.Error(diff)
			}
			if b.Used() != 3 {
				t.Errorf("expected 3 to be held after a refusal, got %d", b.Used())
			}
		})
	}
	b.Release("ann", 3)
	mustTake(t, b, "bob", 3)
	if got := [...]int64{b.Used(), int64(b.Refused()), b.Peak()}; got != [...]int64{3, 2, 3} {
		t.Errorf("expected 3 held, 2 refusals and at most 3 at a time, got %v", got)
	}
}

func mustTake(t *testing.T, b *Budget, caller string, n int64) {
	t.Helper()
	if f := b.Take(caller, n); f != nil {
		t.Fatal(f)
	}
}

// A caller who waits gets a place that was given back, or an error: at once if the queue is full,
// when the patience of the class ends, or when the call itself ends.
func TestWaitEndsWithAPlaceOrAnError(t *testing.T) {
	errGone := errors.New("the client is gone")
	isRefusal := func(err error) bool {
		_, ok := errors.AsType[*apierror.Failure](err)
		return ok
	}
	for _, c := range []struct {
		name string
		// end is what happens while a caller waits.
		end     func(b *Budget, cancel context.CancelCauseFunc)
		ended   func(error) bool
		refused uint64
	}{
		{"a place is given back", func(b *Budget, _ context.CancelCauseFunc) { b.Done() }, func(err error) bool { return err == nil }, 0},
		{"the patience ends", func(*Budget, context.CancelCauseFunc) { <-time.After(time.Second) }, isRefusal, 1},
		{
			"the call ends", func(_ *Budget, cancel context.CancelCauseFunc) { cancel(errGone) },
			func(err error) bool { return errors.Is(err, errGone) }, 0,
		},
		{
			"too many wait",
			func(b *Budget, _ context.CancelCauseFunc) {
				if err := b.Wait(context.Background()); !isRefusal(err) {
					panic(err)
				}
				b.Done()
			},
			func(err error) bool { return err == nil }, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(Class{Name: "plates", Limit: 1, Queue: 1, MaxWait: time.Second})
				if err := b.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				waited := make(chan error, 1)
				go func() { waited <- b.Wait(ctx) }()
				synctest.Wait()
				if b.Waiting() != 1 {
					t.Fatalf("expected 1 caller to wait, got %d", b.Waiting())
				}
				c.end(b, cancel)
				err := <-waited
				if !c.ended(err) {
					t.Errorf("the wait ended with %v", err)
				}
				if err == nil || b.Used() == 1 {
					b.Done()
				}
				if got := [...]int64{b.Used(), b.Waiting(), int64(b.Refused())}; got != [...]int64{0, 0, int64(c.refused)} {
					t.Errorf("expected nothing held, nobody waiting and %d refusals, got %v", c.refused, got)
				}
			})
		})
	}
}
