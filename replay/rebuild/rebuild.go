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

// SubscribeFunc subscribes to the log after a cursor. Envelopes without an event of these kinds may be left out. The
// empty cursor is the beginning of the log.
type SubscribeFunc func(from events.Cursor, kinds events.KindSet) (store.Subscription, error)

// Bounds of [Options.Memory].
const (
	LeastMemory = 16 << 20
	MostMemory  = 4 << 30
)

const (
	// perLogByte bounds the bytes that a generation takes for each byte of the log. It counts where the size of the one that serves says
	// little: it is empty or damaged.
	perLogByte = 2
	// readBytes of the log are read at a time.
	readBytes = 8 << 20
	// near is the lag in envelopes at which the fold of the live runtime takes over. It is not throttled, so there must not be much left
	// for it, in bytes either.
	near      = 2048
	nearBytes = 1 << 20
	// flushPeriod is how long passes between two looks at the free disk, if not replay.DiskPeriod of the log does before. Each
	// flushes, so that not much is folded again after a crash.
	flushPeriod = time.Minute
)

// Options of a rebuild. The zero value rebuilds as fast as it can.
type Options struct {
	// Pace leaves the rest of the time to what serves.
	Pace replay.Pace
	// Memory is how many bytes a build takes, about, from [LeastMemory] to [MostMemory]; 0 means 512 MiB.
	Memory int
	// Worker finishes a build. If it is nil, this process does.
	Worker *worker.Command
	// Margin is how much disk stays free, in bytes; 0 means 256 MiB.
	Margin uint64
	// LogBytes is the size of the log, for projections whose size is not known; 0 means not known either.
	LogBytes uint64
	// LogSize returns the part of the log that a fold of these kinds reads; nil means that it is unknown.
	LogSize func(context.Context, events.KindSet) replay.LogSize
	// Turn is held while partitions are built from the log, so that projections that are resized at the same time share Memory; nil
	// means that this one is alone.
	Turn sync.Locker
	// Sources returns the nodes that may have the rows of partitions that [Resize] adds; nil means that there are none.
	Sources func() []Source
	// Progress gets the progress; nil disables it.
	Progress *replay.Progress
	// Paused is called with the time for which the cut-over has stopped the fold; nil disables it.
	Paused func(time.Duration)
	// Logger gets what a person must see; nil means nothing.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Margin == 0 {
		o.Margin = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Rebuild builds the next generation of a projection, beside the one that serves and with the same partitions, and cuts over to it.
// [live.Live.Run] must be running, so that the new generation follows the log to the moment of the cut-over and on. When it fails,
// or the context ends, what was built is deleted: the next Rebuild begins anew. The report is for people.
func Rebuild(ctx context.Context, serving *live.Live, subscribe SubscribeFunc, o Options) (report string, err error) {
	o = o.withDefaults()
	if err := checkDisk(serving, serving.Holds(), o); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}
	r := run{live: serving, o: o, began: time.Now()}
	if r.next, err = serving.BuildNext(ctx, func(dir string) error { return r.build(ctx, subscribe, dir, serving.Holds(), nil) }); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}
	if report, err = r.all(ctx, subscribe); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", serving.Name(), err)
	}
	return report, nil
}

// Rollback goes back to the previous generation: it folds what that has missed, and cuts over to it. The generation that
// served until then becomes the previous one. It fails with [live.ErrNoPrevious] if there is none, and with
// [projections.ErrFingerprint] if the previous one is of another version of the program, or has other settings: then that
// version, or those settings, are to be started first.
func Rollback(ctx context.Context, serving *live.Live, subscribe SubscribeFunc, o Options) (report string, err error) {
	o = o.withDefaults()
	next, err := serving.OpenPrevious(ctx)
	if err != nil {
		return "", fmt.Errorf("roll back %s: %w", serving.Name(), err)
	}
	r := run{live: serving, next: next, o: o, began: time.Now(), from: next.Cursor().Seq}
	if report, err = r.all(ctx, subscribe); err != nil {
		return "", fmt.Errorf("roll back %s: %w", serving.Name(), err)
	}
	return report, nil
}

// run is one rebuild or rollback.
type run struct {
	live *live.Live
	next *store.Store
	o    Options
	// began and from are the time and the sequence at which it began.
	began time.Time
	from  uint64
	// given is the number of partitions whose rows other nodes have given.
	given int
	// copied reports that the next generation begins as a copy of the one that serves.
	copied bool
	// envelopes and bytes of the log were folded.
	envelopes, bytes uint64
}

