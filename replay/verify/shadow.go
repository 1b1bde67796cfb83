package verify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/paced"
	"github.com/skein-feed/skein/replay/worker"
)

// Options say how a shadow is built and how it is compared with the live store.
type Options struct {
	// FS is the file system; nil means the disk.
	FS store.FS
	// Dir is the directory of the shadow. OpenShadow and Close remove it with everything in it, so
	// no other shadow that exists at the same time may have it.
	Dir string
	// New returns a new instance of the projection, with the settings of the live store. Several
	// goroutines may call it at once.
	New func() projections.Projection
	// Subscribe subscribes to the log. The shadow reads the log from its start.
	Subscribe store.SubscribeFunc
	// FreeDisk returns how many bytes of disk are free at Dir. If it is nil, the free disk is not
	// checked. A build calls FreeDisk after every few thousand events, so it must be fast.
	// StoreBytes returns the size of the live store in bytes. It must be set if FreeDisk is.
	FreeDisk   func() (uint64, error)
	StoreBytes func() uint64
	// Memory is about how many bytes of memory the build of a shadow takes; 0 means 192 MiB. The
	// shadow takes less once it is built.
	Memory int
	// Worker starts the process that finishes the build of a shadow. If Worker is nil, this process
	// finishes it.
	Worker *worker.Command
	// LogSize returns the size of the log that the shadow reads, for the progress; nil means that
	// the size is unknown.
	LogSize func(context.Context) replay.LogSize
	// Margin is how many bytes of disk must stay free for the service; 0 means 256 MiB.
	Margin uint64
	// Hold is how long rows are compared with one view of the live store; 0 means 10 minutes. Then
	// the comparison continues with a new view, at the position that the live store has by then. An
	// open view costs space: deleted and replaced rows that it reads stay on disk, and memtables of
	// the live store stay in memory.
	Hold time.Duration
	// Pace limits the work of building, catching up, comparing, repairing, and checking files. It
	// does not limit the last few hundred envelopes that a shadow folds while a view of the live
	// store is open or the live fold is stopped. The share is raised while the shadow cannot catch
	// up with the live store.
	Pace replay.Pace
	// Progress is updated as the work proceeds; it may be nil.
	Progress *replay.Progress
	// Partitions are the partitions to compare. The live store must hold all of them. nil means all
	// rows: those of the partitions that the live store holds, those that belong to no partition,
	// and rows of other partitions, which the live store should not have.
	Partitions *events.Partitions
	// Listed is how many differences a report lists at most; 0 means 100.
	Listed int
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger

	// projection is an instance that New has returned. It folds nothing: its methods tell the name
	// of the projection and the partitions of keys.
	projection projections.Projection
	// livePartitions are the partitions that the live store held when the verification began. nil
	// means all; Verify and Repair always set it.
	livePartitions *events.Partitions
	// storeClosing is closed when the store of the view that is compared fails or begins to close.
	// The store cannot close before this view is closed, so the comparison must then stop soon. It
	// is nil before the first view is taken, and in Compare.
	storeClosing <-chan struct{}
	// estimateCompareTime estimates how long the comparison of this many rows takes. It is nil if
	// the caller has not called Verify or Repair; the time then counts as 0.
	estimateCompareTime func(ctx context.Context, rows int64) time.Duration
}

// setDefaults sets projection, and gives fields that the caller has left out their defaults.
func (o *Options) setDefaults() {
	o.projection = o.New()
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Listed <= 0 {
		o.Listed = 100
	}
	if o.Hold <= 0 {
		o.Hold = 10 * time.Minute
	}
	if o.Margin == 0 {
		o.Margin = 256 << 20
	}
	if o.Memory == 0 {
		o.Memory = shadowMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// shadowPartitions returns the partitions that the shadow is built for; nil means all.
func (o *Options) shadowPartitions() *events.Partitions {
	if o.Partitions != nil {
		return o.Partitions
	}
	return o.livePartitions
}

const (
	// shadowMemory is the default of Options.Memory. It is less than the default of package build,
	// because the auditor builds one shadow after the other while the service runs.
	shadowMemory = 192 << 20
	// maxWork limits the rest after one piece of work: if the piece took longer than maxWork, the
	// rest is as long as after maxWork. The time of a piece includes the wait for the log, which is
	// not work. One piece of real work is assumed to take no longer than maxWork.
	maxWork = 250 * time.Millisecond
	// maxReadBytes is about how many bytes of the log are folded between two rests.
	maxReadBytes = 256 << 10
)

// Shadow is a store of a projection that is made from the log alone, to be compared with the live
// store. The first call of FoldTo makes the store with package build. Each later call folds
// envelopes into the store, as a live store does. Only one goroutine may use a Shadow.
type Shadow struct {
	opts Options
	// store is nil until the first call of FoldTo has built it.
	store *store.Store
	// sub reads the log, for the build and for all later folds.
	sub store.Subscription
	// unfolded are the envelopes that were read from sub but not folded, because they come after
	// the sequence to which FoldTo was last called.
	unfolded []*events.Envelope
	// uncheckedBytes is how many bytes of the log were folded into the built store since
	// foldEnvelopes last checked the free disk.
	uncheckedBytes int
	// builtRows is the number of rows that the build has made. Later folds do not change it.
	// timeToCompare is the estimate of how long the comparison of these rows takes.
	builtRows     int64
	timeToCompare time.Duration
}

// OpenShadow returns a shadow that has folded nothing yet. The caller must close it. OpenShadow
// first removes what an earlier shadow has left in [Options.Dir]. It returns [replay.ErrDisk] if
// there is too little free disk.
func OpenShadow(o Options) (*Shadow, error) {
	o.setDefaults()
	if err := o.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("remove an earlier shadow: %w", err)
	}
	if err := o.checkDisk(); err != nil {
		return nil, err
	}
	sub, err := o.Subscribe(events.Cursor{})
	if err != nil {
		return nil, fmt.Errorf("subscribe to the log: %w", err)
	}
	return &Shadow{opts: o, sub: sub}, nil
}

// Close closes the shadow and deletes its files. The caller must close all views first.
func (s *Shadow) Close() (err error) {
	s.sub.Close()
	if s.store != nil {
		err = s.store.Close()
	}
	return errors.Join(err, s.opts.FS.RemoveAll(s.opts.Dir))
}

// Seq returns the last sequence that the shadow has folded. It is 0 before the first call of
// FoldTo. It may be less than the sequence to which FoldTo was called, if the log that the shadow
// reads lacks that sequence.
func (s *Shadow) Seq() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.Cursor().Seq
}

