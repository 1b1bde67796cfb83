package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/paced"
)

// ErrLogChanged means that the log has begun a new epoch while a generation was prepared from it,
// by an erasure or a restore. What was prepared is removed.
var ErrLogChanged = errors.New("rebuild: the log has begun a new epoch meanwhile; prepare again")

// Target is the generation that [Prepare] makes.
type Target struct {
	// New makes the projection.
	New func() projections.Projection
	// Dir is the directory of the stores of the running service.
	Dir string
	// Partitions are those that the service holds; nil means all.
	Partitions *events.Partitions
	// Log and Epoch are those of the log. Epoch is asked again at the end.
	Log   events.LogID
	Epoch func(context.Context) (uint32, error)
}

// Prepare builds a generation of a projection in the directory of a running service, which has
// another version of the fold or other settings. The service does not use it. The next start of a
// service for which the live generation is outdated and this one is not continues it; see
// [live.Preparation].
//
// Calling Prepare again folds only what the log got since then. A build that was interrupted
// continues after the last step that it has saved: the reading of a part of the log, the folding of
// a range of partitions, the writing of the store. Of the options, WaitTurn, Sources, Paused and
// Worker are not used. The report is for people.
func Prepare(ctx context.Context, target Target, subscribe SubscribeFunc, o Options) (report string, err error) {
	name := target.New().Name()
	defer func() {
		if err != nil {
			err = fmt.Errorf("prepare %s: %w", name, err)
		}
	}()
	epoch, err := target.Epoch(ctx)
	if err != nil {
		return "", err
	}
	r := &preparing{
		target: target, o: o.withDefaults(), began: time.Now(), subscribe: subscribe,
		preparation: &live.Preparation{
			Options: store.Options{
				FS: vfs.Default, Dir: target.Dir, Projection: target.New(), Partitions: projections.NilIfAll(target.Partitions),
			},
			Log: target.Log, Epoch: epoch,
		},
	}

	if err := r.preparation.Begin(); err != nil {
		return "", err
	}
	complete, err := r.preparation.IsComplete()
	if err != nil {
		r.o.Logger.Warn("what was prepared before cannot be used", "projection", name, "error", err)
	}
	if !complete {
		if err := r.buildOrContinue(ctx); err != nil {
			return "", err
		}
	}
	at, err := r.foldRest(ctx)
	if err != nil {
		return "", err
	}
	if now, err := target.Epoch(ctx); err != nil || now != epoch {
		if err == nil {
			err = errors.Join(ErrLogChanged, r.preparation.Remove())
		}
		return "", err
	}
	if err := errors.Join(r.preparation.Complete(), vfs.Default.RemoveAll(r.preparation.Dir()+".parts")); err != nil {
		return "", err
	}
	return fmt.Sprintf("a generation is prepared up to sequence %d, after %v: %d envelopes, %s, were read", at,
		time.Since(r.began).Round(time.Millisecond), r.envelopes, events.FormatSize(r.bytes)), nil
}

// preparing is one call of Prepare.
type preparing struct {
	target      Target
	preparation *live.Preparation
	subscribe   SubscribeFunc
	o           Options
	began       time.Time
	// envelopes and bytes of the log were read.
	envelopes, bytes uint64
}

// checkFree stops the build before the disk of the service is full.
func (r *preparing) checkFree() error {
	free, _, err := store.FreeDisk(r.target.Dir)
	if err != nil {
		return err
	}
	return replay.CheckFree(r.o.Margin, free)
}

