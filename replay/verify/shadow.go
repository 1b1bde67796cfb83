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
	// Dir is the shadow's directory, below the data directory. It is removed when the shadow is
	// opened and when it is closed.
	Dir string
	// New returns a new instance of the projection, with the settings of the live store.
	New func() projections.Projection
	// Subscribe subscribes to the log.
	Subscribe store.SubscribeFunc
	// FreeDisk returns the free disk at Dir in bytes, and StoreBytes the size of the live store.
	// nil disables the checks of the free disk. A build checks after each partition, so FreeDisk
	// must be fast.
	FreeDisk   func() (uint64, error)
	StoreBytes func() uint64
	// Memory is about how many bytes of memory a shadow takes; 0 means 192 MiB.
	Memory int
	// Worker starts the process that finishes the build of a shadow. If Worker is nil, this process
	// finishes it.
	Worker *worker.Command
	// LogSize returns the size of the log that the shadow reads; nil means unknown.
	LogSize func(context.Context) replay.LogSize
	// Margin is how many bytes of disk must stay free; 0 means 256 MiB.
	Margin uint64
	// Hold is for how long rows are compared at one position. Then the comparison continues at a
	// later position, because an open view keeps replaced rows on disk, and a view of the live
	// store keeps its memtables, too. 0 means 10 minutes.
	Hold time.Duration
	// Pace limits all work except that for which the live store waits.
	Pace replay.Pace
	// Progress is updated as the work proceeds; it may be nil.
	Progress *replay.Progress
	// Partitions are the partitions to compare, which the live store must hold. nil means all that
	// it holds, and also the rows of the store as a whole.
	Partitions *events.Partitions
	// Listed is how many differences a report lists; 0 means 100.
	Listed int
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger

	// projection is an instance of New that folds nothing.
	projection projections.Projection
	// livePartitions are the partitions of the live store; nil means all.
	livePartitions *events.Partitions
	// storeClosing is closed when the live store is to be closed. Closing waits for the view that
	// is compared, so it must end soon.
	storeClosing <-chan struct{}
	// estimateCompareTime estimates how long the comparison of this many rows takes; nil means that
	// no comparison follows.
	estimateCompareTime func(ctx context.Context, rows int64) time.Duration
}

// setDefaults sets the projection and the defaults.
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

// shadowPartitions returns the partitions of the shadow; nil means all.
func (o *Options) shadowPartitions() *events.Partitions {
	if o.Partitions != nil {
		return o.Partitions
	}
	return o.livePartitions
}

const (
	// shadowMemory is less than what a rebuild takes, because an auditor builds shadows
	// continuously.
	shadowMemory = 192 << 20
	// maxWork limits how much of the time of one piece counts as work, for which the pace demands a
	// rest. A piece that takes longer has spent the rest of its time waiting for the log.
	maxWork = 250 * time.Millisecond
	// maxReadBytes is how many bytes of the log are folded between two rests.
	maxReadBytes = 256 << 10
)

// Shadow is a store of a projection that is made from the log alone, to be compared with the live
// store. Package build makes it up to the first position to which FoldTo is called. From there, it
// folds as a live store does. Only one goroutine may use a Shadow.
type Shadow struct {
	opts Options
	// store is nil before the first build.
	store *store.Store
	sub   store.Subscription
	// unfolded are envelopes that were read and come after the position to which the shadow was
	// last folded.
	unfolded []*events.Envelope
	// uncheckedBytes is how many bytes of the log were folded since the last check of the free
	// disk.
	uncheckedBytes int
	// builtRows is the number of rows when the store was built. timeToCompare is the estimate of
	// how long their comparison takes.
	builtRows     int64
	timeToCompare time.Duration
}

// OpenShadow returns an empty shadow, which the caller must close. It returns [replay.ErrDisk] if
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

// Close deletes the shadow. Its views must be closed before.
func (s *Shadow) Close() (err error) {
	s.sub.Close()
	if s.store != nil {
		err = s.store.Close()
	}
	return errors.Join(err, s.opts.FS.RemoveAll(s.opts.Dir))
}

// Seq returns the last sequence that the shadow has folded; 0 before the first call of FoldTo.
func (s *Shadow) Seq() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.Cursor().Seq
}

// View returns a view of the shadow. FoldTo must have been called before.
func (s *Shadow) View() (*projections.View, error) {
	return s.store.View()
}

// FoldTo folds everything up to the sequence seq, and nothing after it. It waits until the log has
// that sequence or a later one. The shadow must not have passed seq already.
func (s *Shadow) FoldTo(ctx context.Context, seq uint64, pace replay.Pace) error {
	if s.store == nil {
		return s.buildStore(ctx, seq, pace)
	}

	if at := s.Seq(); at > seq {
		return fmt.Errorf("verify: the shadow is at %d, beyond %d", at, seq)
	}
	return s.readAndFold(ctx, s.Seq(), seq, pace, s.foldEnvelopes)
}

// buildStore builds the store up to a sequence with package build, and opens it.
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
			Workers:    1, // a shadow may take one core only
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

	// The comparison reads each block once. A cache helps only when the rest of the log is folded,
	// so it can be small.
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

// readAndFold reads the log from the sequence at to the sequence seq and calls fold with the
// envelopes. Envelopes after seq stay in s.unfolded.
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

// foldEnvelopes folds envelopes into the store. It checks the free disk after every
// [replay.DiskPeriod] bytes.
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
