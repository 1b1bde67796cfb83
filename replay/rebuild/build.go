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

// buildStore builds a store of the given partitions in dir from the log, up to near the head that
// the log had when buildStore subscribed to it.
//
// If until is not nil, buildStore then calls it once with the position that the build has reached.
// until returns a position that is not before that one, and the build continues exactly to it.
func (r *rebuildState) buildStore(
	ctx context.Context, subscribe SubscribeFunc, dir string, partitions events.Partitions,
	until func(seq uint64) (last uint64, err error),
) (err error) {
	if r.opts.WaitTurn != nil {
		r.opts.WaitTurn.Lock()
		defer r.opts.WaitTurn.Unlock()
	}

	kinds := neededKinds(r.live.Projection())
	sub, err := subscribe(events.Cursor{}, kinds)
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	closeSub := sync.OnceFunc(sub.Close)
	defer closeSub()

	o := paced.Options{
		Pace:     r.opts.Pace,
		Progress: r.opts.Progress,
		Head:     sub.Head(),
		Worker:   r.opts.Worker,
		Check:    r.checkFree,
		Options: build.Options{
			FS: r.live.FS(), Dir: dir, New: r.live.New, Partitions: &partitions, Memory: r.opts.Memory,
		},
	}
	if r.opts.Pace.Share > 0 && r.opts.Pace.Share < 1 {
		// Pace.Share is a share of one core.
		o.Workers = 1
	}
	if r.opts.LogSize != nil {
		o.Log = r.opts.LogSize(ctx, kinds)
	}

	b, err := paced.New(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	// Read until the head is near.
	add := func(envs []*events.Envelope) error { return b.Add(ctx, envs) }
	for !r.isNearHead(b.Cursor().Seq, o.Head) {
		if _, err := r.readAndFold(ctx, sub, math.MaxUint64, add); err != nil {
			return err
		}
	}

	// Read on to the position that until wants. The log may skip that sequence, so also stop at the
	// first envelope after it.
	if until != nil {
		last, err := until(b.Cursor().Seq)
		for passedLast := false; !passedLast && err == nil && b.Cursor().Seq < last; {
			passedLast, err = r.readAndFold(ctx, sub, last, add)
		}
		if err != nil {
			return err
		}
	}

	// Finish may take long and reads no more of the log.
	closeSub()
	return b.Finish(ctx)
}

// readAndFold reads the next envelopes of the log and calls fold with those up to the sequence
// last. passedLast reports that it has also read envelopes after last, so that the log has no more
// up to last. After that, readAndFold rests as the pace demands.
func (r *rebuildState) readAndFold(
	ctx context.Context, sub store.Subscription, last uint64, fold func([]*events.Envelope) error,
) (passedLast bool, err error) {
	envs, err := sub.Next(ctx, maxReadBytes)
	if err != nil {
		return false, err
	}

	began := time.Now() // the pace does not count the time of waiting for the log
	n := slices.IndexFunc(envs, func(env *events.Envelope) bool { return env.Seq() > last })
	if n >= 0 {
		envs = envs[:n]
		passedLast = true
	}
	if err := fold(envs); err != nil {
		return passedLast, err
	}

	r.envelopes += uint64(len(envs))
	for _, env := range envs {
		r.bytes += uint64(env.Bytes)
	}
	return passedLast, r.opts.Pace.Rest(ctx, time.Since(began))
}
