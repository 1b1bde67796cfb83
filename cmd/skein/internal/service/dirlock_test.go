package service

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/events"
)

func mustLockDir(t *testing.T, dir string) *dirLock {
	t.Helper()
	l, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.release() })
	return l
}

// TestOneProcessHasADataDirectory: a second lock is refused until the first is released.
func TestOneProcessHasADataDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := mustLockDir(t, dir)
	if l, err := lockDir(dir); !errors.Is(err, events.ErrLocked) {
		t.Errorf("expected ErrLocked, got %v, %v", l, err)
	}
	if err := first.check(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := first.release(); err != nil {
			t.Error(err)
		}
	}
	mustLockDir(t, dir)
}

// TestReplacedDataDirectoryIsNoticed: the lock of a directory that was removed says so, also when another process has the new one.
func TestReplacedDataDirectoryIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	old := mustLockDir(t, dir)
	noticed := make(chan error, 1)
	old.watch(t.Context(), func(err error) { noticed <- err })

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := old.check(); !errors.Is(err, ErrDirReplaced) {
		t.Errorf("removed: expected ErrDirReplaced, got %v", err)
	}
	replacement := mustLockDir(t, dir)
	if err := old.check(); !errors.Is(err, ErrDirReplaced) {
		t.Errorf("created again: expected ErrDirReplaced, got %v", err)
	}
	if err := replacement.check(); err != nil {
		t.Errorf("the new directory: %v", err)
	}
	if err := <-noticed; !errors.Is(err, ErrDirReplaced) {
		t.Errorf("expected ErrDirReplaced, got %v", err)
	}
}
