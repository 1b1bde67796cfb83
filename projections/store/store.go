package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/internal/overlay"
	"github.com/skein-feed/skein/projections/store/internal/storestate"
)

// FS is the file system under a store.
type FS = vfs.FS

// SyncDir makes durable which files a directory has.
func SyncDir(fs FS, name string) error { return disk.SyncDir(fs, name) }

// Cache is a block cache that several stores share.
type Cache = pebble.Cache

// NewCache returns a cache of so many bytes. Unref releases it when the last store that uses it is closed.
//
// The memtables of every store are charged to the cache: beside what should be cached for reading, leave
// 4 × [Bounds.FlushBytes] for each store that folds at full speed, or nothing is left to read from.
func NewCache(bytes int64) *Cache { return pebble.NewCache(bytes) }

// Options say where a store is and what folds into it.
type Options struct {
	// FS is the file system; nil means the disk.
	FS FS
	// Dir holds the stores of all projections: the rows of a generation are in Dir/<name>/<generation>.
	Dir string
	// Generation is the physical build, from 1; 0 means the live one, else 1.
	Generation uint32
	// Projection is what folds. It belongs to this store alone while the store is open.
	Projection projections.Projection
	// Partitions are those whose rows the store holds; nil means all.
	Partitions *events.Partitions
	// Partitioned opens a store with the partitions that it has on disk, and makes a new one with none. Partitions is not used then.
	Partitioned bool
	// Cache is shared by several stores (see [NewCache]), for blocks of tables and for memtables. Without one, this store has
	// its own, of 64 MiB for blocks.
	Cache *Cache
	// Logger gets what a person must see; nil means nothing. Everything else is for the Listener.
	Logger *slog.Logger
	// Listener gets what metrics are made of.
	Listener Listener
	// Bounds are sizes and times that change no row.
	Bounds Bounds
	// ReadOnly opens an existing store for reading, without folding or changing anything.
	ReadOnly bool
}

// Bounds are sizes and times. They change no row, so they are no part of the fingerprint. Zero: the default.
type Bounds struct {
	// BatchBytes of a memtable are committed together; rows take some 200 bytes beside key and value there. An envelope is cut where it
	// alone brings twice as much. Half of FlushBytes would be flushed by itself at once. Default: a fifth of FlushBytes.
	BatchBytes int
	// KeepBytes of rows that were folded last are kept in memory, so that folding them again reads no table: beyond it
	// those that were asked for, and of them those that were asked for last. Default 16 MiB, at most 2 GiB.
	KeepBytes int
	// FlushBytes is the size of a memtable. With FlushEvery it bounds what is folded again after a crash. Up to four
	// may wait to be flushed. Default 32 MiB.
	FlushBytes int
	// FlushEvery is how long rows may stay in memory only while Run is running. Default one minute.
	FlushEvery time.Duration
	// FlushEnvelopes is after how many envelopes without a row for this store the position alone is flushed; at the
	// latest it is after 10 × FlushEvery. Reading over them again costs little, so a quiet store writes little.
	// Default 65536.
	FlushEnvelopes int
	// ReadBytes of the log are asked for at once. Default 8 MiB.
	ReadBytes int
}

func (b Bounds) withDefaults() Bounds {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&b.KeepBytes, 16<<20)
	b.KeepBytes = min(b.KeepBytes, 2<<30)
	def(&b.FlushBytes, 32<<20)
	def(&b.BatchBytes, b.FlushBytes/5)
	def(&b.FlushEnvelopes, 1<<16)
	def(&b.ReadBytes, 8<<20)
	if b.FlushEvery <= 0 {
		b.FlushEvery = time.Minute
	}
	return b
}

// Store is one generation of one projection: the rows, and the position in the log that they reflect.
//
// One goroutine folds (Fold or Run); any number may read through views.
type Store struct {
	opts        Options
	dir         string
	generation  uint32
	fingerprint projections.Fingerprint
	// outdated says what the fingerprint of a store that is open for reading only has otherwise than the program.
	outdated string
	merger   *projections.Merger
	holding  projections.Holding
	fence    *fence
	db       *pebble.DB
	// open is set once the opening went well, broken when Pebble could not continue and must be left alone.
	opened, broken atomic.Bool
	// slowDisk counts operations that took the disk seconds.
	slowDisk atomic.Uint64
	// opening tells of errors of Pebble while it opens: how many, and one if they would continue for ever.
	opening struct {
		failures atomic.Int64
		hopeless chan error
	}
	// using is held by those who use db without holding folding or a view.
	dbUse sync.RWMutex

	// folding is held while rows or the position change, are flushed, or the store closes.
	folding sync.Mutex
	fold    fold
	flush   flusher
	// version is that of the rows that were last shown.
	version uint64
	// queryCache is nil if queries keep nothing of the rows.
	queryCache projections.QueryCache

	// current is the last whole position; nil before the first and once closed.
	current   atomic.Pointer[projections.WholePosition]
	snapshots overlay.Snapshots

	viewWaiters viewWaiters
	state       storestate.Machine
}

