package storestate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFoldRestsUnlessCallerWaits checks that a fold rests three times as long as it has worked, up to 20 ms, and not while a caller waits.
func TestFoldRestsUnlessCallerWaits(t *testing.T) {
	for _, test := range []struct {
		name       string
		took, want time.Duration
		before     bool          // a caller waits already
		comes      time.Duration // or begins to wait after this time
		over       bool          // a caller has waited, and no longer does
		ends       time.Duration // the context ends after
	}{
		{name: "little work", took: time.Millisecond, want: 3 * time.Millisecond},
		{name: "more work", took: 15 * time.Millisecond, want: maxRest},
		{name: "enough has gathered", took: maxRest, want: 0},
		{name: "somebody waits", took: time.Millisecond, before: true, want: 0},
		{name: "somebody comes", took: time.Millisecond, comes: 2 * time.Millisecond, want: 2 * time.Millisecond},
		{name: "somebody is gone", took: time.Millisecond, over: true, want: 3 * time.Millisecond},
		{name: "it is over", took: time.Millisecond, ends: time.Millisecond, want: time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m Machine
				m.Init(nil)
				ctx, cancel := context.WithCancel(t.Context())
				waits := func(ctx context.Context) { _ = m.WaitFor(ctx, 1) }
				switch {
				case test.before:
					go waits(ctx)
				case test.comes > 0:
					time.AfterFunc(test.comes, func() { waits(ctx) })
				case test.over:
					gone, leave := context.WithCancel(ctx)
					leave()
					waits(gone)
				case test.ends > 0:
					time.AfterFunc(test.ends, cancel)
				}
				synctest.Wait()
				began := time.Now()
				m.Rest(ctx, test.took)
				if rested := time.Since(began); rested != test.want {
					t.Errorf("it rested for %v, not %v", rested, test.want)
				}
				cancel()
			})
		})
	}
}
