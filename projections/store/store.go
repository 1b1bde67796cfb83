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

// FS is the file system that holds the files of a store.
type FS = vfs.FS

// SyncDir syncs a directory, so that files that were created or removed in it stay so after a power
// cut.
func SyncDir(fs FS, name string) error { return disk.SyncDir(fs, name) }

// Cache is a block cache that several stores share.
type Cache = pebble.Cache

// NewCache returns a cache of the given size in bytes. The caller must call Unref once it opens no
// more stores with the cache. The memory is freed after that, when the last of the stores is
// closed.
//
// Pebble charges the memtables of every store to the cache. Add 4 × [Bounds.FlushBytes] for each
// store that folds at full speed to the size that is wanted for reading. Otherwise memtables can
// displace all blocks.
func NewCache(bytes int64) *Cache { return pebble.NewCache(bytes) }

// Options are the options of [Open].
type Options struct {
	// FS is the file system. nil means the disk.
	FS FS
	// Dir holds the stores of all projections: the rows of a generation are in
	// Dir/<name>/<generation>.
	Dir string
	// Generation is the number of the generation, from 1. 0 means the live one, or 1 if there is
	// none.
	Generation uint32
	// Projection is the projection that is folded. No other store may use this value while the
	// store is open.
	Projection projections.Projection
	// Partitions is the set of partitions whose rows the store holds. nil means all of them.
	Partitions *events.Partitions
	// Partitioned opens the store with the partitions that it has on disk. A new store then holds
	// none. Partitions is ignored.
	Partitioned bool
	// Cache is a cache that several stores share (see [NewCache]). If it is nil, the store makes
	// its own with 64 MiB for blocks.
	Cache *Cache
	// Logger logs what an operator must see. nil means no log. Everything else goes to the
	// Listener.
	Logger *slog.Logger
	// Listener is notified of what metrics need.
	Listener Listener
	// Bounds are sizes and times that affect performance only.
	Bounds Bounds
	// ReadOnly opens an existing store for reading only. Nothing is folded, and no file is changed.
	ReadOnly bool
}

