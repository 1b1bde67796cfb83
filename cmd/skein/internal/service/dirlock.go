package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skein-feed/skein/events"
)

const (
	// lockFileName is the name of the file in the data directory that the process locks. The file
	// is empty.
	lockFileName = "LOCK"
	// dirCheckPeriod is how often the process checks that the data directory is still the one that
	// it has locked.
	dirCheckPeriod = time.Second
)

// ErrDirReplaced means that the data directory was removed, or removed and created again, while
// this process had it open. The process must no longer write there: the files that it would create
// in the new directory could be those of another process.
var ErrDirReplaced = errors.New("the data directory was removed or replaced while this process had it open")

// dirLock is the lock of a data directory. A process takes the lock before it opens any file in the
// directory, and releases it after it has closed all of them.
//
// The embedded log and the stores have locks of their own. Those do not notice that somebody
// removes the directory and creates it again: the new directory gets new lock files, while this
// process still holds the old ones. So dirLock also checks, once a second, that the file that it
// has locked is the one that now has this name.
type dirLock struct {
	path string
	file *os.File

	releaseOnce sync.Once
	// stopWatching ends the goroutine of watch, which then closes watchEnded. Both are nil if watch
	// was not called.
	stopWatching context.CancelFunc
	watchEnded   chan struct{}
}

// lockDir creates the data directory if it does not exist, and locks it. It fails with
// [events.ErrLocked] if another process has the lock.
func lockDir(dir string) (*dirLock, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the data directory: %w", err)
		}
		path := filepath.Join(dir, lockFileName)
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock the data directory: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = file.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: %s is open in another process: stop it, or choose another directory", events.ErrLocked, dir)
			}
			return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
		}

		// If the file was removed after it was opened and before it was locked, another process can
		// create and lock a new one. Then the lock of this one is worth nothing, so try again.
		l := &dirLock{path: path, file: file}
		err = l.check()
		if err == nil {
			return l, nil
		}
		_ = l.release()
		if !errors.Is(err, ErrDirReplaced) {
			return nil, err
		}
	}
}

// check fails with [ErrDirReplaced] if the locked file is no longer the lock file in the data
// directory.
func (l *dirLock) check() error {
	locked, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("check the lock of the data directory: %w", err)
	}
	current, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(locked, current) {
		return fmt.Errorf("%w: %s is not the file that was locked", ErrDirReplaced, l.path)
	}
	if err != nil {
		return fmt.Errorf("check the lock of the data directory: %w", err)
	}
	return nil
}

// watch starts a goroutine that calls abandon, once, when the directory was replaced. The goroutine
// ends when the lock is released or ctx ends, and not when the process begins to stop, because
// parts that stop still write to the directory.
func (l *dirLock) watch(ctx context.Context, abandon func(error)) {
	ctx, l.stopWatching = context.WithCancel(ctx)
	l.watchEnded = make(chan struct{})
	go func() {
		defer close(l.watchEnded)
		tick := time.NewTicker(dirCheckPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Other errors, such as one of the disk, do not mean that the directory is a different
			// one.
			if err := l.check(); errors.Is(err, ErrDirReplaced) {
				abandon(err)
				return
			}
		}
	}()
}

// release stops watching and unlocks the directory. A second call does nothing.
func (l *dirLock) release() (err error) {
	l.releaseOnce.Do(func() {
		if l.stopWatching != nil {
			l.stopWatching()
			<-l.watchEnded
		}
		// Closing the file alone would not unlock it while a child process that was forked a moment
		// ago still has it open.
		err = errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
	})
	return err
}
