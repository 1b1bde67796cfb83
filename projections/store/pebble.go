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

// The fold waits for flushes and compactions from these limits on (see [flusher.waitForDisk]).
// Pebble has limits of its own, but there Pebble waits inside a commit, and forever if the disk
// fails, so the store could not be closed.
const (
	// maxMemtables is the number of full memtables whose size all memtables together may have.
	maxMemtables = 4
	// maxSublevels is the number of sublevels that level 0 may have.
	maxSublevels = 32
)

// openPebble opens or creates the Pebble database of a store.
func openPebble(s *Store) (*pebble.DB, error) {
	b := s.opts.Bounds
	format, err := engineFormat(s.opts.FS, s.dir)
	if err != nil {
		return nil, err
	}

	fs := withDirectorySyncs(errorfs.Wrap(withOrderedMarkers(s.opts.FS), s.fence), s.dir, s.handleFailedDirectorySync)
	o := tableOptions(fs, s.opts.Projection, s.merger)
	o.Cache = s.opts.Cache
	// The log of events takes the place of a write-ahead log. A commit never spans two memtables. A
	// flush writes whole memtables in order and makes them visible with one edit of the manifest.
	// So after a crash the store is at the end of some commit (I3).
	o.DisableWAL = true
	o.FormatMajorVersion = format
	o.MemTableSize = uint64(b.FlushBytes)

	// These limits are never reached, because waitForDisk waits earlier.
	o.MemTableStopWritesThreshold = 1 << 10
	o.L0StopWritesThreshold = 1 << 10

	// pebble.Open returns only after the compactions that it has begun have ended. So the lower
	// limit is 0 until the store is open: compactions that are due begin with the first flush
	// instead, or never if the store is only read. Even then, Pebble begins one, up to the upper
	// limit of 1, when level 0 has ten sublevels or when about 1 GiB must be compacted. So
	// waitForDisk never waits for maxSublevels while no compaction is running.
	o.CompactionConcurrencyRange = func() (int, int) {
		if !s.opened.Load() {
			return 0, 1
		}
		return 1, 2
	}

	o.LBaseMaxBytes = 64 << 20 // the default of Pebble
	// Tables of level 0 have 4 MiB. In each deeper level they have twice the size of those in the
	// level above.
	o.TargetFileSizes[0] = 4 << 20
	o.MaxOpenFiles = 1000 // the default of Pebble

	o.ReadOnly = s.opts.ReadOnly
	o.ErrorIfNotExists = s.opts.ReadOnly
	o.Logger = pebbleLogger{s}
	o.EventListener = s.pebbleEvents()

	if err := disk.CheckManifest(o.FS, s.dir); err != nil {
		return nil, err
	}
	db, err := pebble.Open(s.dir, o)
	s.pebbleOpen.Store(true)
	if err != nil && s.opts.ReadOnly && errors.Is(err, pebble.ErrDBDoesNotExist) {
		err = fmt.Errorf("%w: %w", projections.ErrNoStore, err)
	}
	return db, wrapInUse(err)
}

// wrapInUse wraps err in [projections.ErrInUse] if it means that the store is locked. Another
// process holds the lock if the error is EAGAIN. If this process holds the lock, Pebble returns an
// error that only its text identifies.
func wrapInUse(err error) error {
	if err != nil && (errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process")) {
		return fmt.Errorf("%w: %w", projections.ErrInUse, err)
	}
	return err
}

// pebbleEvents returns the listener for events of Pebble. Pebble calls its functions with locks
// held, so they must not call Pebble.
func (s *Store) pebbleEvents() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { s.handleDiskFailure(fmt.Errorf("background error: %w", err)) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.handleDiskFailure(fmt.Errorf("%w: %w", projections.ErrCorrupt, info.Details))
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			if s.fence.nothing.Load() {
				return // the operations of goroutines that the fence blocks or that were ended never end
			}
			s.slowDisk.Add(1)
			s.opts.Logger.Warn("the disk is slow", "path", info.Path, "op", info.OpType.String(), "took", info.Duration)
		},
		FlushEnd: func(info pebble.FlushInfo) {
			s.flush.signalEnd()
			if notify := s.opts.Listener.Flushed; notify != nil && info.Err == nil {
				notify(FlushInfo{Bytes: totalTableBytes(info.Output), Duration: info.TotalDuration})
			}
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			s.flush.signalEnd()
			if notify := s.opts.Listener.Compacted; notify != nil && info.Err == nil {
				notify(FlushInfo{Bytes: totalTableBytes(info.Output.Tables), Duration: info.TotalDuration})
			}
		},
	}
}

