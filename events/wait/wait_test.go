package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-feed/skein/events/wait"
)

// TestForWaitsForDurationOrContext checks that For waits for the duration or until the context ends,
// whichever comes first. A duration that is not positive only checks the context.
func TestForWaitsForDurationOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, step := range []struct {
			duration, wantWait time.Duration
			wantErr            error
		}{
			{0, 0, nil},
			{time.Second, time.Second, nil},
			{time.Hour, 59 * time.Second, context.DeadlineExceeded},
			{-1, 0, context.DeadlineExceeded},
		} {
			began := time.Now()
			err := wait.For(ctx, step.duration)
			if !errors.Is(err, step.wantErr) {
				t.Errorf("For(%v): got error %v, want %v", step.duration, err, step.wantErr)
			}
			if waited := time.Since(began); waited != step.wantWait {
				t.Errorf("time of For(%v): got %v, want %v", step.duration, waited, step.wantWait)
			}
		}
	})
}
