//go:build darwin || dragonfly || freebsd || linux

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// errLockHeld is the error of lockDir if another process has the lock.
var errLockHeld = errors.New("held by another process")

// lockDir creates the lock file at the path if it is missing, and locks it. The lock lasts until
// unlockDir, or until the process ends.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLockHeld
		}
		return nil, err
	}
	return f, nil
}

// unlockDir releases the lock and closes the file. Closing alone would not be enough: a child
// process that was just forked and has not executed its program yet has the file open, too, and
// with it the lock.
func unlockDir(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// freeBytes returns how much of the disk under dir is free for this process.
func freeBytes(dir string) (uint64, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return uint64(max(stat.Bavail, 0)) * uint64(stat.Bsize), nil //nolint:unconvert // the types differ from system to system
}
