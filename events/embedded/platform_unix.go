//go:build darwin || dragonfly || freebsd || linux

package embedded

import (
	"errors"
	"os"
	"syscall"
)

var errLockHeld = errors.New("held by another process")

// lockDir takes the lock of a data directory until the file is closed or the process ends.
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

// unlockDir gives a lock back. It does not only close the file: a process that was forked a moment ago and is not another program yet
// has it open as well.
func unlockDir(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// freeBytes returns how much of the disk under dir is free for this process.
func freeBytes(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return uint64(max(fs.Bavail, 0)) * uint64(fs.Bsize), nil //nolint:unconvert // the types differ from system to system
}