func totalTableBytes(tables []pebble.TableInfo) (n int64) {
	for _, t := range tables {
		n += int64(t.Size)
	}
	return n
}

// handleDiskFailure stops the projection and the writing of tables, because nothing that is folded
// from now on may reach the disk. The next Open finds a prefix of the fold.
func (s *Store) handleDiskFailure(err error) {
	s.fence.noTables.Store(true)
	_ = s.state.Fail(err)
	// After a fatal error, Pebble does not report the end of the flush during which it occurred. So
	// wake up flushAndWait here.
	s.flush.signalEnd()
}

// handleFatalError is called when Pebble cannot continue, for example because it does not know
// which part of its manifest is on disk. Pebble expects that the call does not return, and its
// default ends the process. handleFatalError stops only this projection.
//
// The first time while Pebble opens, handleFatalError returns, because pebble.Open may then return
// the error itself. A second error means that Pebble retries.
func (s *Store) handleFatalError(err error) {
	if !s.pebbleOpen.Load() && !s.openingFailed.Swap(true) {
		return
	}
	s.stopForever(err)
}

// handleFailedDirectorySync is called when the directory of the store could not be synced. Where
// Pebble syncs the directory after it has moved a marker, Pebble would panic with the error, in a
// goroutine of its own, and so end the process.
func (s *Store) handleFailedDirectorySync(err error) {
	s.stopForever(fmt.Errorf("sync %s: %w", s.dir, err))
}

// stopForever stops the projection because of an error after which Pebble cannot be used any more.
// It ends the calling goroutine, whose deferred calls still release their locks. The memory and
// files of Pebble are leaked.
func (s *Store) stopForever(err error) {
	s.fence.nothing.Store(true)
	s.breakOnce.Do(func() {
		s.fatalErr = err
		close(s.broken)
	})
	s.handleDiskFailure(err)
	runtime.Goexit()
}

// fence is between Pebble and the file system.
//
// After an error of the disk, the flag noTables is set, and every creation of a table fails,
// because Pebble retries a failed flush at once and forever.
//
// After a fatal error of Pebble, the flag nothing is set, and every write fails. Goroutines that
// write to a table block there forever: Pebble's memory may be half changed, so letting them
// continue, even into their error handling, may end in a panic. They hold no locks while they
// write.
type fence struct {
	fs                FS
	noTables, nothing atomic.Bool
}

var errFenced = errors.New("store: the store has failed and writes no more")

// String implements [errorfs.Injector].
func (f *fence) String() string { return "fence" }

// MaybeError implements [errorfs.Injector]. It is called before every operation on the file system.
func (f *fence) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileClose, errorfs.OpLock, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return nil // these change no file, and Pebble panics if the sync of a directory fails
	}
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}

	name := f.fs.PathBase(op.Path)
	if f.nothing.Load() {
		if strings.HasSuffix(name, ".sst") && op.Kind != errorfs.OpRemove {
			select {} // block forever
		}
		return errFenced
	}

	if op.Kind == errorfs.OpCreate && f.noTables.Load() && strings.HasSuffix(name, ".sst") {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // slows the endless retries of Pebble
		return errFenced
	}
	return nil
}

// pebbleLogger logs what Pebble logs, and handles its fatal errors.
type pebbleLogger struct{ s *Store }

// Infof implements [pebble.Logger]. It logs at debug level, because the important events arrive
// through the listener.
func (l pebbleLogger) Infof(format string, args ...any) {
	l.log(slog.LevelDebug, format, args)
}

// Errorf implements [pebble.Logger].
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log(slog.LevelError, format, args)
}

// Fatalf implements [pebble.Logger].
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.handleFatalError(newFatalError(format, args))
}

// newFatalError returns the error that Pebble passes to [pebble.Logger.Fatalf].
func newFatalError(format string, args []any) error {
	// An error is always the last argument. Wrap it, so that errors.Is finds the cause.
	if len(args) > 0 {
		if _, ok := args[len(args)-1].(error); ok && (strings.HasSuffix(format, "%s") || strings.HasSuffix(format, "%v")) {
			format = format[:len(format)-1] + "w"
		}
	}
	return fmt.Errorf("storage engine: "+format, args...)
}

func (l pebbleLogger) log(level slog.Level, format string, args []any) {
	if l.s.opts.Logger.Enabled(nil, level) { //nolint:staticcheck // there is no context
		l.s.opts.Logger.Log(nil, level, "pebble: "+fmt.Sprintf(format, args...)) //nolint:staticcheck // likewise
	}
}
