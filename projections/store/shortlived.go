package store

import (
	"errors"
	"runtime"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections"
)

// shortLivedOptions returns the options of a database that one call opens and closes. Nothing is
// written to its memtables, and nothing is compacted. A caller that writes must open an existing
// database with [openShortLived], and defer [recoverFatal].
func shortLivedOptions(fs FS, p projections.Projection) *pebble.Options {
	o := tableOptions(withOrderedMarkers(fs), p, mergerOf(p))
	o.DisableWAL = true
	o.DisableAutomaticCompactions = true
	o.Logger = silentPebbleLogger{}
	// Without this listener, Pebble takes a damaged block for a fatal error, in whichever goroutine
	// reads it. The call that reads the block returns the error in any case.
	o.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	return o
}

// openShortLived opens an existing database for writing. It first removes the write-ahead log,
// which is empty, because no store uses one. If there were a log, Pebble would flush it, in another
// goroutine, where nothing could recover the panic of a failed edit of the manifest.
func openShortLived(dir string, o *pebble.Options) (*pebble.DB, error) {
	// No process may have the database open while its log is removed.
	lock, err := pebble.LockDirectory(dir, o.FS)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(removeLogs(o.FS, dir), lock.Close()); err != nil {
		return nil, err
	}
	return pebble.Open(dir, o)
}

// removeLogs removes the write-ahead log of a database.
func removeLogs(fs FS, dir string) error {
	names, err := fs.List(dir)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			err = errors.Join(err, fs.Remove(fs.PathJoin(dir, name)))
		}
	}
	return err
}

// silentPebbleLogger is the logger of a short-lived database. It logs nothing.
type silentPebbleLogger struct{}

// Infof implements [pebble.Logger].
func (silentPebbleLogger) Infof(string, ...any) {}

// Errorf implements [pebble.Logger]. Pebble also returns the error.
func (silentPebbleLogger) Errorf(string, ...any) {}

// Fatalf implements [pebble.Logger], which requires that it does not return. Pebble calls it if an
// edit of the manifest fails, because then the edit may be on disk or not. All edits of a
// short-lived database are made by the goroutine that has opened it, where [recoverFatal] recovers
// the panic.
func (silentPebbleLogger) Fatalf(format string, args ...any) {
	panic(newFatalError(format, args))
}

// recoverFatal recovers a panic with an error, and joins that error to err. Pebble also panics with
// an error itself, if the sync of a directory fails. Panics with other values, and runtime errors,
// are faults of the program and go on.
//
// It must be deferred before the closing of the database, so that the database is closed by then.
func recoverFatal(err *error) {
	switch p := recover().(type) {
	case nil:
	case runtime.Error:
		panic(p)
	case error:
		*err = errors.Join(p, *err)
	default:
		panic(p)
	}
}