// View returns a view of the shadow. A call of FoldTo must have succeeded before; otherwise View
// panics.
func (s *Shadow) View() (*projections.View, error) {
	return s.store.View()
}

// FoldTo folds everything up to the sequence seq, and nothing after it, at the given pace. It waits
// until the log has that sequence or a later one. It returns an error if the shadow has already
// folded a later sequence. After an error, the caller should close the shadow and not call FoldTo
// again: the envelopes that a build has read are lost if the build fails.
func (s *Shadow) FoldTo(ctx context.Context, seq uint64, pace replay.Pace) error {
	if s.store == nil {
		return s.buildStore(ctx, seq, pace)
	}

	if at := s.Seq(); at > seq {
		return fmt.Errorf("verify: the shadow is at %d, beyond %d", at, seq)
	}
	return s.readAndFold(ctx, s.Seq(), seq, pace, s.foldEnvelopes)
}

// buildStore builds the store up to the sequence seq with package build, and opens it.
func (s *Shadow) buildStore(ctx context.Context, seq uint64, pace replay.Pace) (err error) {
	o := paced.Options{
		Pace:     pace,
		Progress: s.opts.Progress,
		Head:     seq,
		Worker:   s.opts.Worker,
		Check:    s.opts.checkFree,
		After:    s.opts.estimateCompareTime,
		Options: build.Options{
			FS:         s.opts.FS,
			Dir:        s.opts.FS.PathJoin(s.opts.Dir, s.opts.projection.Name(), "000001"),
			New:        s.opts.New,
			Partitions: s.opts.shadowPartitions(),
			Memory:     s.opts.Memory,
			Workers:    1, // the build may take one core only
			Temporary:  true,
		},
	}
	if s.opts.LogSize != nil {
		o.Log = s.opts.LogSize(ctx)
	}

	b, err := paced.New(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	add := func(envs []*events.Envelope) error { return b.Add(ctx, envs) }
	if err := s.readAndFold(ctx, 0, seq, pace, add); err != nil {
		return err
	}
	if err := b.Finish(ctx); err != nil {
		return err
	}
	s.builtRows = b.Rows()
	s.timeToCompare = b.After()

	// The comparison reads each block once, so a cache does not help it. A cache helps only to fold
	// what comes after seq, which is little, so the cache can be small.
	memory := s.opts.Memory
	cache := store.NewCache(int64(memory / 4))
	defer cache.Unref() // the store has its own reference
	s.store, err = store.Open(store.Options{
		FS:         s.opts.FS,
		Dir:        s.opts.Dir,
		Projection: s.opts.New(),
		Partitions: s.opts.shadowPartitions(),
		Logger:     s.opts.Logger,
		Cache:      cache,
		Bounds:     store.Bounds{FlushBytes: memory / 32, KeepBytes: memory / 64},
	})
	return err
}

// readAndFold reads the envelopes after the sequence at, up to and including the sequence seq, and
// calls fold with some of them at a time. at must be the last sequence that was folded. readAndFold
// rests after each piece. It ends when it has folded seq, or when it has read a later envelope.
// What it has read after seq stays in s.unfolded for the next call.
func (s *Shadow) readAndFold(
	ctx context.Context, at, seq uint64, pace replay.Pace, fold func([]*events.Envelope) error,
) error {
	for at < seq {
		began := time.Now()
		if len(s.unfolded) == 0 {
			envs, err := s.sub.Next(ctx, maxReadBytes)
			if err != nil {
				return err
			}
			s.unfolded = envs
		}

		n := 0
		for n < len(s.unfolded) && s.unfolded[n].Seq() <= seq {
			n++
		}
		if n > 0 {
			if err := fold(s.unfolded[:n]); err != nil {
				return fmt.Errorf("fold the shadow: %w", err)
			}
			at = s.unfolded[n-1].Seq()
		}

		s.unfolded = s.unfolded[n:]
		if len(s.unfolded) > 0 {
			return nil // the next envelope comes after seq
		}
		if err := pace.Rest(ctx, min(time.Since(began), maxWork)); err != nil {
			return err
		}
	}
	return nil
}

// foldEnvelopes folds envelopes into the store after the build. It checks the free disk after every
// [replay.DiskPeriod] bytes of the log.
func (s *Shadow) foldEnvelopes(envs []*events.Envelope) error {
	before := s.Seq()
	if err := s.store.Fold(envs); err != nil {
		return err
	}
	s.opts.Progress.Add(s.Seq() - before)
	for _, env := range envs {
		s.uncheckedBytes += env.Bytes
	}

	if s.uncheckedBytes < replay.DiskPeriod {
		return nil
	}
	s.uncheckedBytes = 0
	return s.opts.checkFree()
}