// Bounds are sizes and times that affect performance only. They change no row, so they are not part
// of the fingerprint. A zero field means the default.
type Bounds struct {
	// BatchBytes is the size of the batch, measured as in a memtable, from which the fold commits
	// it after an envelope. A row takes about 200 bytes in addition to key and value. Between two
	// events of an envelope, the fold commits only from twice this size on. Keep BatchBytes below
	// half of FlushBytes, because Pebble flushes a batch of that size as a memtable of its own.
	// Nothing checks this. Default: a fifth of FlushBytes.
	BatchBytes int
	// KeepBytes is the size of the rows that stay in memory after they were folded, so that the
	// next event that changes them reads no table. Rows that the fold has read, and read last, stay
	// longest. Default 16 MiB, at most 2 GiB.
	KeepBytes int
	// FlushBytes is the size of a memtable. Together with FlushEvery it bounds how much must be
	// folded again after a crash. The fold waits while all memtables together, including the one
	// that is being written, are larger than 4 × FlushBytes. Default 32 MiB.
	FlushBytes int
	// FlushEvery is how long rows may be only in memory before Run starts a flush. Default one
	// minute.
	FlushEvery time.Duration
	// FlushEnvelopes is a number of envelopes that change no row of this store. Run flushes the
	// position alone after FlushEvery if at least so many envelopes have changed it, and otherwise
	// after 10 × FlushEvery. Skipping such envelopes again after a crash costs little, so a store
	// without new rows writes little. Default 65536.
	FlushEnvelopes int
	// ReadBytes is about how many bytes of the log Run reads at once. Default 8 MiB.
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

// Store is one generation of one projection: the rows, and the position in the log that they
// reflect.
//
// Only one goroutine may fold, with Fold or Run. Any number may read through views.
type Store struct {
	opts        Options
	dir         string
	generation  uint32
	fingerprint projections.Fingerprint
	// outdated is the result of [Store.Outdated].
	outdated string
	merger   *projections.Merger
	holding  projections.Holding
	fence    *fence
	db       *pebble.DB
	// opened is set at the end of a successful Open.
	opened atomic.Bool
	// broken is closed, by breakOnce, when Pebble has reported a fatal error: no method of db may be
	// called then, because its memory may be half changed. fatalErr, which is set before, is that
	// error.
	broken    chan struct{}
	breakOnce sync.Once
	fatalErr  error
	// slowDisk counts disk operations that took seconds.
	slowDisk atomic.Uint64
	// pebbleOpen is set when pebble.Open has returned, and openingFailed at the first fatal error
	// before that.
	pebbleOpen, openingFailed atomic.Bool
	// dbUse is held for reading by methods that use db without holding folding or a view, so that
	// Close waits for them. While it is held, nothing may wait for Pebble without end.
	dbUse sync.RWMutex

	// folding is held while rows or the position change or are flushed, and while the store closes.
	// It guards fold, flush and version.
	folding sync.Mutex
	fold    fold
	flush   flusher
	// version is the version of the rows that were published last (see [projections.View.Version]).
	version uint64
	// queryCache is nil if the projection has no query cache.
	queryCache projections.QueryCache

	// current is the position that new views show. It is nil before the first whole position and
	// after Close.
	current   atomic.Pointer[projections.Snapshot]
	snapshots overlay.Snapshots

	viewWaiters viewWaiters
	state       storestate.Machine
}

// Open opens the store of a projection. If there is none, it creates an empty store, or fails with
// [projections.ErrNoStore] if the store is to be read only.
//
// It fails with [projections.ErrFingerprint] if the store was built by another version of the fold
// or with other settings. A store that is to be read only may have other settings, and an older
// version if the projection can read its rows (see [Store.Outdated]). Open fails with
// [projections.ErrPartial] if the options ask for all partitions and the store holds fewer.
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
		opts:        opts,
		fingerprint: projections.FingerprintOfPartitions(opts.Projection, opts.Partitions),
		merger:      mergerOf(opts.Projection),
		fence:       &fence{fs: opts.FS},
		broken:      make(chan struct{}),
		queryCache:  newQueryCache(opts.Projection),
		holding:     projections.Holding{Projection: opts.Projection, Held: opts.Partitions},
	}
	s.state.Init(opts.Listener.StateChanged)
	s.flush.init()
	s.viewWaiters.init()

	var err error
	if s.generation, err = pickGeneration(opts); err != nil {
		return nil, err
	}
	s.dir = GenerationDir(opts, s.generation)

	// Pebble would open tables without a manifest as an empty store.
	if err := disk.CheckWhole(opts.FS, s.dir); err != nil {
		return nil, fmt.Errorf("open the store of %s: %w", opts.Projection.Name(), err)
	}

	if err = s.openOrAbandon(); err != nil {
		return nil, fmt.Errorf("open the store of %s in %s: %w", opts.Projection.Name(), s.dir, err)
	}
	s.opened.Store(true)
	return s, nil
}

// openOrAbandon opens the database and loads its rows. pebble.Open may flush, and if a flush fails,
// Pebble retries it forever at full speed while Open waits for it. openOrAbandon then returns the
// error of the flush and abandons the call. The lock of the store may then stay held until the process
// ends.
func (s *Store) openOrAbandon() error {
	done := make(chan error, 1) // with room for a result that nobody waits for any more
	go func() { done <- s.openAndLoad() }()

	select {
	case err := <-done:
		if err == nil && s.isBroken() {
			err = s.fatalErr
		}
		return err
	case <-s.broken:
		return s.fatalErr
	}
}

// openAndLoad sets db and loads the rows. If loading fails, it closes db again.
func (s *Store) openAndLoad() (err error) {
	if s.db, err = openPebble(s); err != nil {
		return err
	}
	if err = s.load(); err != nil {
		s.fold.batch.Release()       // loading may have left iterators open, and Pebble panics if one is open at Close
		_ = s.callPebble(s.db.Close) // err is the cause, and more useful than an error of Close
	}
	return err
}

// GenerationDir returns the directory of a generation, for the FS, Dir and Projection of the
// options. FS must not be nil.
func GenerationDir(opts Options, generation uint32) string {
	return opts.FS.PathJoin(opts.Dir, opts.Projection.Name(), fmt.Sprintf("%06d", generation))
}

// pickGeneration returns the generation that the options ask for, or else the live one, or else 1.
// It fails with [projections.ErrNoStore] if the store is to be read only and does not exist.
func pickGeneration(opts Options) (uint32, error) {
	generation := opts.Generation
	if generation == 0 {
		g, _, err := disk.ReadGenerations(opts.FS, opts.FS.PathJoin(opts.Dir, opts.Projection.Name()))
		if err != nil {
			return 0, err
		}
		generation = g.Live
	}
	if opts.ReadOnly {
		if _, err := opts.FS.Stat(GenerationDir(opts, generation)); err != nil {
			return 0, fmt.Errorf("%w: %s in %s", projections.ErrNoStore, opts.Projection.Name(), opts.Dir)
		}
	}
	return generation, nil
}