// buildOrContinue builds the generation, unless an earlier call has done so. If what an earlier
// call has left cannot be used, it begins again.
func (r *preparing) buildOrContinue(ctx context.Context) error {
	fs, dir := vfs.Default, r.preparation.Dir()
	built, err := build.IsBuilt(fs, dir, r.preparation.Key())
	if built {
		return nil
	}
	var resumed bool
	if err == nil {
		// The directory may have a store that was not complete when the call was interrupted.
		if err = fs.RemoveAll(dir); err == nil {
			resumed, err = r.build(ctx)
		}
		if err == nil || !resumed || ctx.Err() != nil || errors.Is(err, replay.ErrDisk) {
			return err
		}
	}
	r.o.Logger.Warn("the interrupted build cannot be continued, and begins again", "error", err)
	if err := r.preparation.Remove(); err != nil {
		return err
	}
	// Remove has also removed the file that says what the generation is built from. Without that
	// file, a service that starts meanwhile would remove the new build.
	if err := r.preparation.Begin(); err != nil {
		return err
	}
	_, err = r.build(ctx)
	return err
}

// build builds the generation up to near the end of the log. resumed reports whether it continued a
// build that was interrupted.
func (r *preparing) build(ctx context.Context) (resumed bool, err error) {
	held := events.AllPartitions()
	if p := r.preparation.Options.Partitions; p != nil {
		held = *p
	}
	kinds := neededKinds(r.preparation.Options.Projection)
	sub, err := r.subscribe(events.Cursor{}, kinds)
	if err != nil {
		return false, fmt.Errorf("subscribe to the log: %w", err)
	}
	head := sub.Head()
	sub.Close()

	o := paced.Options{
		Pace: r.o.Pace, Progress: r.o.Progress, Head: head, Check: r.checkFree,
		Options: build.Options{
			FS: vfs.Default, Dir: r.preparation.Dir(), New: r.target.New, Partitions: &held, Memory: r.o.Memory,
			Key: r.preparation.Key(),
		},
	}
	if r.o.Pace.Share > 0 && r.o.Pace.Share < 1 {
		o.Workers = 1
	}
	if r.o.LogSize != nil {
		o.Log = r.o.LogSize(ctx, kinds)
	}

	b, err := paced.New(o)
	if err != nil {
		return true, err // only the files of an interrupted build are read
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	resumed = b.Cursor().Seq > 0
	if !b.HasAllEvents() {
		// An error of the log says nothing about what was saved.
		if err := r.readLog(ctx, b, kinds, head); err != nil {
			return false, err
		}
	}
	return resumed, b.Finish(ctx)
}

// readLog adds to a build what it lacks of the log up to the sequence head.
func (r *preparing) readLog(ctx context.Context, b *paced.Build, kinds events.KindSet, head uint64) error {
	sub, err := r.subscribe(b.Cursor(), kinds)
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()

	add := func(envs []*events.Envelope) error { return b.Add(ctx, envs) }
	for b.Cursor().Seq < head {
		if err := r.readInto(ctx, sub, add); err != nil {
			return err
		}
	}
	return nil
}

// foldRest folds what the generation lacks of the log as it is now, and returns the sequence that
// it has reached.
func (r *preparing) foldRest(ctx context.Context) (seq uint64, err error) {
	s, err := store.Open(r.preparation.StoreOptions())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // Close brings the rows to disk
	sub, err := r.subscribe(s.Cursor(), neededKinds(s.Projection()))
	if err != nil {
		return 0, fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()
	head := sub.Head()
	r.o.Progress.StartPhase(replay.CatchingUp, "envelopes", head)
	for seq = s.Cursor().Seq; seq < head; seq = s.Cursor().Seq {
		r.o.Progress.SetDone(seq)
		if err := errors.Join(r.checkFree(), r.readInto(ctx, sub, s.Fold)); err != nil {
			return seq, err
		}
	}
	return seq, nil
}

// readInto gives the next piece of the log to fold, and rests as the pace demands.
func (r *preparing) readInto(ctx context.Context, sub store.Subscription, fold func([]*events.Envelope) error) error {
	envs, err := sub.Next(ctx, maxReadBytes)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fold(envs); err != nil {
		return err
	}
	r.envelopes += uint64(len(envs))
	for _, env := range envs {
		r.bytes += uint64(env.Bytes)
	}
	return r.o.Pace.Rest(ctx, time.Since(began))
}
