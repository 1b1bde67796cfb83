package archiver

import (
	"context"
	"errors"
	"time"
)

const (
	// dropAfter is how long the files stay that were merged into others: other processes have looked at the manifest several
	// times by then, and only readers that began long before must look again.
	dropAfter = time.Hour
	// mergeRetry is the pause after merging has failed. It is long because nothing waits for a merge.
	mergeRetry = time.Hour
)

// merge merges small segments, and removes files that were merged long enough ago, until the lease ends. An error is logged and the work
// tried again later, because sealing does not depend on it.
func (a *Archiver) merge(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait := lookEvery
		if err := a.mergeAll(ctx); err != nil && ctx.Err() == nil {
			wait = mergeRetry
			a.opt.Logger.Warn("small segments of the archive are not merged", "error", err, "again_in", wait)
		}
		timer.Reset(wait)
	}
}

// mergeAll merges until there is nothing to merge.
func (a *Archiver) mergeAll(ctx context.Context) error {
	for {
		done, err := a.opt.Archive.Merge(ctx, a.opt.Pace.Rest)
		if err = errors.Join(err, a.opt.Archive.Drop(ctx, dropAfter)); err != nil || done.Replaced == 0 {
			return err
		}
	}
}
