package access

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// checkInterval is the shortest time between two checks of the files.
const checkInterval = time.Second

// reloader has a value that is loaded from files, and loaded again when one of them changes. It has
// no goroutine of its own: a call of current checks the files if no other call has done so within
// checkInterval. During the check, other calls get the previous value.
type reloader[T any] struct {
	// name is the name of the value in logs and metrics.
	name  string
	files []string
	// load reads the files and returns the value.
	load func() (*T, error)
	log  *slog.Logger

	value atomic.Pointer[T]
	// stale is set while the files have changed and the changed files could not be loaded.
	stale atomic.Bool
	// created is when the reloader was made. nextCheck is when the files are checked next, in
	// nanoseconds since created, because current can read a number without a lock.
	created   time.Time
	nextCheck atomic.Int64
	// checkMu is held while the files are checked. It guards lastFiles: the state of the files at
	// the last attempt to load them, or nil if one was missing.
	checkMu   sync.Mutex
	lastFiles []fs.FileInfo
}

// newReloader loads the value for the first time. It fails if the files cannot be loaded.
func newReloader[T any](name string, log *slog.Logger, load func() (*T, error), files ...string) (*reloader[T], error) {
	r := &reloader[T]{name: name, files: files, load: load, log: log, created: time.Now()}
	r.nextCheck.Store(int64(checkInterval))

	// The state of the files is read before their content, so that the next check notices a change
	// that happens in between.
	var err error
	r.lastFiles, err = r.statFiles()
	if err != nil {
		return nil, err
	}
	first, err := load()
	if err != nil {
		return nil, err
	}
	r.value.Store(first)
	return r, nil
}

// current returns the value. If a check is due at the time now, it first checks the files.
func (r *reloader[T]) current(now time.Time) *T {
	// If another call is checking the files, this one does not wait for the lock.
	age := int64(now.Sub(r.created))
	isDue := age >= r.nextCheck.Load()
	if isDue && r.checkMu.TryLock() {
		r.nextCheck.Store(age + int64(checkInterval))
		r.reloadIfChanged()
		r.checkMu.Unlock()
	}
	return r.value.Load()
}

// reloadIfChanged loads the files if they have changed, or if they could not be loaded since they
// have changed: the cause may lie outside what sameFiles compares, such as a permission. If they
// cannot be loaded, the previous value stays, and the error is logged once per change. checkMu must
// be held.
func (r *reloader[T]) reloadIfChanged() {
	found, err := r.statFiles()
	isUnchanged := err == nil && sameFiles(found, r.lastFiles)
	isStillMissing := err != nil && r.lastFiles == nil
	if isStillMissing || isUnchanged && !r.stale.Load() {
		return
	}
	r.lastFiles = found

	var loaded *T
	if err == nil {
		loaded, err = r.load()
	}
	r.stale.Store(err != nil)
	if err != nil {
		if !isUnchanged {
			r.log.Error("not loaded again: the previous one stays in force", "what", r.name, "error", err)
		}
		return
	}
	r.value.Store(loaded)
	r.log.Info("loaded again", "what", r.name, "files", r.files)
}

// statFiles returns the state of the files, or nil and an error if one of them is missing or cannot
// be examined.
func (r *reloader[T]) statFiles() ([]fs.FileInfo, error) {
	infos := make([]fs.FileInfo, len(r.files))
	for i, name := range r.files {
		var err error
		infos[i], err = os.Stat(name)
		if err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// sameFiles reports whether two states of the same files look alike. It compares what is known
// without reading the files: their identity, size and time of modification.
func sameFiles(a, b []fs.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// maxFileBytes limits the size of a file. It is enough for tens of thousands of tokens, or for
// hundreds of keys.
const maxFileBytes = 4 << 20

var errFileTooLong = errors.New("the file is too long")

// readFile reads a file of at most maxFileBytes.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s: %w: %d bytes, at most %d", name, errFileTooLong, info.Size(), maxFileBytes)
	}
	return os.ReadFile(name)
}
