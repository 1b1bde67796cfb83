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

// recoverRetry is the pause after an attempt to recover a projection has failed.
const recoverRetryDelay = 5 * time.Second

// recoverWhenRoom recovers a projection that a full disk has stopped, whenever there is room again, until ctx ends.
func (a *Service) recoverFromFullDisk(ctx context.Context, serving *live.Live) error {
	logger := a.logger.With("projection", serving.Name())
	for ctx.Err() == nil {
		changed := serving.Changed()
		st := serving.Status()
		if st.State != store.Failed || st.Damaged || !errors.Is(st.Error, syscall.ENOSPC) {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if wait.For(ctx, diskCheckPeriod) != nil || a.diskGuard.refusing.Load() {
			continue
		}
		if err := serving.Recover(ctx); err != nil {
			logger.Error("the projection, which a full disk has stopped, does not continue yet", "retry", recoverRetryDelay, "error", err)
			_ = wait.For(ctx, recoverRetryDelay) // the loop ends with the context
			continue
		}
		logger.Warn("the projection, which a full disk had stopped, continues", "generation", serving.Status().Generation)
	}
	return nil
}