// all folds up to the present, and cuts over.
func (r *run) all(ctx context.Context, subscribe SubscribeFunc) (report string, err error) {
	before := r.live.Status()
	if err := r.catchUp(ctx, subscribe); err != nil {
		return "", errors.Join(err, r.close())
	}
	took, at := time.Since(r.began), r.next.Cursor().Seq
	pause, err := r.live.CutOver(ctx, r.next)
	if err != nil {
		return "", err
	}
	if r.o.Paused != nil {
		r.o.Paused(pause)
	}
	st := r.live.Status()
	report = fmt.Sprintf("generation %d serves in place of %d since %d, after %v: ", st.Generation, before.Generation,
		st.Cursor.Seq, time.Since(r.began).Round(time.Millisecond))
	if r.from > 0 {
		report += fmt.Sprintf("continued from %d, ", r.from)
	}
	return report + fmt.Sprintf("%d envelopes of the log passed in %v (%.0f/s), of which %d, %s, were read, %d more while it cut over; "+
		"cut over with a pause of %v, %s on disk",
		at-r.from, took.Round(time.Millisecond), float64(at-r.from)/max(took.Seconds(), 1e-6), r.envelopes, events.FormatSize(r.bytes),
		st.Cursor.Seq-min(at, st.Cursor.Seq), pause.Round(10*time.Microsecond),
		events.FormatSize(st.DiskBytes)), nil
}

// close closes what did not become live.
func (r *run) close() error {
	if err := r.live.CloseNext(r.next); !errors.Is(err, projections.ErrClosed) {
		return err
	}
	return nil
}

// catchUp folds the log until nearly nothing is left.
func (r *run) catchUp(ctx context.Context, subscribe SubscribeFunc) error {
	at := r.next.Cursor()
	sub, err := subscribe(at, kindsOf(r.next.Projection()))
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()
	r.o.Progress.StartPhase(replay.CatchingUp, "envelopes", sub.Head())
	r.o.Progress.SetDone(at.Seq)
	unlooked, flushed := 0, time.Now()
	for {
		head := sub.Head()
		r.o.Progress.SetTotal(head)
		if r.isNear(at.Seq, head) && r.shown(at.Seq) {
			return ctx.Err()
		}
		envs, err := sub.Next(ctx, readBytes)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := r.next.Fold(envs); err != nil {
			return err
		}
		at = envs[len(envs)-1].Cursor
		r.o.Progress.SetDone(at.Seq)
		r.envelopes += uint64(len(envs))
		for _, env := range envs {
			r.bytes += uint64(env.Bytes)
			unlooked += env.Bytes
		}
		if unlooked >= replay.DiskPeriod || time.Since(flushed) >= flushPeriod {
			unlooked, flushed = 0, time.Now()
			if err := errors.Join(r.checkFree(), r.next.Flush()); err != nil {
				return err
			}
		}
		if err := r.o.Pace.Rest(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

// kindsOf returns the kinds that a rebuild of a projection needs.
func kindsOf(p projections.Projection) events.KindSet {
	return events.Kinds(p.Kinds()...) | events.Kinds(events.BackfillClosed)
}

// isNear reports whether so little is left that the live fold may take over, if envelopes stay as large as they were.
func (r *run) isNear(seq, head uint64) bool {
	return seq >= head || r.envelopes > 0 && head-seq <= near && (head-seq)*(r.bytes/r.envelopes) <= nearBytes
}

// shown reports whether the next generation shows what a live one that does not continue has shown; one that continues is followed
// in the cut-over.
func (r *run) shown(seq uint64) bool {
	return seq >= r.live.Cursor().Seq || r.live.Status().State.CaughtUp()
}

// checkDisk refuses what would fill the disk.
func checkDisk(serving *live.Live, held events.Partitions, o Options) error {
	need, free, err := needed(serving, held, o.LogBytes)
	if err != nil {
		return fmt.Errorf("free disk: %w", err)
	}
	return replay.CheckRoom("a rebuild of "+serving.Name(), need+o.Margin, free)
}

// needed returns what a generation of some partitions takes while it is built, and what is free.
func needed(serving *live.Live, held events.Partitions, logBytes uint64) (need, free uint64, err error) {
	size, free, err := serving.Disk()
	of, n := serving.Holds(), uint64(held.Len())
	need = replay.Room(size * n / max(1, uint64(of.Len())))
	if st := serving.Status(); st.Cursor.Seq == 0 || st.State == store.Failed || of.Len() == 0 {
		// What is there may be only a part of what the next generation will be.
		need = max(need, perLogByte*logBytes*n/events.NumPartitions)
	}
	return need, free, err
}

// checkFree stops a build that would take the last of the disk from what serves.
func (r *run) checkFree() error {
	_, free, err := r.live.Disk()
	if err != nil {
		return err
	}
	return replay.CheckFree(r.o.Margin, free)
}
