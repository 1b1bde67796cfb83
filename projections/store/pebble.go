package store

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
)

const (
	// maxMemtables and maxSublevels are where a fold waits for flushes and compactions. Pebble would wait too, but
	// inside a commit, and for ever if its disk fails: then the store could not be closed.
	maxMemtables = 4
	maxSublevels = 32
)

func openPebble(s *Store) (*pebble.DB, error) {
	b := s.opts.Bounds
	format, err := engineFormat(s.opts.FS, s.dir)
	if err != nil {
		return nil, err
	}
	o := tableOptions(errorfs.Wrap(s.opts.FS, s.fence), s.opts.Projection, s.merger)
	o.Cache = s.opts.Cache
	// The log is the write-ahead log. A commit is in one memtable, a flush writes whole memtables in order and
	// shows them in one edit of the manifest: after a crash the store is at the end of some commit (I3).
	o.DisableWAL = true
	o.FormatMajorVersion = format
	o.MemTableSize = uint64(b.FlushBytes)
	o.MemTableStopWritesThreshold, o.L0StopWritesThreshold = 1<<10, 1<<10
	// Pebble opens a store only when compactions that it began meanwhile have ended. Those that are due begin with the first flush
	// instead, or never in a store that is only read. Beyond ten sublevels Pebble begins one all the same, so that no fold waits for
	// maxSublevels with none under way.
	o.CompactionConcurrencyRange = func() (int, int) {
		if !s.opened.Load() {
			return 0, 1
		}
		return 1, 2
	}
	// One size for all levels makes splits of a compaction, not more tables than needed.
	o.LBaseMaxBytes = 64 << 20
	o.MaxOpenFiles = 1000
	o.ReadOnly, o.ErrorIfNotExists = s.opts.ReadOnly, s.opts.ReadOnly
	o.Logger = pebbleLogger{s}
	o.TargetFileSizes[0] = 4 << 20
	o.EventListener = s.pebbleEvents()
	if err := disk.CheckManifest(o.FS, s.dir); err != nil {
		return nil, err
	}
	db, err := s.openOrGiveUp(o)
	if err != nil && s.opts.ReadOnly && errors.Is(err, pebble.ErrDBDoesNotExist) {
		err = fmt.Errorf("%w: %w", projections.ErrNoStore, err)
	}
	return db, inUse(err)
}

// inUse tells a lock that another process holds, and one of this process, which Pebble tells by its text alone.
func inUse(err error) error {
	if err != nil && (errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process")) {
		return fmt.Errorf("%w: %w", projections.ErrInUse, err)
	}
	return err
}

// openOrGiveUp opens Pebble, or gives it up: what it flushes while it opens is tried again for ever, at full speed, if that fails, and the
// opening waits for it. Then its lock remains held until the process ends.
func (s *Store) openOrGiveUp(o *pebble.Options) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	s.opening.hopeless = make(chan error, 1)
	ended := make(chan result, 1)
	go func() {
		db, err := pebble.Open(s.dir, o)
		ended <- result{db, err}
	}()
	select {
	case r := <-ended:
		return r.db, r.err
	case err := <-s.opening.hopeless:
		return nil, err
	}
}

// openingFailed is called where Pebble cannot continue while it opens. Once it may return, as the opening may report the error itself.
func (s *Store) openingFailed(err error) {
	if s.opening.failures.Add(1) == 1 {
		return
	}
	s.fence.nothing.Store(true)
	select {
	case s.opening.hopeless <- err:
	default:
	}
	runtime.Goexit()
}

