package archiver

import (
	"context"
	"errors"
	"time"
)

const (
	// keepMergedFor is how long the files of segments stay after they were merged into others. By
	// then, all other processes have reloaded the manifest several times. Only readers that began
	// much earlier find a file missing, and must reload it.
	keepMergedFor = time.Hour
	// mergeRetryDelay is the pause after merging has failed. It is long because nothing waits for a
	// merge.
	mergeRetryDelay = time.Hour
)

// mergeInBackground merges small segments from time to time until ctx ends. It also removes files
// that were merged long enough ago. It logs errors and tries again later, because sealing does not
// depend on merging.
func (a *Archiver) mergeInBackground(ctx context.Context) {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}

		wait := pollInterval
		if err := a.mergeSegments(ctx); err != nil && ctx.Err() == nil {
			wait = mergeRetryDelay
			a.opts.Logger.Warn("small segments of the archive are not merged", "error", err, "again_in", wait)
		}
		timer.Reset(wait)
	}
}

// mergeSegments merges until there is nothing left to merge.
func (a *Archiver) mergeSegments(ctx context.Context) error {
	for {
		done, err := a.opts.Archive.Merge(ctx, a.opts.Pace.Rest)
		err = errors.Join(err, a.opts.Archive.RemoveReplaced(ctx, keepMergedFor))
		if err != nil || done.Replaced == 0 {
			return err
		}
	}
}
