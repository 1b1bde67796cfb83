package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/worker"
)

// SubscribeFunc subscribes to the log after a cursor. The empty cursor is the beginning of the log.
// The subscription may leave out envelopes that have no event of the given kinds.
type SubscribeFunc func(from events.Cursor, kinds events.KindSet) (store.Subscription, error)

// LeastMemory and MostMemory are the limits of [Options.Memory], in bytes.
const (
	LeastMemory = 16 << 20
	MostMemory  = 4 << 30
)

const (
	// maxStoreBytesPerLogByte is about the largest size of a generation, relative to the size of
	// the log. It estimates the size of the next generation if the size of the one that serves says
	// little, because that one is empty or damaged.
	maxStoreBytesPerLogByte = 2
	// maxReadBytes is how many bytes of the log are read at a time.
	maxReadBytes = 8 << 20
	// nearEnvelopes and nearBytes say how far behind the head a generation may be for the cut-over
	// to begin. The cut-over folds the rest without a throttle, so the rest must be small in both
	// respects.
	nearEnvelopes = 2048
	nearBytes     = 1 << 20
	// flushPeriod is how often the free disk is checked and the new generation flushed, unless
	// replay.DiskPeriod bytes of the log were read earlier. After a crash, the events since the
	// last flush must be folded again.
	flushPeriod = time.Minute
)

// Options of a rebuild. The zero value rebuilds as fast as possible.
type Options struct {
	// Pace leaves a share of the time to the service. The zero value does not limit the rebuild.
	Pace replay.Pace
	// Memory is about how many bytes of memory a build takes, from [LeastMemory] to [MostMemory]; 0
	// means 512 MiB.
	Memory int
	// Worker starts the process that finishes the build. If Worker is nil, this process finishes
	// it.
	Worker *worker.Command
	// Margin is how many bytes of disk must stay free; 0 means 256 MiB.
	Margin uint64
	// LogBytes is the size of the log. It serves to estimate the size of the generation if the
	// present one says little; 0 means unknown.
	LogBytes uint64
	// LogSize returns the size of that part of the log that a fold of these kinds reads; nil means
	// unknown.
	LogSize func(context.Context, events.KindSet) replay.LogSize
	// WaitTurn is locked while partitions are built from the log, so that of several projections
	// that are resized at the same time only one uses Memory; nil means that no other is resized.
	WaitTurn sync.Locker
	// Sources returns the nodes that may have the rows of partitions that [Resize] adds; nil means
	// that there are none.
	Sources func() []Source
	// Progress is updated as the rebuild proceeds; it may be nil.
	Progress *replay.Progress
	// Paused is called with the duration for which the cut-over has stopped the fold; it may be
	// nil.
	Paused func(time.Duration)
	// Logger receives warnings for people; nil discards them.
	Logger *slog.Logger
}

// withDefaults returns the options with the defaults filled in that are not 0 or nil.
func (o Options) withDefaults() Options {
	if o.Margin == 0 {
		o.Margin = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Rebuild builds the next generation of a projection, with the same partitions, while the present
// one serves, and cuts over to it. [live.Live.Run] must be running: the cut-over needs it, and it
// makes the new generation follow the log afterwards. If Rebuild fails, or ctx ends, what was built
// is deleted, and the next Rebuild starts from the beginning. The report tells people what was
// done.
func Rebuild(ctx context.Context, serving *live.Live, subscribe SubscribeFunc, o Options) (report string, err error) {
	o = o.withDefaults()
	if err := checkDisk(serving, serving.Holds(), o); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}

	r := rebuildState{live: serving, opts: o, startTime: time.Now()}
	r.next, err = serving.BuildNext(ctx, func(dir string) error {
		return r.buildStore(ctx, subscribe, dir, serving.Holds(), nil)
	})
	if err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}

	if report, err = r.catchUpAndCutOver(ctx, subscribe); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}
	return report, nil
}

