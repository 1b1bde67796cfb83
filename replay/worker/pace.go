package worker

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// Paced returns options with which a build rests at a pace and reports its progress: the phases [replay.Folding] and [replay.Writing], each
// from the beginning. It calls report from several goroutines, one at a time. An error of report ends the build. It is the same for a
// worker, and for a process that finishes its build itself.
func Paced(o build.Options, pace replay.Pace, report func(replay.PhaseProgress) error) build.Options {
	// The lock is held during a report, so that reports come in the order of what they count.
	var mu sync.Mutex
	folded := replay.PhaseProgress{Phase: replay.Folding, Unit: "events"}
	written := replay.PhaseProgress{Phase: replay.Writing, Unit: "rows"}
	add := func(at *replay.PhaseProgress, done uint64) error {
		mu.Lock()
		defer mu.Unlock()
		at.Done += done
		return report(*at)
	}

	o.Folded = func(events uint64) { _ = add(&folded, events) } // if it fails, the report at the end of the partition does
	o.Around = func(ctx context.Context, fold func() error) error {
		began := time.Now()
		if err := fold(); err != nil {
			return err
		}
		if err := add(&folded, 0); err != nil {
			return err
		}
		return pace.Rest(ctx, time.Since(began))
	}
	o.Merging = func(ctx context.Context, all int64, merge func() (int64, error)) error {
		began := time.Now()
		rows, err := merge()
		if err != nil {
			return err
		}
		mu.Lock()
		written.Total = max(uint64(all), written.Done+uint64(rows)) // rows of the store as a whole are not among all
		mu.Unlock()
		if err := add(&written, uint64(rows)); err != nil {
			return err
		}
		return pace.Rest(ctx, time.Since(began))
	}
	return o
}
