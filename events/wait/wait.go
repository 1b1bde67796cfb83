// Package wait lets time go by. Loops that retry have their own rules (what is final, how long patience lasts, what is
// said meanwhile), and only this in common.
package wait

import (
	"context"
	"time"
)

// For waits for so long, or until the context ends, whose error it returns.
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
