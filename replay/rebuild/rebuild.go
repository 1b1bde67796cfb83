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
// The subscription delivers at least the events of the given kinds. It may leave out other events,
// and envelopes that have no event of these kinds.
type SubscribeFunc func(from events.Cursor, kinds events.KindSet) (store.Subscription, error)

// LeastMemory and MostMemory are the limits of [Options.Memory], in bytes. The command line checks
// them; this package does not.
const (
	LeastMemory = 16 << 20
	MostMemory  = 4 << 30
)

const (
	// maxStoreBytesPerLogByte is about the largest size of a generation, in bytes for each byte of
	// the log. estimateDisk uses it if the size of the generation that serves says little about the
	// size of the next one.
	maxStoreBytesPerLogByte = 2
	// maxReadBytes is about how many bytes of the log are read at a time.
	maxReadBytes = 8 << 20
	// nearEnvelopes and nearBytes say how far behind the head a generation may be for the cut-over
	// to begin. The cut-over folds the rest without regard to the pace, and each envelope and each
	// byte takes time, so both numbers must be small.
	nearEnvelopes = 2048
	nearBytes     = 1 << 20
	// flushPeriod is how often catchUp checks the free disk and flushes the next generation, unless
	// it has read replay.DiskPeriod bytes of the log earlier. If a rollback is interrupted, the
	// next one continues after the last flush. A rebuild or a resize gains nothing from the flush,
	// because what was built is deleted.
	flushPeriod = time.Minute
)

// Options are the options of a rebuild, a rollback, a resize and a preparation. With the zero
// value, an operation runs as fast as possible, in this process, and reports no progress.
type Options struct {
	// Pace limits the operation to a share of one core, so that the service keeps the rest. The
	// zero value does not limit. The cut-over is never limited.
	Pace replay.Pace
	// Memory is about how many bytes of memory a build from the log takes; 0 means 512 MiB. The
	// caller checks that it is between [LeastMemory] and [MostMemory].
	Memory int
	// Worker starts another process, which finishes a build from the log: that process folds the
	// partitions, after this one has read the log. If Worker is nil, this process finishes the
	// build itself.
	Worker *worker.Command
	// Margin is how many bytes of disk must stay free; 0 means 256 MiB.
	Margin uint64
	// LogBytes is the size of the log. It serves to estimate the size of the next generation if the
	// size of the present one says little; 0 means unknown.
	LogBytes uint64
	// LogSize returns how much of the log a fold of these kinds reads. It serves to estimate how
	// long a build from the log takes; nil means unknown.
	LogSize func(context.Context, events.KindSet) replay.LogSize
	// WaitTurn is locked while partitions are built from the log. The callers that resize several
	// projections at the same time give them the same WaitTurn, so that only one build at a time
	// takes Memory. nil means that the build does not wait for others.
	WaitTurn sync.Locker
	// Sources returns the nodes that may have the rows of partitions that [Resize] adds; nil means
	// that there are none. [Rebuild] and [Rollback] do not call it, and [Renew] replaces it.
	Sources func() []Source
	// Progress is updated as the operation proceeds; it may be nil.
	Progress *replay.Progress
	// Paused is called after the cut-over, with the longest time for which the cut-over has stopped
	// the fold of the old generation; nil means that nothing is called.
	Paused func(time.Duration)
	// Logger receives warnings for people; nil discards them.
	Logger *slog.Logger
}

