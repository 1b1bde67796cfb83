package storestate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFoldRestsUnlessCallerWaits checks that a fold rests three times as long as it has worked, up
// to 20 ms, and not while a caller waits.
func TestFoldRestsUnlessCallerWaits(t *testing.T) {
	for _, test := range []struct {
		name         string
		worked, want time.Duration
		// A caller waits already, begins to wait after some time, or has waited and no longer does.
		callerWaits  bool
		callerAfter  time.Duration
		callerGaveUp bool
		// The context ends after this time, if it is not 0.
		contextAfter time.Duration
	}{
		{name: "little work", worked: time.Millisecond, want: 3 * time.Millisecond},
		{name: "more work", worked: 15 * time.Millisecond, want: maxRest},
		{name: "much work", worked: maxRest, want: 0},
		{name: "a caller waits", worked: time.Millisecond, callerWaits: true, want: 0},
		{name: "a caller begins to wait", worked: time.Millisecond, callerAfter: 2 * time.Millisecond, want: 2 * time.Millisecond},
		{name: "a caller has given up", worked: time.Millisecond, callerGaveUp: true, want: 3 * time.Millisecond},
		{name: "the context ends", worked: time.Millisecond, contextAfter: time.Millisecond, want: time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m Machine
				m.Init(nil)

				ctx, cancel := context.WithCancel(t.Context())
				waitFor1 := func(ctx context.Context) { _ = m.WaitFor(ctx, 1) }
				switch {
				case test.callerWaits:
					go waitFor1(ctx)
				case test.callerAfter > 0:
					time.AfterFunc(test.callerAfter, func() { waitFor1(ctx) })
				case test.callerGaveUp:
					callerCtx, giveUp := context.WithCancel(ctx)
					giveUp()
					waitFor1(callerCtx)
				case test.contextAfter > 0:
					time.AfterFunc(test.contextAfter, cancel)
				}
				synctest.Wait()

				began := time.Now()
				m.Rest(ctx, test.worked)
				if rested := time.Since(began); rested != test.want {
					t.Errorf("got a rest of %v, want %v", rested, test.want)
				}
				cancel()
			})
		})
	}
}
