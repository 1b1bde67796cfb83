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

// lookEvery is the least time between two checks of the files, which are made when a call comes.
const checkInterval = time.Second

// kept is a value that is made from files, and made again when one of them changes. It has no goroutine: a caller looks
// at the files if no other has done so in the last second, while the others continue with the present value.
type reloader[T any] struct {
	// what names it in the log.
	name  string
	files []string
	// load makes it of the files, which are those above.
	load func() (*T, error)
	log  *slog.Logger

	value   atomic.Pointer[T]
	created time.Time
	// stale is set while the files are not those of which now was made.
	stale atomic.Bool
	// next is when the files are looked at again, since born.
	nextCheck atomic.Int64
	// looking is held by who looks. It guards seen, those files that were loaded or failed to load last.
	checkMu   sync.Mutex
	lastFiles []fs.FileInfo
}

// keep loads what is to be kept.
func newReloader[T any](what string, log *slog.Logger, load func() (*T, error), files ...string) (*reloader[T], error) {
	k := &reloader[T]{name: what, files: files, load: load, log: log, created: time.Now()}
	k.nextCheck.Store(int64(checkInterval))
	// The times are noted before the files are read, so a change in between is seen at the next check.
	var err error
	if k.lastFiles, err = k.statFiles(); err != nil {
		return nil, err
	}
	first, err := load()
	if err != nil {
		return nil, err
	}
	k.value.Store(first)
	return k, nil
}

// get returns what there is at a time, which should be the present.
func (k *reloader[T]) current(at time.Time) *T {
	if since := int64(at.Sub(k.created)); since >= k.nextCheck.Load() && k.checkMu.TryLock() {
		k.nextCheck.Store(since + int64(checkInterval))
		k.reloadIfChanged()
		k.checkMu.Unlock()
	}
	return k.value.Load()
}

// look loads files that have changed. If one does not load, the previous value stays, and the error is logged once for each change.
func (k *reloader[T]) reloadIfChanged() {
	found, err := k.statFiles()
	if err == nil && sameFiles(found, k.lastFiles) || err != nil && k.lastFiles == nil {
		return // nothing is new, not even that a file is gone
	}
	k.lastFiles = found
	var fresh *T
	if err == nil {
		fresh, err = k.load()
	}
	k.stale.Store(err != nil)
	if err != nil {
		k.log.Error("not loaded again: the previous one stays in force", "what", k.name, "error", err)
		return
	}
	k.value.Store(fresh)
	k.log.Info("loaded again", "what", k.name, "files", k.files)
}

// stat returns nil and an error if one of the files is not there.
func (k *reloader[T]) statFiles() ([]fs.FileInfo, error) {
	infos := make([]fs.FileInfo, len(k.files))
	for i, name := range k.files {
		var err error
		if infos[i], err = os.Stat(name); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// sameFiles reports whether files are what they were, as far as that can be seen without reading them.
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

// maxFileBytes bounds what is read of a file: some ten thousand tokens, some hundred keys.
const maxFileBytes = 4 << 20

var errFileTooLong = errors.New("the file is too long")

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
