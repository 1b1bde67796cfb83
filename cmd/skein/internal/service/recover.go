package service

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

// recoverRetryDelay is the pause after a failed attempt to recover a projection.
const recoverRetryDelay = 5 * time.Second

// recoverFromFullDisk recovers a projection each time that a full disk has made it fail and there
// is enough free disk again, until ctx ends.
func (s *Service) recoverFromFullDisk(ctx context.Context, projection *live.Live) error {
	logger := s.logger.With("projection", projection.Name())
	for ctx.Err() == nil {
		// Take the channel before Status, so that no change after Status is missed.
		changed := projection.Changed()
		st := projection.Status()
		// Damaged files are rebuilt instead, see runMaintenance.
		failedForDisk := st.State == store.Failed && !st.Damaged && errors.Is(st.Error, syscall.ENOSPC)
		if !failedForDisk {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}

		// Wait for the next check of the disk, and try only when the reserve is free again.
		if wait.For(ctx, diskCheckPeriod) != nil || s.diskGuard.refusing.Load() {
			continue
		}
		if err := projection.Recover(ctx); err != nil {
			logger.Error("the projection failed on a full disk and cannot continue yet", "retry", recoverRetryDelay, "error", err)
			_ = wait.For(ctx, recoverRetryDelay) // fails only when ctx ends, and then the loop ends
			continue
		}
		logger.Warn("the projection failed on a full disk and continues now", "generation", projection.Status().Generation)
	}
	return nil
}
