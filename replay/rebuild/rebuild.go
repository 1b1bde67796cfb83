package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/replay"
)

// Source subscribes to the log after a cursor, for who folds these kinds only: what holds no other may be left out. The
// empty cursor is the beginning of the log.
type Source func(from events.Cursor, kinds events.KindSet) (projections.Subscription, error)

// Bounds of [Options.Memory]. The rows that are kept are found by 32 bits, so there is a most.
const (
	DefaultMemory = 512 << 20
	LeastMemory   = 16 << 20
	MostMemory    = 4 << 30
)

const (
	// bytesPerEvent of memory are one event whose rows are looked up beforehand: its keys and rows take a tenth of that.
	bytesPerEvent = 4 << 10
	// perLogByte is what a generation takes for each byte of the log, at most, where nothing is known of its size.
	perLogByte = 2
	// near is how many envelopes behind the head the live fold takes over, if they are not many bytes either: it is not
	// throttled, and its bounds are not those of a build.
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
	// Memory is how many bytes a build may take for rows and blocks of tables, with half as much for memtables, from
	// [LeastMemory] to [MostMemory]; 0 stands for [DefaultMemory].
	Memory int
	// Bounds are those of the build; zero: [Bulk] of the memory.
	Bounds projections.Bounds
	// Margin is how much disk stays free, in bytes; 0: 256 MiB.
	Margin uint64
	// LogBytes is the size of the log, for projections whose size is not known; 0: not known either.
	LogBytes uint64
	// Progress is told in envelopes; nil: nobody asks.
	Progress *replay.Progress
	// Paused is told for how long the cut-over stopped the fold; nil: nobody asks.
	Paused func(time.Duration)
	// Logger gets what a person must see; nil: nothing.
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

// Rebuild builds the next generation of a projection, beside the one that serves, and cuts over to it. One that was begun
// before is continued. [projections.Live.Run] must be running, so that the new generation follows the log to the moment of
// the cut-over and on.
//
// When the context ends, what is built stays for the next Rebuild ([projections.Live.Abandon] removes it). A fold that
// fails is of no use later: it is removed. The report is for people.
func Rebuild(ctx context.Context, live *projections.Live, source Source, o Options) (report string, err error) {
	o = o.withDefaults()
	need, err := checkDisk(live, o)
	if err != nil {
		return "", err
	}
	if o.Bounds == (projections.Bounds{}) {
		o.Bounds = Bulk(live.Projection(), o.Memory)
		// Two bytes for a key is what a quarter of its row is, or more.
		o.Bounds.FilterBytes = int(min(uint64(o.Bounds.FilterBytes), need/4+1<<16))
	}
	next, err := live.Build(ctx, o.Bounds)
	if err != nil {
		return "", fmt.Errorf("rebuild %s: %w", live.Name(), err)
	}
	r := run{live: live, next: next, o: o}
	if report, err = r.all(ctx, source, true); err != nil {
		return "", fmt.Errorf("rebuild %s: %w", live.Name(), err)
	}
	return report, nil
}

// Rollback goes back to the former generation: it folds what that has missed, and cuts over to it. The generation that
// served until then becomes the former one. It fails with [projections.ErrNoFormer] if there is none, and with
// [projections.ErrFingerprint] if the former one is of another version of the program, or has other settings: then that
// version, or those settings, are to be started first.
func Rollback(ctx context.Context, live *projections.Live, source Source, o Options) (report string, err error) {
	o = o.withDefaults()
	o.Bounds = projections.Bounds{} // there is not much to fold, and it serves with these
	next, err := live.Former(ctx, o.Bounds)
	if err != nil {
		return "", fmt.Errorf("roll back %s: %w", live.Name(), err)
	}
	r := run{live: live, next: next, o: o}
	if report, err = r.all(ctx, source, false); err != nil {
		return "", fmt.Errorf("roll back %s: %w", live.Name(), err)
	}
	return report, nil
}

// run is one rebuild or rollback.
type run struct {
	live *projections.Live
	next *projections.Store
	o    Options
	// envelopes and bytes of the log were folded.
	envelopes, bytes uint64
}

// all folds up to the present and cuts over. Reopen: the bounds of the build are not those of serving.
func (r *run) all(ctx context.Context, source Source, reopen bool) (report string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.leave())
		}
	}()
	from, before := r.live.Status(), r.next.Cursor().Seq
	began := time.Now()
	if err := r.catchUp(ctx, source); err != nil {
		return "", err
	}
	took, at := time.Since(began), r.next.Cursor().Seq
	compacting := time.Now()
	if reopen {
		if err := r.next.Compact(ctx); err != nil {
			return "", err
		}
		next, err := r.live.Reopen(r.next)
		if err != nil {
			return "", err
		}
		r.next = next
	}
	compacted := time.Since(compacting)
	pause, err := r.live.CutOver(ctx, r.next)
	if err != nil {
		return "", err
	}
	if r.o.Paused != nil {
		r.o.Paused(pause)
	}
	st := r.next.Status()
	report = fmt.Sprintf("generation %d serves in place of %d since %d, after %v: ", st.Generation, from.Generation, st.Cursor.Seq,
		time.Since(began).Round(time.Millisecond))
	if before > 0 {
		report += fmt.Sprintf("continued from %d, ", before)
	}
	return report + fmt.Sprintf("%d envelopes of the log passed in %v (%.0f/s), of which %d, %s, were read, %d more while it cut over; "+
		"compacted in %v, cut over with a pause of %v, %s on disk",
		at-before, took.Round(time.Millisecond), float64(at-before)/max(took.Seconds(), 1e-6), r.envelopes, events.SizeText(r.bytes),
		st.Cursor.Seq-min(at, st.Cursor.Seq), compacted.Round(time.Millisecond), pause.Round(10*time.Microsecond),
		events.SizeText(st.DiskBytes)), nil
}

