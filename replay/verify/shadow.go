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
	"github.com/skein-feed/skein/replay"
)

// Options say where a shadow is folded from what.
type Options struct {
	// FS is the file system; nil: the disk.
	FS projections.FS
	// Dir is a directory of the shadow's own, below the data directory. What stands there is removed when it is opened and
	// when it is closed.
	Dir string
	// Projection is a new instance of the projection, with the settings of the live store. It is not shared with anything.
	Projection projections.Projection
	// Source reads the log.
	Source projections.Source
	// Disk tells what the live store takes on disk, and how much is free where the shadow goes; nil: nobody looks.
	Disk func() (store, free uint64, err error)
	// Memory is how many bytes a shadow may take, at least 16 MiB; more than 192 MiB, the default, are not used.
	Memory int
	// Margin is how much disk stays free, in bytes; 0: 256 MiB.
	Margin uint64
	// Hold is how long rows of both stores are compared at one position, which keeps on disk, and of the live store in memory
	// tables, what has been replaced since: then the comparison goes on at a later one. 0: 10 minutes.
	Hold time.Duration
	// Pace holds back what is done while nothing waits for it.
	Pace replay.Pace
	// Progress is told of envelopes, then of rows; nil: nobody is.
	Progress *replay.Progress
	// Partitions are compared; nil: all, and the rows of the store as a whole.
	Partitions []uint8
	// Listed is how many differences a report lists; 0: 100.
	Listed int
	// Logger gets what a person must see; nil: nothing.
	Logger *slog.Logger
}

func (o *Options) fill() {
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
	shadowMemory      = 192 << 20
	leastShadowMemory = 16 << 20
	shadowSublevels   = 16
	shadowPrefetch    = 1 << 15
	// longestWork is what is taken for work at the most of what a piece took: more was waiting for the log.
	longestWork = 250 * time.Millisecond
	// readBytes of the log are folded between two rests.
	readBytes = 256 << 10
)

// Shadow is a store of a projection that is folded from the start of the log, to be compared with the live one. It belongs to
// one goroutine.
type Shadow struct {
	opts  Options
	store *projections.Store
	sub   projections.Subscription
	// ahead are envelopes that were read and are not to be folded yet.
	ahead []*events.Envelope
	// unlooked bytes of the log were folded since the free disk was looked at.
	unlooked int
}

// OpenShadow makes an empty shadow. It fails with [replay.ErrDisk] where the disk has not what it takes.
func OpenShadow(o Options) (*Shadow, error) {
	o.fill()
	if err := o.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("remove an earlier shadow: %w", err)
	}
	size, err := o.checkDisk()
	if err != nil {
		return nil, err
	}
	store, err := projections.Open(projections.Options{
		FS: o.FS, Dir: o.Dir, Projection: o.Projection, Logger: o.Logger,
		Bounds: o.bounds(size),
	})
	if err != nil {
		return nil, err
	}
	sub, err := o.Source(store.Cursor())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to the log: %w", err), store.Close(), o.FS.RemoveAll(o.Dir))
	}
	return &Shadow{opts: o, store: store, sub: sub}, nil
}

// bounds of a shadow of a store of some size. Two memtables are common, and four the most. A quarter of the live store is two
// bytes of the filter for a key, or more.
func (o *Options) bounds(size uint64) projections.Bounds {
	memory := min(max(o.Memory, leastShadowMemory), shadowMemory)
	return projections.Bounds{
		FlushBytes: memory / 12, BatchBytes: memory / 48, KeepBytes: memory / 3, CacheBytes: memory / 6,
		FilterBytes: int(min(uint64(memory/6), size/4)), Sublevels: shadowSublevels,
		PrefetchEvents: shadowPrefetch * (memory >> 20) / (shadowMemory >> 20),
	}
}

// Close removes the shadow. Its views must be closed.
func (s *Shadow) Close() error {
	s.sub.Close()
	return errors.Join(s.store.Close(), s.opts.FS.RemoveAll(s.opts.Dir))
}

// Seq returns up to where the shadow is folded.
func (s *Shadow) Seq() uint64 { return s.store.Cursor().Seq }

// View returns the rows of the shadow.
func (s *Shadow) View() (*projections.View, error) { return s.store.View() }

// FoldTo folds everything up to a sequence, and nothing after it. It waits until the log is there: until the sequence or a
// later one has been read. The shadow must not be beyond it.
func (s *Shadow) FoldTo(ctx context.Context, seq uint64, pace replay.Pace) error {
	at := s.Seq()
	if at > seq {
		return fmt.Errorf("verify: the shadow is at %d, beyond %d", at, seq)
	}
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
			if err := s.store.Fold(s.ahead[:n]); err != nil {
				return fmt.Errorf("fold the shadow: %w", err)
			}
			if err := s.look(s.ahead[:n]); err != nil {
				return err
			}
			now := s.ahead[n-1].Seq()
			s.opts.Progress.Add(now - at)
			at = now
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

// look looks at the free disk now and then.
func (s *Shadow) look(folded []*events.Envelope) error {
	for _, env := range folded {
		s.unlooked += env.Bytes
	}
	if s.unlooked < replay.DiskPeriod {
		return nil
	}
	s.unlooked = 0
	return s.opts.checkFree()
}