// withDefaults returns the options with the defaults of Margin and Logger filled in. For the other
// fields, 0 or nil is the default, or the code that uses the field fills the default in, as package
// build does for Memory.
func (o Options) withDefaults() Options {
	if o.Margin == 0 {
		o.Margin = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Rebuild builds the next generation of a projection from the log, with the same partitions, while
// the present one serves, and cuts over to it. [live.Live.Run] must be running: the cut-over needs
// it, and it makes the new generation follow the log afterwards. If the generation might fill the
// disk, Rebuild fails with [replay.ErrDisk]. If Rebuild fails, or ctx ends, what was built is
// deleted, and the next Rebuild starts from the beginning. The report tells people what was done.
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
// folds what that generation has missed and cuts over to it. [live.Live.Run] must be running, as
// for [Rebuild]. The generation that served until then becomes the previous one, unless it is
// damaged: then there is no previous one afterwards. If Rollback fails, or ctx ends, the target
// stays the previous generation. If the target serves already, Rollback does nothing. So a rollback
// that was interrupted can be repeated.
//
// Rollback fails with [live.ErrNoPrevious] if the target is not the previous generation, and with
// [projections.ErrFingerprint] if another version of the program built the target, or the program
// with other settings. To go back then, first start that version, or the program with those
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

// rebuildState is the state of one rebuild, rollback, renewal or resize.
type rebuildState struct {
	live *live.Live
	// next is the generation to which catchUpAndCutOver cuts over. It is nil until that generation
	// is built or opened.
	next *store.Store
	opts Options
	// startTime is when the operation began. startSeq is the sequence at which the next generation
	// was when catchUp began to fold into it, for a rollback, and for a resize with startsAsCopy
	// set. It is 0 otherwise. Only the report uses the two.
	startTime time.Time
	startSeq  uint64
	// copiedPartitions is the number of partitions whose rows were copied from [Options.Sources]:
	// from other nodes, or in [Renew] from the present generation.
	copiedPartitions int
	// startsAsCopy is set if joinParts has put the next generation together from parts, as a copy
	// of the one that serves or from copied rows. It is not set if all partitions were built from
	// the log in a single store.
	startsAsCopy bool
	// envelopes and bytes say how much of the log was read and folded. What was folded into several
	// stores, as the parts of one generation are, counts several times.
	envelopes, bytes uint64
}

// catchUpAndCutOver folds the log into the next generation up to nearly the head, cuts over, and
// reports what was done. If it fails, the next generation is closed, and deleted unless it is the
// previous one.
func (r *rebuildState) catchUpAndCutOver(ctx context.Context, subscribe SubscribeFunc) (report string, err error) {
	before := r.live.Status()
	if err := r.catchUp(ctx, subscribe); err != nil {
		return "", errors.Join(err, r.closeNext())
	}
	took := time.Since(r.startTime)
	caughtUpSeq := r.next.Cursor().Seq

	// If CutOver fails, it closes the next generation itself.
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

// closeNext closes the next generation after a failure. It also deletes that generation, except in
// a rollback, where it is the previous one.
func (r *rebuildState) closeNext() error {
	// ErrClosed means that the projection was closed as a whole, and the next generation with it.
	// The next start removes the files of a generation that was being built.
	if err := r.live.CloseNext(r.next); !errors.Is(err, projections.ErrClosed) {
		return err
	}
	return nil
}

// catchUp folds the log into the next generation, at the pace of the options, until so little is
// left that the cut-over may fold the rest. It fails with [replay.ErrDisk] if the disk is nearly
// full.
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

// neededKinds returns the kinds of events that a store of the projection must read from the log.
func neededKinds(p projections.Projection) events.KindSet {
	// Every store also reads BackfillClosed, which ends the history of one source: the store
	// rejects events of that source's history that come after it. Every store reads UserDeleted,
	// too. The Kinds of every projection of this program contain that kind.
	return events.Kinds(p.Kinds()...) | events.Kinds(events.BackfillClosed)
}

// isNearHead reports whether a store at the sequence seq is so near to the head of the log that the
// rest may be left to the next step: to catchUp after a build, and to the cut-over after catchUp.
// It assumes that the remaining envelopes have the average size of those that were read. If none
// was read yet, it returns false, unless nothing is left.
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

// hasReachedLive reports whether catchUp may end as far as the live generation is concerned. seq is
// the sequence of the next generation. A cut-over waits until the next generation shows what the
// live one shows, so queries never see an older state. If the live generation has caught up with
// the log, it moves on all the time, so only the cut-over waits for it. Otherwise catchUp itself
// folds up to the position of the live generation, so that the cut-over has less to fold.
func (r *rebuildState) hasReachedLive(seq uint64) bool {
	return seq >= r.live.Cursor().Seq || r.live.Status().State.CaughtUp()
}

// checkDisk returns [replay.ErrDisk] if less than Margin might stay free on the disk while a
// generation of these partitions is built.
func checkDisk(serving *live.Live, held events.Partitions, o Options) error {
	need, free, err := estimateDisk(serving, held, o.LogBytes)
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	return replay.CheckSpace("a rebuild of "+serving.Name(), need+o.Margin, free)
}

// estimateDisk estimates how many bytes of disk a generation of these partitions takes while it is
// built, and returns how many are free. logBytes is the size of the log; 0 means unknown.
func estimateDisk(serving *live.Live, partitions events.Partitions, logBytes uint64) (need, free uint64, err error) {
	free, err = serving.FreeDisk()
	present := serving.Holds()
	n := uint64(partitions.Len())

	// Assume that the partitions are on average as large as those of the generation that serves.
	need = replay.BuildSpace(serving.FileBytes() * n / max(1, uint64(present.Len())))

	st := serving.Status()
	if st.Cursor.Seq == 0 || st.State == store.Failed || present.Len() == 0 {
		// The generation that serves is empty, has failed or holds no partitions. Its files may be
		// only a part of what the next generation will have, so also estimate by the log.
		need = max(need, maxStoreBytesPerLogByte*logBytes*n/events.NumPartitions)
	}
	return need, free, err
}

// checkFree returns [replay.ErrDisk] if less disk is free than [Options.Margin].
func (r *rebuildState) checkFree() error {
	free, err := r.live.FreeDisk()
	if err != nil {
		return err
	}
	return replay.CheckFree(r.opts.Margin, free)
}
