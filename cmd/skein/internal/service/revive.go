package service

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/projections"
)

// reviveRetry is how long a projection that could not be revived waits for the next try.
const reviveRetry = 5 * time.Second

// reviveWhenRoom has a projection that a full disk has stopped go on when there is room, until ctx ends.
func (a *Service) reviveWhenRoom(ctx context.Context, live *projections.Live) error {
	logger := a.logger.With("projection", live.Name())
	for ctx.Err() == nil {
		changed := live.Changed()
		st := live.Status()
		if st.State != projections.Failed || st.Damaged || !errors.Is(st.Error, syscall.ENOSPC) {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if wait.For(ctx, diskPeriod) != nil || a.disk.refusing.Load() {
			continue
		}
		if err := live.Revive(ctx); err != nil {
			logger.Error("the projection, which a full disk has stopped, does not go on yet", "retry", reviveRetry, "error", err)
			_ = wait.For(ctx, reviveRetry) // the loop ends with the context
			continue
		}
		logger.Warn("the projection, which a full disk had stopped, goes on", "generation", live.Status().Generation)
	}
	return nil
}