// leave closes what did not become live. It is kept, unless the fold failed.
func (r *run) leave() error {
	if r.next.Status().State == projections.Failed {
		return r.live.Discard(r.next)
	}
	if err := r.live.Leave(r.next); !errors.Is(err, projections.ErrClosed) {
		return err
	}
	return nil
}

// catchUp folds the log until nearly nothing is left.
func (r *run) catchUp(ctx context.Context, source Source) error {
	kinds := events.Kinds(r.next.Projection().Kinds()...) | events.Kinds(events.BackfillClosed)
	at := r.next.Cursor()
	sub, err := source(at, kinds)
	if err != nil {
		return fmt.Errorf("subscribe to the log: %w", err)
	}
	defer sub.Close()
	r.o.Progress.Start("envelopes", sub.Head())
	r.o.Progress.Set(at.Seq)
	unlooked, flushed := 0, time.Now()
	for {
		head := sub.Head()
		r.o.Progress.Total(head)
		if r.isNear(at.Seq, head) && r.shown(at.Seq) {
			return ctx.Err()
		}
		envs, err := sub.Next(ctx, r.readBytes())
		if err != nil {
			return err
		}
		began := time.Now()
		if err := r.next.Fold(envs); err != nil {
			return err
		}
		at = envs[len(envs)-1].Cursor
		r.o.Progress.Set(at.Seq)
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

// isNear reports whether so little is left that the live fold may take over, if envelopes go on being as large as they were.
func (r *run) isNear(seq, head uint64) bool {
	return seq >= head || r.envelopes > 0 && head-seq <= near && (head-seq)*(r.bytes/r.envelopes) <= nearBytes
}

// shown reports whether the next generation shows what a live one that does not go on has shown; one that goes on is followed
// in the cut-over.
func (r *run) shown(seq uint64) bool {
	return seq >= r.live.Cursor().Seq || r.live.Status().State.CaughtUp()
}

func (r *run) readBytes() int {
	if n := r.o.Bounds.ReadBytes; n > 0 {
		return n
	}
	return 8 << 20
}

// checkDisk refuses what would fill the disk, and returns what the build takes in all.
func checkDisk(live *projections.Live, o Options) (need uint64, err error) {
	need, built, free, err := needed(live, o.LogBytes)
	if err != nil {
		return 0, fmt.Errorf("rebuild %s: free disk: %w", live.Name(), err)
	}
	return need, replay.CheckRoom("a rebuild of "+live.Name(), need-min(need, built)+o.Margin, free)
}

// needed returns what a rebuild takes in all, what of that is built already, and what is free.
func needed(live *projections.Live, logBytes uint64) (need, built, free uint64, err error) {
	size, built, free, err := live.Disk()
	need = replay.Room(size)
	if st := live.Status(); st.Cursor.Seq == 0 || st.State == projections.Failed {
		// What is there is perhaps only a part of it.
		need = max(need, perLogByte*logBytes)
	}
	return need, built, free, err
}

// checkFree stops a build that would take the last of the disk from what serves.
func (r *run) checkFree() error {
	_, _, free, err := r.live.Disk()
	if err != nil {
		return err
	}
	return replay.CheckFree(r.o.Margin, free)
}

// Bulk are the bounds of a build of a projection with so much memory (0: [DefaultMemory]). Nobody reads it yet and it may fold
// more again after a crash, so larger batches do.
//
// A filter, an eighth of the memory, keeps most look-ups from the tables, and the rows that the fold asks for again and again, as
// counts, stay in a half of it: with the default of some two million users. So there may be many tables, unless the fold walks over
// them, and those flushed first are compacted once, at the end. Where rows do not fit, those of many events are looked up together.
// A quarter is for blocks of tables: a build takes nothing from the cache of what serves. Up to four memtables of an eighth, or
// 64 MiB if that is less, come on top.
func Bulk(p projections.Projection, memory int) projections.Bounds {
	memory = min(max(cmp.Or(memory, DefaultMemory), LeastMemory), MostMemory)
	b := projections.Bounds{
		BatchBytes: min(16<<20, memory/32), FlushBytes: min(64<<20, memory/8), Sublevels: 48,
		KeepBytes: memory / 2, FilterBytes: memory / 8, CacheBytes: memory / 4, PrefetchEvents: memory / bytesPerEvent,
	}
	if _, ok := p.(projections.ListWalker); ok {
		b.Sublevels = 6
	}
	return b
}
