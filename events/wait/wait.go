// Package wait has the interruptible sleep that all retry loops share. Which errors to retry, how
// long, and what to log differ between the loops, so they decide these themselves.
package wait

import (
	"context"
	"time"
)

// For waits for the duration d and returns nil, or returns ctx's error as soon as ctx ends. If d is
// not positive, For returns ctx's error, or nil, at once.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
