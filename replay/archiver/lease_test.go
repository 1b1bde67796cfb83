package archiver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/skein-feed/skein/events/archive"
)

// TestDamagedManifestEndsWaitForLease demands that a process without the lease returns the error of
// a damaged manifest: while it waits for the lease, and if it gets the lease just then.
func TestDamagedManifestEndsWaitForLease(t *testing.T) {
	reloadDamaged := func(context.Context) error { return archive.ErrDamaged }
	archiveNothing := func(context.Context) error {
		t.Error("the archiver archives, expected that it ends because the manifest is damaged")
		return nil
	}

	for name, waitForLease := range map[string]func(context.Context, func(context.Context) error) error{
		"another process keeps the lease": func(ctx context.Context, _ func(context.Context) error) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"the lease is free": func(ctx context.Context, whileHeld func(context.Context) error) error {
			return whileHeld(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			// In the bubble, a goroutine that waits for ever fails the test.
			synctest.Test(t, func(t *testing.T) {
				err := reloadUntilHeld(t.Context(), reloadDamaged, waitForLease, archiveNothing)
				if !errors.Is(err, archive.ErrDamaged) {
					t.Errorf("the error is %v, want %v", err, archive.ErrDamaged)
				}
			})
		})
	}
}
