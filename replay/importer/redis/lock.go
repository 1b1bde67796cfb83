package redis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockState locks the state directory until unlock is called or the process ends. It returns
// [ErrBusy] if the directory is locked already.
func lockState(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep the state of the import (--state places it): %w", err)
	}
	// The storage engine has file locks for all operating systems.
	held, err := vfs.Default.Lock(filepath.Join(dir, "lock"))
	isHeldByOther := errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES)
	// For a lock that this process itself holds, the engine has an error without a type.
	isHeldHere := err != nil && strings.Contains(err.Error(), "held by current process")
	if isHeldByOther || isHeldHere {
		return nil, fmt.Errorf("%w: %s", ErrBusy, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", dir, err)
	}
	return func() { _ = held.Close() }, nil
}
