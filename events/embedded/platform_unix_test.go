//go:build darwin || dragonfly || freebsd || linux

package embedded

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnlockReleasesLockHeldByChild starts a child process that has the lock file open. When the
// owner of the lock unlocks it, the lock can be taken again, although the child still has the file
// open.
func TestUnlockReleasesLockHeldByChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockFile)
	f, err := lockDir(path)
	if err != nil {
		t.Fatal(err)
	}

	// The child inherits the open file, and keeps it until its input ends.
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.ExtraFiles = []*os.File{f}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(in.Close(), child.Wait()); err != nil {
			t.Error(err)
		}
	}()

	if err := unlockDir(f); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unlockDir(again); err != nil {
		t.Error(err)
	}
}
