package worker

import (
	"context"
	"time"

	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// Paced returns options with which a build rests at a pace and reports what it does, from several goroutines. An error of told ends the
// build. It is the same for a worker, and for a process that finishes its build itself.
func Paced(o build.Options, pace replay.Pace, told func(Report) error) build.Options {
	o.Folded = func(events uint64) { _ = told(Report{Events: events}) } // if it fails, the next report of a partition does
	o.Around = func(ctx context.Context, fold func() error) error {
		began := time.Now()
		if err := fold(); err != nil {
			return err
		}
		if err := told(Report{Partition: true}); err != nil {
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
		if err := told(Report{Merging: true, Rows: rows, All: all}); err != nil {
			return err
		}
		return pace.Rest(ctx, time.Since(began))
	}
	return o
}
