package rebuild

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/paced"
)

// build builds a store of some partitions in a directory, up to where the log ended when that was read. With an until, which is then asked,
// it continues to the position that until returns, and no further; that is not before the position that until is given.
func (r *run) build(
	ctx context.Context, subscribe SubscribeFunc, dir string, held events.Partitions, until func(seq uint64) (last uint64, err error),
) (err error) {
	if r.o.Turn != nil {
		r.o.Turn.Lock()
		defer r.o.Turn.Unlock()
	}
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
	add := func(envs []*events.Envelope) error { return b.Add(ctx, envs) }
	for !r.isNear(b.Cursor().Seq, o.Head) {
		if _, err := r.read(ctx, sub, math.MaxUint64, add); err != nil {
			return err
		}
	}
	if until != nil {
		last, err := until(b.Cursor().Seq)
		for beyond := false; !beyond && err == nil && b.Cursor().Seq < last; {
			beyond, err = r.read(ctx, sub, last, add)
		}
		if err != nil {
			return err
		}
	}
	closed()
	return b.Finish(ctx)
}

// read reads a piece of the log up to a last sequence, gives it to fold, and reports whether there was more.
func (r *run) read(
	ctx context.Context, sub store.Subscription, last uint64, fold func([]*events.Envelope) error,
) (beyond bool, err error) {
	envs, err := sub.Next(ctx, readBytes)
	if err != nil {
		return false, err
	}
	began := time.Now()
	if n := slices.IndexFunc(envs, func(env *events.Envelope) bool { return env.Seq() > last }); n >= 0 {
		envs, beyond = envs[:n], true
	}
	if err := fold(envs); err != nil {
		return beyond, err
	}
	r.envelopes += uint64(len(envs))
	for _, env := range envs {
		r.bytes += uint64(env.Bytes)
	}
	return beyond, r.o.Pace.Rest(ctx, time.Since(began))
}
