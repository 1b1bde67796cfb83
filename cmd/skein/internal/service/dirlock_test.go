package service

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/events"
)

// mustLockDir locks a data directory until the end of the test.
func mustLockDir(t *testing.T, dir string) *dirLock {
	t.Helper()
	l, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.release() })
	return l
}

// TestSecondLockIsRefusedUntilRelease: only one process can have a data directory open.
func TestSecondLockIsRefusedUntilRelease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := mustLockDir(t, dir)

	if l, err := lockDir(dir); !errors.Is(err, events.ErrLocked) {
		t.Errorf("second lock: got %v, %v, want ErrLocked", l, err)
	}
	if err := first.check(); err != nil {
		t.Errorf("check of the first lock: got %v, want no error", err)
	}

	// A second release does nothing.
	for n := range 2 {
		if err := first.release(); err != nil {
			t.Errorf("release %d: got %v, want no error", n+1, err)
		}
	}
	mustLockDir(t, dir)
}

// TestReplacedDataDirectoryIsNoticed: the lock of a directory that was removed reports that, even
// after another process has locked a new directory with the same name.
func TestReplacedDataDirectoryIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	old := mustLockDir(t, dir)
	noticed := make(chan error, 1)
	old.watch(t.Context(), func(err error) { noticed <- err })

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := old.check(); !errors.Is(err, ErrDirReplaced) {
		t.Errorf("check after the removal: got %v, want ErrDirReplaced", err)
	}

	replacement := mustLockDir(t, dir)
	if err := old.check(); !errors.Is(err, ErrDirReplaced) {
		t.Errorf("check after the directory was created again: got %v, want ErrDirReplaced", err)
	}
	if err := replacement.check(); err != nil {
		t.Errorf("check of the lock of the new directory: got %v, want no error", err)
	}

	if err := <-noticed; !errors.Is(err, ErrDirReplaced) {
		t.Errorf("watch: got %v, want ErrDirReplaced", err)
	}
}
