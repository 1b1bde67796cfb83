package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay/internal/paced"
)

// build builds a store of some partitions in a directory, up to where the log ended when that was read.
func (r *run) build(ctx context.Context, subscribe SubscribeFunc, dir string, held projections.Partitions) (err error) {
	kinds := kindsOf(r.live.Projection())
	sub, err := subscribe(events.Cursor{}, kinds)
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	closed := sync.OnceFunc(sub.Close)
	defer closed()
	o := paced.Options{
		Pace: r.o.Pace, Progress: r.o.Progress, Head: sub.Head(), Worker: r.o.Worker, Check: r.checkFree,
		Options: build.Options{FS: r.live.FS(), Dir: dir, New: r.live.New, Partitions: &held, Memory: r.o.Memory},
	}
	if r.o.Pace.Share > 0 && r.o.Pace.Share < 1 {
		o.Workers = 1
	}
	if r.o.LogSize != nil {
		o.Log = r.o.LogSize(ctx, kinds)
	}
	b, err := paced.New(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for !r.isNear(b.Cursor().Seq, o.Head) {
		envs, err := sub.Next(ctx, readBytes)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := b.Add(ctx, envs); err != nil {
			return err
		}
		r.envelopes += uint64(len(envs))
		for _, env := range envs {
			r.bytes += uint64(env.Bytes)
		}
		if err := r.o.Pace.Rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	closed()
	return b.Finish(ctx)
}
