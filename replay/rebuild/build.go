package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
)

// build builds a store by partition in a directory, up to where the log ended when that was read.
func (r *run) build(ctx context.Context, source Source, dir string) (err error) {
	workers := 0
	if r.o.Pace.Share > 0 && r.o.Pace.Share < 1 {
		workers = 1
	}
	b, err := build.New(build.Options{
		FS: r.live.FS(), Dir: dir, New: r.live.New, Memory: r.o.Memory, Workers: workers, Around: r.around,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := r.scatter(ctx, source, b); err != nil {
		return err
	}
	r.o.Progress.Start("events", uint64(b.Scattered()))
	return b.Finish(ctx)
}

// scatter reads the log up to its head as of the start.
func (r *run) scatter(ctx context.Context, source Source, b *build.Builder) error {
	sub, err := source(events.Cursor{}, kindsOf(r.live.Projection()))
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()
	head, unlooked := sub.Head(), 0
	r.o.Progress.Start("envelopes", head)
	for !r.isNear(b.Cursor().Seq, head) {
		envs, err := sub.Next(ctx, readBytes)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := b.Add(envs); err != nil {
			return err
		}
		r.o.Progress.Set(b.Cursor().Seq)
		r.envelopes += uint64(len(envs))
		for _, env := range envs {
			r.bytes += uint64(env.Bytes)
			unlooked += env.Bytes
		}
		if unlooked >= replay.DiskPeriod {
			unlooked = 0
			if err := r.checkFree(); err != nil {
				return err
			}
		}
		if err := r.o.Pace.Rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// around folds a partition at the pace, while there is room for it.
func (r *run) around(ctx context.Context, events int64, fold func() error) error {
	if err := r.checkFree(); err != nil {
		return err
	}
	began := time.Now()
	if err := fold(); err != nil {
		return err
	}
	r.o.Progress.Add(uint64(events))
	return r.o.Pace.Rest(ctx, time.Since(began))
}