// Rollback goes back to the generation with the number target, which must be the previous one: it
// folds what that generation has missed and cuts over to it. The generation that served until then
// becomes the previous one. If the target serves already, Rollback does nothing, so a rollback that
// was interrupted can be repeated. Rollback fails with [live.ErrNoPrevious] if the target is not
// the previous generation, and with [projections.ErrFingerprint] if another version of the program
// or other settings built it. To go back then, first start that version, or the program with those
// settings.
func Rollback(
	ctx context.Context, serving *live.Live, target uint32, subscribe SubscribeFunc, o Options,
) (report string, err error) {
	o = o.withDefaults()
	if serving.Status().Generation == target {
		return fmt.Sprintf("generation %d serves already", target), nil
	}
	next, err := serving.OpenPrevious(ctx)
	if err != nil {
		return "", fmt.Errorf("roll back %s to generation %d: %w", serving.Name(), target, err)
	}

	r := rebuildState{live: serving, next: next, opts: o, startTime: time.Now(), startSeq: next.Cursor().Seq}
	if previous := next.Generation(); previous != target {
		err = fmt.Errorf("%w with the number %d: the previous one is %d", live.ErrNoPrevious, target, previous)
		return "", fmt.Errorf("roll back %s: %w", serving.Name(), errors.Join(err, r.closeNext()))
	}
	if report, err = r.catchUpAndCutOver(ctx, subscribe); err != nil {
		return "", fmt.Errorf("roll back %s: %w", serving.Name(), err)
	}
	return report, nil
}

// rebuildState is one rebuild, rollback or resize.
type rebuildState struct {
	live *live.Live
	// next is the generation to which catchUpAndCutOver cuts over.
	next *store.Store
	opts Options
	// startTime is when the rebuild began. startSeq is the sequence of the generation from which it
	// continues; 0 means that it starts at the beginning of the log.
	startTime time.Time
	startSeq  uint64
	// copiedPartitions is the number of partitions whose rows were copied from other nodes.
	copiedPartitions int
	// startsAsCopy is set if the next generation starts as a copy of the one that serves.
	startsAsCopy bool
	// envelopes and bytes of the log have been read and folded.
	envelopes, bytes uint64
}

// catchUpAndCutOver folds the log into the next generation up to nearly the head, cuts over, and
// reports what was done.
func (r *rebuildState) catchUpAndCutOver(ctx context.Context, subscribe SubscribeFunc) (report string, err error) {
	before := r.live.Status()
	if err := r.catchUp(ctx, subscribe); err != nil {
		return "", errors.Join(err, r.closeNext())
	}
	took := time.Since(r.startTime)
	caughtUpSeq := r.next.Cursor().Seq

	pause, err := r.live.CutOver(ctx, r.next)
	if err != nil {
		return "", err
	}
	if r.opts.Paused != nil {
		r.opts.Paused(pause)
	}

	st := r.live.Status()
	report = fmt.Sprintf("generation %d serves in place of %d since %d, after %v: ",
		st.Generation, before.Generation, st.Cursor.Seq, time.Since(r.startTime).Round(time.Millisecond))
	if r.startSeq > 0 {
		report += fmt.Sprintf("continued from %d, ", r.startSeq)
	}
	passed := caughtUpSeq - r.startSeq
	report += fmt.Sprintf("%d envelopes of the log passed in %v (%.0f/s), of which %d, %s, were read, %d more while it cut over; ",
		passed, took.Round(time.Millisecond), float64(passed)/max(took.Seconds(), 1e-6),
		r.envelopes, events.FormatSize(r.bytes), st.Cursor.Seq-min(caughtUpSeq, st.Cursor.Seq))
	report += fmt.Sprintf("cut over with a pause of %v, %s on disk",
		pause.Round(10*time.Microsecond), events.FormatSize(st.DiskBytes))
	return report, nil
}

// closeNext closes and deletes the next generation, which did not become the live one.
func (r *rebuildState) closeNext() error {
	// ErrClosed means that the projection was closed as a whole, and the next generation with it.
	if err := r.live.CloseNext(r.next); !errors.Is(err, projections.ErrClosed) {
		return err
	}
	return nil
}

