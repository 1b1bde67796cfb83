package redis

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockStateDir creates the state directory of an import if it is missing, and locks the file "lock"
// in it, so that two imports do not use the same state. lockStateDir does not wait: while an import
// holds the lock, in any process, every other call returns an error that wraps [ErrBusy].
//
// If err is nil, the caller must call unlock exactly once. The operating system releases the lock if
// the process ends first. The file stays.
func lockStateDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the state directory of the import (choose another with --state): %w", err)
	}

	// vfs.Default.Lock is the function with which Pebble locks its stores. It returns EAGAIN or
	// EACCES if another process holds the lock. EACCES is also the error of a file that may not be
	// opened, but then it is inside an [fs.PathError].
	stateLock, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		var openError *fs.PathError
		isOpenError := errors.As(err, &openError)
		heldByOtherProcess := !isOpenError && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES))
		// Only the text says that this process already holds the lock. TestForeignStateIsRefused
		// also locks a directory twice, and fails if Pebble changes the text.
		heldByThisProcess := strings.Contains(err.Error(), "held by current process")
		if heldByOtherProcess || heldByThisProcess {
			return nil, fmt.Errorf("%w: %s", ErrBusy, dir)
		}
		return nil, fmt.Errorf("cannot lock a file in %s: %w", dir, err)
	}
	return func() { _ = stateLock.Close() }, nil // the caller could do nothing about an error
}
