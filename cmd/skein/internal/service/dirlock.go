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
	// lockName is the name of the file in the data directory that the process holds a lock on. Nothing is written to it.
	lockFileName = "LOCK"
	// lookEvery is the time between two looks at whether the data directory is still the one that was locked.
	dirCheckPeriod = time.Second
)

// ErrDirReplaced means that the data directory was removed, or removed and created again, while the process had it open. The process must
// not write there any more: the files that it would create by their names belong to another process.
var ErrDirReplaced = errors.New("the data directory was removed or replaced while this process had it open")

// dirLock is the lock of a data directory. A process holds it from before it opens a file there until it has closed all of them. The
// embedded log and the stores have locks of their own, but a new directory has new lock files, which say nothing of a process that still has
// the old directory open. So dirLock also compares the file that it has locked with the one that now has its name.
type dirLock struct {
	path string
	file *os.File

	stopOnce sync.Once
	stop     context.CancelFunc
	ended    chan struct{}
}

// lockDir creates the data directory if necessary, and locks it. It fails with [events.ErrLocked] if another process has the lock.
func lockDir(dir string) (*dirLock, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
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

		// Somebody may have removed the file between its opening and its locking. Then another process can lock its successor.
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

// check fails with [ErrDirReplaced] if the locked file is no longer the one in the data directory.
func (l *dirLock) check() error {
	held, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock of the data directory: %w", err)
	}
	named, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, named) {
		return fmt.Errorf("%w: %s is not the file that was locked", ErrDirReplaced, l.path)
	}
	if err != nil {
		return fmt.Errorf("look at the lock of the data directory: %w", err)
	}
	return nil
}

// watch calls abandon, once, soon after the directory was replaced. It goes on until the lock is released: a process that is stopping
// still writes.
func (l *dirLock) watch(ctx context.Context, abandon func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	l.stop = cancel
	l.ended = make(chan struct{})
	go func() {
		defer close(l.ended)
		tick := time.NewTicker(dirCheckPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Any other error, such as one of the disk, says nothing about the directory.
			if err := l.check(); errors.Is(err, ErrDirReplaced) {
				abandon(err)
				return
			}
		}
	}()
}

// release ends the watching and gives the lock back. A second call does nothing. It unlocks before it closes the file, because a process
// that was forked a moment ago may have the file open as well.
func (l *dirLock) release() (err error) {
	l.stopOnce.Do(func() {
		if l.stop != nil {
			l.stop()
			<-l.ended
		}
		err = errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
	})
	return err
}