// Open opens the store of a projection, or makes an empty one.
//
// It fails with [projections.ErrFingerprint] if the store was built by another version of the fold or with other settings, and with [projections.ErrPartial] if
// it is to hold all partitions and does not.
func Open(opts Options) (*Store, error) {
	opts.Bounds = opts.Bounds.withDefaults()
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Logger = opts.Logger.With("projection", opts.Projection.Name())
	if opts.Cache == nil {
		opts.Cache = NewCache(int64(64<<20 + maxMemtables*opts.Bounds.FlushBytes))
		defer opts.Cache.Unref() // Pebble has its own reference
	}
	if opts.Partitions = projections.NilIfAll(opts.Partitions); opts.Partitioned {
		opts.Partitions = &events.Partitions{}
	}
	s := &Store{
		opts: opts, fingerprint: projections.FingerprintOfPartitions(opts.Projection, opts.Partitions), merger: mergerOf(opts.Projection), fence: &fence{fs: opts.FS},
		queryCache: newQueryCache(opts.Projection), holding: projections.Holding{Projection: opts.Projection, Held: opts.Partitions},
	}
	s.state.Init(opts.Listener.StateChanged)
	s.flush.init()
	s.viewWaiters.init()
	var err error
	if s.generation, err = pickGeneration(opts); err != nil {
		return nil, err
	}
	s.dir = GenerationDir(opts, s.generation)
	if err := disk.CheckWhole(opts.FS, s.dir); err != nil {
		return nil, fmt.Errorf("open the store of %s: %w", opts.Projection.Name(), err)
	}
	if s.db, err = openPebble(s); err != nil {
		return nil, fmt.Errorf("open the store of %s in %s: %w", opts.Projection.Name(), s.dir, err)
	}
	if err = s.load(); err != nil {
		s.fold.batch.Release() // loading has read rows through it
		_ = s.db.Close()       // the first error is the cause
		return nil, fmt.Errorf("open the store of %s in %s: %w", opts.Projection.Name(), s.dir, err)
	}
	s.opened.Store(true)
	return s, nil
}

// GenerationDir returns the directory of a generation of the projection of some options.
func GenerationDir(opts Options, generation uint32) string {
	return opts.FS.PathJoin(opts.Dir, opts.Projection.Name(), fmt.Sprintf("%06d", generation))
}

// pickGeneration returns the generation asked for, else the live one, else 1.
func pickGeneration(opts Options) (uint32, error) {
	pick := opts.Generation
	if pick == 0 {
		g, _, err := disk.ReadGenerations(opts.FS, opts.FS.PathJoin(opts.Dir, opts.Projection.Name()))
		if err != nil {
			return 0, err
		}
		pick = g.Live
	}
	if opts.ReadOnly {
		if _, err := opts.FS.Stat(GenerationDir(opts, pick)); err != nil {
			return 0, fmt.Errorf("%w: %s in %s", projections.ErrNoStore, opts.Projection.Name(), opts.Dir)
		}
	}
	return pick, nil
}

// load reads the rows of the runtime, or writes the first ones.
func (s *Store) load() error {
	if err := s.checkFingerprint(); err != nil {
		return err
	}
	if err := s.fold.load(s); err != nil {
		return err
	}
	onDisk := s.fold.cursor
	s.flush.flushed.Store(&onDisk)
	s.fold.publishIfWhole()
	return nil
}

// Name returns the name of the projection.
func (s *Store) Name() string { return s.opts.Projection.Name() }

// Projection returns what folds into the store.
func (s *Store) Projection() projections.Projection { return s.opts.Projection }

// Dir returns the directory that has the files of the store.
func (s *Store) Dir() string { return s.dir }

// Holds returns the partitions whose rows the store has. They never change.
func (s *Store) Holds() events.Partitions { return s.holding.Partitions() }

// Cursor returns where the last whole envelope ends: a reader continues from there.
func (s *Store) Cursor() events.Cursor {
	s.folding.Lock()
	defer s.folding.Unlock()
	return s.fold.cursor
}

// closeWait is how long Close waits for views that are open.
const viewGracePeriod = 10 * time.Second

// WaitFor blocks until a view shows everything up to seq. It fails with the error of the context, or with
// [projections.ErrStopped] when the projection will not get there: it failed, or Run has ended; with [events.ErrHole] while the fold is
// held in front of a hole.
func (s *Store) WaitFor(ctx context.Context, seq uint64) error { return s.state.WaitFor(ctx, seq) }

// Close writes rows that are only in memory to disk, and closes the store. A failed store drops its rows in memory: they are
// folded again; if the storage engine broke down, its memory and files are given up until the process ends. Close waits
// for open views; those that stay open for ten seconds more are an error, and keep the files open.
func (s *Store) Close() error { return s.CloseAfter(nil) }

// CloseAfter closes the store as [Store.Close] does, but lets views stay open until patience is closed, and ten seconds more. A nil patience counts
// as closed.
func (s *Store) CloseAfter(patience <-chan struct{}) error {
	s.folding.Lock()
	if !s.state.Close() {
		s.folding.Unlock()
		return nil
	}
	var err error
	if !s.opts.ReadOnly && s.state.Failure() == nil {
		err = s.flush.flushAndWait(s)
	}
	if p := s.current.Swap(nil); p != nil {
		p.Rows.Release()
	}
	if s.queryCache != nil {
		s.queryCache.Close()
	}
	s.folding.Unlock() // a waiter must not wait for views, but hear that the store is closed
	if !s.snapshots.Wait(patience, viewGracePeriod) {
		return errors.Join(err, errOpenViews)
	}
	s.folding.Lock()
	defer s.folding.Unlock()
	if s.broken.Load() {
		return err
	}
	s.fold.batch.Release()
	s.dbUse.Lock()
	defer s.dbUse.Unlock()
	closed := s.db.Close()
	s.db = nil
	if s.state.Failure() != nil {
		return err
	}
	return errors.Join(err, closed)
}

func newQueryCache(p projections.Projection) projections.QueryCache {
	if w, ok := p.(projections.QueryCacher); ok {
		return w.NewQueryCache()
	}
	return nil
}

// FreeDisk returns how many bytes are free where a directory is, and how many there are.
func FreeDisk(dir string) (free, total uint64, err error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, usage.TotalBytes, err
}