// load checks the fingerprint, or writes it to a new store. Then it reads the rows that the fold
// also keeps in memory, and the position, and publishes the position.
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

// Projection returns the projection that is folded into the store.
func (s *Store) Projection() projections.Projection { return s.opts.Projection }

// Dir returns the directory of the files of the store.
func (s *Store) Dir() string { return s.dir }

// Holds returns the partitions that the store holds. They never change.
func (s *Store) Holds() events.Partitions { return s.holding.Partitions() }

// Cursor returns the position after the last whole envelope, from which a reader of the log
// continues. It waits while Fold is running.
func (s *Store) Cursor() events.Cursor {
	s.folding.Lock()
	defer s.folding.Unlock()
	return s.fold.cursor
}

// viewGracePeriod is how long Close waits for open views.
const viewGracePeriod = 10 * time.Second

// WaitFor blocks until new views show everything up to seq. It fails with the error of the context,
// with [projections.ErrStopped] if the projection has failed or Run has ended before seq, and with
// [events.ErrHole] while the fold waits in front of a hole.
func (s *Store) WaitFor(ctx context.Context, seq uint64) error { return s.state.WaitFor(ctx, seq) }

// Close flushes the store and closes it. A failed store does not flush: the next start folds again
// what was only in memory. If Pebble has reported a fatal error, its memory and open files are
// leaked until the process ends.
//
// Close waits up to ten seconds for open views. If some are still open then, it returns an error
// and leaves the files open.
func (s *Store) Close() error { return s.CloseAfter(nil) }

// CloseAfter closes the store as [Store.Close] does, but waits for open views until patience is
// closed and then up to ten seconds more. A nil patience counts as closed. If the store was closed
// before, CloseAfter does nothing and returns nil.
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

	// No new view can be opened from here on.
	if p := s.current.Swap(nil); p != nil {
		p.Rows.Release()
	}
	if s.queryCache != nil {
		s.queryCache.Close()
	}

	// Unlock before waiting for views: methods that wait for folding must not wait for views, but
	// find the store closed.
	s.folding.Unlock()
	if !s.snapshots.Wait(patience, viewGracePeriod) {
		return errors.Join(err, errOpenViews)
	}

	s.folding.Lock()
	defer s.folding.Unlock()
	s.dbUse.Lock()
	defer s.dbUse.Unlock()
	if s.isBroken() {
		return err // Pebble may hold its locks forever, so nothing of it is released
	}
	s.fold.batch.Release()
	db := s.db
	s.db = nil
	closeErr := s.callPebble(db.Close)
	if s.state.Failure() != nil {
		return err // the store could not write before either, and has said why
	}
	return errors.Join(err, closeErr)
}

// callPebble calls a function that may wait for goroutines of Pebble, and returns its error. A
// fatal error of Pebble ends such a goroutine, or the one that calls the function, so the function
// may never return (see stopForever). callPebble then returns the fatal error, wrapped in
// [projections.ErrStopped], and leaves the function behind. After a fatal error, callPebble does
// not call the function.
func (s *Store) callPebble(call func() error) error {
	done := make(chan error, 1)
	if !s.isBroken() {
		go func() { done <- call() }()
	}

	var err error
	select {
	case err = <-done:
	case <-s.broken:
		err = projections.ErrStopped
	}

	if err != nil && s.isBroken() {
		// The fatal error is the cause, also if the function has returned an error that follows from
		// it. stopForever fails the store only after it has closed broken, so the store may not
		// have failed yet.
		err = s.state.Fail(s.fatalErr)
	}
	return err
}

// isBroken reports whether Pebble has reported a fatal error.
func (s *Store) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// newQueryCache returns a query cache of the projection, or nil if it has none.
func newQueryCache(p projections.Projection) projections.QueryCache {
	if cacher, ok := p.(projections.QueryCacher); ok {
		return cacher.NewQueryCache()
	}
	return nil
}

// FreeDisk returns the free bytes and the total bytes of the file system that contains a directory.
func FreeDisk(dir string) (free, total uint64, err error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	return usage.AvailBytes, usage.TotalBytes, err
}
