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
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/paced"
	"github.com/skein-feed/skein/replay/worker"
)

// Options say where a shadow is folded from what.
type Options struct {
	// FS is the file system; nil means the disk.
	FS projections.FS
	// Dir is a directory of the shadow's own, below the data directory. What stands there is removed when it is opened and
	// when it is closed.
	Dir string
	// New returns a new instance of the projection, with the settings of the live store.
	New func() projections.Projection
	// Subscribe reads the log.
	Subscribe projections.SubscribeFunc
	// Disk says what the live store takes on disk, and how much is free where the shadow goes; nil disables it.
	Disk func() (store, free uint64, err error)
	// Memory is about how many bytes a shadow may take; 0 means 192 MiB.
	Memory int
	// Worker finishes the build of a shadow. If it is nil, this process does.
	Worker *worker.Command
	// LogSize returns how much there is of the log for a shadow; nil means that is not known.
	LogSize func(context.Context) replay.LogSize
	// Margin is how much disk stays free, in bytes; 0 means 256 MiB.
	Margin uint64
	// Hold is how long rows of both stores are compared at one position, which keeps on disk, and of the live store in memory
	// tables, what has been replaced since: then the comparison continues at a later one. 0: 10 minutes.
	Hold time.Duration
	// Pace holds back what is done while nothing waits for it.
	Pace replay.Pace
	// Progress is told; nil disables it.
	Progress *replay.Progress
	// Partitions are compared; nil means all, and the rows of the store as a whole.
	Partitions *projections.Partitions
	// Listed is how many differences a report lists; 0 means 100.
	Listed int
	// Logger gets what a person must see; nil means nothing.
	Logger *slog.Logger

	// projection is one of New, which folds nothing.
	projection projections.Projection
	// compareTime says how long it takes to compare so many rows; nil means they are not.
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

const (
	// shadowMemory is less than a build takes, since a shadow is folded all the time, and read once.
	shadowMemory = 192 << 20
	// longestWork is what is taken for work at most of what a piece took: more was waiting for the log.
	longestWork = 250 * time.Millisecond
	// readBytes of the log are folded between two rests.
	readBytes = 256 << 10
)

// Shadow is a store of a projection made from the log alone, to be compared with the live one. It is built up to the first position
// that is wanted (package build), and folds on from there. It belongs to one goroutine.
type Shadow struct {
	opts Options
	// store is nil until it is built.
	store *projections.Store
	sub   projections.Subscription
	// ahead are envelopes that were read and are not to be folded yet.
	ahead []*events.Envelope
	// unlooked bytes of the log were folded since the free disk was looked at.
	unlooked int
	// rows is how many it had when it was built, compare how long it takes to compare them, as far as known.
	rows    int64
	compare time.Duration
}

// OpenShadow makes an empty shadow. It fails with [replay.ErrDisk] where the disk has not what it takes.
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

// Seq returns up to where the shadow is folded.
func (s *Shadow) Seq() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.Cursor().Seq
}

// View returns the rows of the shadow, which must have been folded to some sequence.
func (s *Shadow) View() (*projections.View, error) { return s.store.View() }

// FoldTo folds everything up to a sequence, and nothing after it. It waits until the log is there: until the sequence or a
// later one has been read. The shadow must not be beyond it.
func (s *Shadow) FoldTo(ctx context.Context, seq uint64, pace replay.Pace) error {
	if s.store == nil {
		return s.build(ctx, seq, pace)
	}
	if at := s.Seq(); at > seq {
		return fmt.Errorf("verify: the shadow is at %d, beyond %d", at, seq)
	}
	return s.read(ctx, s.Seq(), seq, pace, s.fold)
}

// build makes the store, up to a sequence.
func (s *Shadow) build(ctx context.Context, seq uint64, pace replay.Pace) (err error) {
	o := paced.Options{
		Pace: pace, Progress: s.opts.Progress, Head: seq, Worker: s.opts.Worker,
		Check: s.opts.checkFree, After: s.opts.compareTime, Options: build.Options{
			FS: s.opts.FS, Dir: s.opts.FS.PathJoin(s.opts.Dir, s.opts.projection.Name(), "000001"), New: s.opts.New,
			Partitions: s.opts.Partitions, Memory: s.opts.Memory, Workers: 1,
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
	s.store, err = projections.Open(projections.Options{
		FS: s.opts.FS, Dir: s.opts.Dir, Projection: s.opts.New(), Partitions: s.opts.Partitions, Logger: s.opts.Logger,
	})
	return err
}

// read folds the log from a sequence up to another.
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
			return nil // the next one is beyond
		}
		if err := pace.Rest(ctx, min(time.Since(began), longestWork)); err != nil {
			return err
		}
	}
	return nil
}

// fold folds envelopes into the store, and looks at the free disk now and then.
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
