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

// lockStateDir creates the directory of an import's state if it is missing, and locks a file in it,
// so that two imports do not write the same state. The lock ends when unlock is called, which must
// happen once, or with the process. lockStateDir does not wait: if an import of this or another
// process has the lock, it returns an error that wraps [ErrBusy].
func lockStateDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for the state of the import; --state names another: %w", err)
	}

	// Pebble has the file lock that its stores use. It returns a bare errno if another process has
	// the lock, and an error with a path if the file cannot be opened. Both may be EACCES.
	lock, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		var cannotOpen *fs.PathError
		heldByOtherProcess := !errors.As(err, &cannotOpen) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES))
		// Pebble exports no error for a lock that this process has already. A test compares the
		// text.
		heldByThisProcess := strings.Contains(err.Error(), "held by current process")
		if heldByOtherProcess || heldByThisProcess {
			return nil, fmt.Errorf("%w: %s", ErrBusy, dir)
		}
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	return func() { _ = lock.Close() }, nil // the import has ended, so nothing depends on this error
}