// catchUp folds the log into the next generation until so little is left that the cut-over may fold
// the rest.
func (r *rebuildState) catchUp(ctx context.Context, subscribe SubscribeFunc) error {
	at := r.next.Cursor()
	sub, err := subscribe(at, neededKinds(r.next.Projection()))
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()

	r.opts.Progress.StartPhase(replay.CatchingUp, "envelopes", sub.Head())
	r.opts.Progress.SetDone(at.Seq)
	uncheckedBytes := 0 // bytes of the log that were read since the last check of the free disk
	flushed := time.Now()
	for {
		head := sub.Head()
		r.opts.Progress.SetTotal(head)
		if r.isNearHead(at.Seq, head) && r.hasReachedLive(at.Seq) {
			return ctx.Err()
		}

		envs, err := sub.Next(ctx, maxReadBytes)
		if err != nil {
			return err
		}

		began := time.Now() // the pace does not count the time of waiting for the log
		if err := r.next.Fold(envs); err != nil {
			return err
		}
		at = envs[len(envs)-1].Cursor
		r.opts.Progress.SetDone(at.Seq)
		r.envelopes += uint64(len(envs))
		for _, env := range envs {
			r.bytes += uint64(env.Bytes)
			uncheckedBytes += env.Bytes
		}

		if uncheckedBytes >= replay.DiskPeriod || time.Since(flushed) >= flushPeriod {
			uncheckedBytes = 0
			flushed = time.Now()
			if err := errors.Join(r.checkFree(), r.next.Flush()); err != nil {
				return err
			}
		}

		if err := r.opts.Pace.Rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

// neededKinds returns the kinds of events that a fold of the projection reads.
func neededKinds(p projections.Projection) events.KindSet {
	// Every fold needs BackfillClosed, which ends the history of a source: the fold rejects history
	// of that source that comes after it.
	return events.Kinds(p.Kinds()...) | events.Kinds(events.BackfillClosed)
}

// isNearHead reports whether so little of the log is left that the cut-over may begin. It assumes
// that the rest of the envelopes are as large as those that were read.
func (r *rebuildState) isNearHead(seq, head uint64) bool {
	if seq >= head {
		return true
	}
	if r.envelopes == 0 {
		return false
	}
	bytesPerEnvelope := r.bytes / r.envelopes
	return head-seq <= nearEnvelopes && (head-seq)*bytesPerEnvelope <= nearBytes
}

// hasReachedLive reports whether the next generation, which is at seq, has reached the position of
// the live one, so that queries never see older state after the cut-over. A live generation that
// follows the log may be ahead: the cut-over itself waits for its position.
func (r *rebuildState) hasReachedLive(seq uint64) bool {
	return seq >= r.live.Cursor().Seq || r.live.Status().State.CaughtUp()
}

// checkDisk returns [replay.ErrDisk] if a generation of these partitions might fill the disk.
func checkDisk(serving *live.Live, held events.Partitions, o Options) error {
	need, free, err := estimateDisk(serving, held, o.LogBytes)
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	return replay.CheckSpace("a rebuild of "+serving.Name(), need+o.Margin, free)
}

// estimateDisk returns how many bytes of disk a generation of these partitions takes while it is
// built, and how many are free.
func estimateDisk(serving *live.Live, partitions events.Partitions, logBytes uint64) (need, free uint64, err error) {
	free, err = serving.FreeDisk()
	present := serving.Holds()
	n := uint64(partitions.Len())

	// Assume that the partitions are as large as those of the generation that serves.
	need = replay.BuildSpace(serving.FileBytes() * n / max(1, uint64(present.Len())))

	st := serving.Status()
	if st.Cursor.Seq == 0 || st.State == store.Failed || present.Len() == 0 {
		// The generation that serves may be only a part of what the next one will be.
		need = max(need, maxStoreBytesPerLogByte*logBytes*n/events.NumPartitions)
	}
	return need, free, err
}

// checkFree returns [replay.ErrDisk] if less disk is free than must stay free for the service.
func (r *rebuildState) checkFree() error {
	free, err := r.live.FreeDisk()
	if err != nil {
		return err
	}
	return replay.CheckFree(r.opts.Margin, free)
}