// pebbleEvents hangs the store on what happens in Pebble. The functions are called with Pebble's locks held.
func (s *Store) pebbleEvents() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { s.diskFailed(fmt.Errorf("background error: %w", err)) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.diskFailed(fmt.Errorf("%w: %w", projections.ErrCorrupt, info.Details))
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			s.slowDisk.Add(1)
			s.opts.Logger.Warn("the disk is slow", "path", info.Path, "op", info.OpType.String(), "took", info.Duration)
		},
		FlushEnd: func(info pebble.FlushInfo) {
			s.flush.signalEnd()
			if f := s.opts.Listener.Flushed; f != nil && info.Err == nil {
				f(FlushInfo{Bytes: tableBytes(info.Output), Duration: info.TotalDuration})
			}
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			s.flush.signalEnd()
			if f := s.opts.Listener.Compacted; f != nil && info.Err == nil {
				f(FlushInfo{Bytes: tableBytes(info.Output.Tables), Duration: info.TotalDuration})
			}
		},
	}
}

func tableBytes(tables []pebble.TableInfo) (n int64) {
	for _, t := range tables {
		n += int64(t.Size)
	}
	return n
}

// diskFailed stops the projection: it may be that nothing more reaches the disk. The next opening finds a prefix of the
// fold.
func (s *Store) diskFailed(err error) {
	s.fence.noTables.Store(true)
	_ = s.state.Fail(err)
}

// engineFailed is called where Pebble cannot continue, as when it does not know what of its manifest is on disk. It must
// not return there, and is not the end of the process but of this projection: the goroutine ends, which gives back its
// locks, and what Pebble holds is given up.
func (s *Store) engineFailed(err error) {
	if !s.opened.Load() {
		s.openingFailed(err)
		return
	}
	s.fence.nothing.Store(true)
	s.broken.Store(true)
	s.diskFailed(err)
	runtime.Goexit()
}

// fence stands between Pebble and the file system.
//
// It lets a failed store write no more tables: Pebble retries a failed flush at once and for ever. When Pebble could not
// continue, its goroutines that write tables stay where they would write next, which is without locks: what Pebble has in
// memory is half changed then, and to continue with it, even to clean up after an error, may be a panic.
//
// It also syncs the directory before Pebble names a new manifest as the present one: Pebble syncs both names together,
// so on a file system that does not keep their order a power cut could leave the second without the first.
type fence struct {
	fs                FS
	noTables, nothing atomic.Bool
}

var errFenced = errors.New("projections: the store has failed and writes no more")

// String names the injector.
func (f *fence) String() string { return "fence" }

// MaybeError is called before every operation on the file system.
func (f *fence) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileClose, errorfs.OpLock, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return nil // change no file, and Pebble panics where a directory cannot be synced
	}
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	name := f.fs.PathBase(op.Path)
	if f.nothing.Load() {
		if strings.HasSuffix(name, ".sst") && op.Kind != errorfs.OpRemove {
			select {}
		}
		return errFenced
	}
	if op.Kind != errorfs.OpCreate {
		return nil
	}
	switch {
	case f.noTables.Load() && strings.HasSuffix(name, ".sst"):
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // Pebble retries at once, for ever: this is its pace
		return errFenced
	case strings.HasPrefix(name, "marker.manifest."):
		return disk.SyncDir(f.fs, f.fs.PathDir(op.Path))
	}
	return nil
}

// pebbleLogger passes on what Pebble logs. Its events arrive by the listener.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log(slog.LevelDebug, format, args)
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log(slog.LevelError, format, args)
}

// Fatalf does not return.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	if len(args) == 1 {
		if err, ok := args[0].(error); ok && format == "%s" { // a caller that asks for the cause must find it
			l.s.engineFailed(fmt.Errorf("storage engine: %w", err))
			return
		}
	}
	l.s.engineFailed(fmt.Errorf("storage engine: "+format, args...))
}

func (l pebbleLogger) log(level slog.Level, format string, args []any) {
	if l.s.opts.Logger.Enabled(nil, level) { //nolint:staticcheck // there is no context
		l.s.opts.Logger.Log(nil, level, "pebble: "+fmt.Sprintf(format, args...)) //nolint:staticcheck // likewise
	}
}
