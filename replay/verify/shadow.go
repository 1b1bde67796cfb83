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

// Options say how a shadow is built and compared.
type Options struct {
	// FS is the file system; nil means the disk.
	FS store.FS
	// Dir is the shadow's directory, below the data directory. It is removed when the shadow is opened and when it is closed.
	Dir string
	// New returns a new instance of the projection, with the settings of the live store.
	New func() projections.Projection
	// Subscribe reads the log.
	Subscribe store.SubscribeFunc
	// Disk returns the size of the live store on disk, and the free disk where the shadow goes, both in bytes; nil disables the check.
	Disk func() (store, free uint64, err error)
	// Memory is about how many bytes of memory a shadow may take; 0 means 192 MiB.
	Memory int
	// Worker finishes the build of a shadow. If it is nil, this process does.
	Worker *worker.Command
	// LogSize returns the size of the log that the shadow reads; nil means that it is unknown.
	LogSize func(context.Context) replay.LogSize
	// Margin is the disk that must stay free, in bytes; 0 means 256 MiB.
	Margin uint64
	// Hold is the longest time for which rows are compared at one position; then the comparison continues at a later one. A view keeps
	// replaced rows on disk, and those of the live store in memtables too. 0 means 10 minutes.
	Hold time.Duration
	// Pace limits all work during which nothing waits for the shadow.
	Pace replay.Pace
	// Progress gets the progress; nil disables it.
	Progress *replay.Progress
	// Partitions are the partitions to compare, which the live store must hold; nil means all that it holds, and the rows of the store as a
	// whole.
	Partitions *events.Partitions
	// Listed is the number of differences that a report lists; 0 means 100.
	Listed int
	// Logger gets messages for people; nil disables them.
	Logger *slog.Logger

	// projection is an instance of New that folds nothing.
	projection projections.Projection
	// held are the partitions of the live store; nil means all.
	held *events.Partitions
	// down is closed when the live store is to be closed, which waits for the view that is compared.
	down <-chan struct{}
	// compareTime estimates how long it takes to compare this many rows; nil means that no comparison follows.
	compareTime func(ctx context.Context, rows int64) time.Duration
}

func (o *Options) fill() {
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

// shadowed returns the partitions of the shadow; nil means all.
func (o *Options) shadowed() *events.Partitions {
	if o.Partitions != nil {
		return o.Partitions
	}
	return o.held
}

const (
	// shadowMemory is less than a rebuild takes, since an auditor builds shadows continuously.
	shadowMemory = 192 << 20
	// longestWork bounds the time of a piece that counts as work, for which the pace demands a rest. The rest of a longer one was spent
	// waiting for the log.
	longestWork = 250 * time.Millisecond
	// readBytes is the number of bytes of the log that are folded between two rests.
	readBytes = 256 << 10
)

// Shadow is a store of a projection that is made from the log alone, for comparison with the live store. Package build makes it up to the
// first position that is asked for; from there it folds as a live store does. It belongs to one goroutine.
type Shadow struct {
	opts Options
	// store is nil before the first build.
	store *store.Store
	sub   store.Subscription
	// ahead are envelopes that were read but are after the position to which the shadow was to fold.
	ahead []*events.Envelope
	// unlooked is the number of bytes of the log folded since the last check of the free disk.
	unlooked int
	// rows is the number of rows when the store was built, compare the estimate of how long it takes to compare them.
	rows    int64
	compare time.Duration
}

// OpenShadow returns an empty shadow, which the caller must close. It returns [replay.ErrDisk] if the free disk does not suffice.
func OpenShadow(o Options) (*Shadow, error) {
	o.fill()
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

// Close removes the shadow. Its views must be closed.
func (s *Shadow) Close() (err error) {
	s.sub.Close()
	if s.store != nil {
		err = s.store.Close()
	}
	return errors.Join(err, s.opts.FS.RemoveAll(s.opts.Dir))
}

// Seq returns the last sequence that the shadow has folded.
func (s *Shadow) Seq() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.Cursor().Seq
}

// View returns a view of the shadow. FoldTo must have been called before.
func (s *Shadow) View() (*projections.View, error) { return s.store.View() }

// FoldTo folds everything up to a sequence, and nothing after it. It waits until the log has that sequence or a later one. The shadow must
// not be beyond the sequence.
func (s *Shadow) FoldTo(ctx context.Context, seq uint64, pace replay.Pace) error {
	if s.store == nil {
		return s.build(ctx, seq, pace)
	}
	if at := s.Seq(); at > seq {
		return fmt.Errorf("verify: the shadow is at %d, beyond %d", at, seq)
	}
	return s.read(ctx, s.Seq(), seq, pace, s.fold)
}

// build makes the store up to a sequence, by package build.
func (s *Shadow) build(ctx context.Context, seq uint64, pace replay.Pace) (err error) {
	o := paced.Options{
		Pace: pace, Progress: s.opts.Progress, Head: seq, Worker: s.opts.Worker,
		Check: s.opts.checkFree, After: s.opts.compareTime, Options: build.Options{
			FS: s.opts.FS, Dir: s.opts.FS.PathJoin(s.opts.Dir, s.opts.projection.Name(), "000001"), New: s.opts.New,
			Partitions: s.opts.shadowed(), Memory: s.opts.Memory, Workers: 1, Temporary: true,
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
	if err := s.read(ctx, 0, seq, pace, func(envs []*events.Envelope) error { return b.Add(ctx, envs) }); err != nil {
		return err
	}
	if err := b.Finish(ctx); err != nil {
		return err
	}
	s.rows, s.compare = b.Rows(), b.After()
	// The comparison reads each block once, so a cache is of use for the rest of the log alone.
	memory := s.opts.Memory
	cache := store.NewCache(int64(memory / 4))
	defer cache.Unref() // the store has its own reference
	s.store, err = store.Open(store.Options{
		FS: s.opts.FS, Dir: s.opts.Dir, Projection: s.opts.New(), Partitions: s.opts.shadowed(), Logger: s.opts.Logger, Cache: cache,
		Bounds: store.Bounds{FlushBytes: memory / 32, KeepBytes: memory / 64},
	})
	return err
}

// read reads the log from the sequence at up to seq, and passes envelopes to fold.
func (s *Shadow) read(ctx context.Context, at, seq uint64, pace replay.Pace, fold func([]*events.Envelope) error) error {
	for at < seq {
		began := time.Now()
		if len(s.ahead) == 0 {
			envs, err := s.sub.Next(ctx, readBytes)
			if err != nil {
				return err
			}
			s.ahead = envs
		}
		n := 0
		for n < len(s.ahead) && s.ahead[n].Seq() <= seq {
			n++
		}
		if n > 0 {
			if err := fold(s.ahead[:n]); err != nil {
				return fmt.Errorf("fold the shadow: %w", err)
			}
			at = s.ahead[n-1].Seq()
		}
		s.ahead = s.ahead[n:]
		if len(s.ahead) > 0 {
			return nil // the next envelope is beyond seq
		}
		if err := pace.Rest(ctx, min(time.Since(began), longestWork)); err != nil {
			return err
		}
	}
	return nil
}

// fold folds envelopes into the store, and checks the free disk after every [replay.DiskPeriod] bytes.
func (s *Shadow) fold(envs []*events.Envelope) error {
	before := s.Seq()
	if err := s.store.Fold(envs); err != nil {
		return err
	}
	s.opts.Progress.Add(s.Seq() - before)
	for _, env := range envs {
		s.unlooked += env.Bytes
	}
	if s.unlooked < replay.DiskPeriod {
		return nil
	}
	s.unlooked = 0
	return s.opts.checkFree()
}
