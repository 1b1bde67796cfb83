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
// so that two imports do not use the same state. The caller must call unlock exactly once; if the
// process ends before, the lock ends, too. lockStateDir does not wait: if another import holds the
// lock, in this process or another one, it returns an error that wraps [ErrBusy].
func lockStateDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for the state of the import (choose another with --state): %w", err)
	}

	// Lock is how Pebble locks its stores. Its error is a bare errno if another process holds the
	// lock, and an [fs.PathError] if the file cannot be opened. EACCES alone can mean either.
	lock, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		var cannotOpen *fs.PathError
		heldByOtherProcess := !errors.As(err, &cannotOpen) && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES))
		// Pebble has no other error for a lock that this process already holds. The test
		// TestForeignStateIsRefused fails if Pebble changes the text.
		heldByThisProcess := strings.Contains(err.Error(), "held by current process")
		if heldByOtherProcess || heldByThisProcess {
			return nil, fmt.Errorf("%w: %s", ErrBusy, dir)
		}
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	return func() { _ = lock.Close() }, nil // the import has ended, so nothing depends on this error
}
