package worker

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// Throttled returns a copy of o with which a build rests at the given pace and reports its progress
// in the phases [replay.Folding] and [replay.Writing]; Done counts from 0 in each. report is called
// from several goroutines, but never by two at a time. If it returns an error, the build fails with
// it. A worker uses Throttled, and so does a process that finishes its build itself.
func Throttled(o build.Options, pace replay.Pace, report func(replay.PhaseProgress) error) build.Options {
	// mu is held while report runs, so that the reported counts never decrease.
	var mu sync.Mutex
	folded := replay.PhaseProgress{Phase: replay.Folding, Unit: "events"}
	written := replay.PhaseProgress{Phase: replay.Writing, Unit: "rows"}
	reportDone := func(phase *replay.PhaseProgress, done uint64) error {
		mu.Lock()
		defer mu.Unlock()
		phase.Done += done
		return report(*phase)
	}

	o.OnFolded = func(events uint64) {
		// OnFolded cannot fail. If report fails here, it also fails in AroundFold, at the end of
		// the partition.
		_ = reportDone(&folded, events)
	}

	o.AroundFold = func(ctx context.Context, fold func() error) error {
		startTime := time.Now()
		if err := fold(); err != nil {
			return err
		}
		// Adding nothing asks report whether the build must stop.
		if err := reportDone(&folded, 0); err != nil {
			return err
		}
		return pace.Rest(ctx, time.Since(startTime))
	}

	o.Merging = func(ctx context.Context, all int64, merge func() (int64, error)) error {
		startTime := time.Now()
		rows, err := merge()
		if err != nil {
			return err
		}

		// all does not count the rows that belong to the store as a whole, so more rows than that
		// may be written.
		mu.Lock()
		written.Total = max(uint64(all), written.Done+uint64(rows))
		mu.Unlock()

		if err := reportDone(&written, uint64(rows)); err != nil {
			return err
		}
		return pace.Rest(ctx, time.Since(startTime))
	}
	return o
}
