//go:build faults || diskfull

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loopDisk is a small ext4 file system on a loop device. A test can fill it, slow it down, and cut
// its power. It needs a user who may mount.
type loopDisk struct {
	image      string // path of the file with the file system
	dir        string // where the file system is mounted
	fillerPath string // path of the file that fills the disk
}

// runTool runs a program and returns what it prints.
func runTool(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s", name, args, err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// newLoopDisk makes a file system of this size and mounts it at a directory.
func newLoopDisk(dir string, mib int64) (*loopDisk, error) {
	d := &loopDisk{image: dir + ".img", dir: dir, fillerPath: filepath.Join(dir, "filler")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	// The image is a sparse file, which takes space as the file system writes to it.
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(d.image, mib<<20); err != nil {
		return nil, err
	}

	// -m 0 reserves no blocks for root, who would otherwise not see a full disk.
	if _, err := runTool(context.Background(), "mkfs.ext4", "-q", "-m", "0", d.image); err != nil {
		return nil, err
	}
	return d, d.mount()
}

// mountLoopDisk mounts a new loop disk at a directory until the end of the test.
func mountLoopDisk(t *testing.T, dir string, mib int64) *loopDisk {
	t.Helper()
	d, err := newLoopDisk(dir, mib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *loopDisk) mount() error {
	_, err := runTool(context.Background(), "mount", "-o", "loop", d.image, d.dir)
	return err
}

func (d *loopDisk) unmount() (err error) {
	// The kernel may still be closing the files of a process that was just killed.
	for range 50 {
		_, err = runTool(context.Background(), "umount", d.dir)
		if err == nil {
			return nil
		}
		sleepOrDone(context.Background(), 100*time.Millisecond)
	}
	return err
}

// remove unmounts the disk and removes its image.
func (d *loopDisk) remove() error { return errors.Join(d.unmount(), os.Remove(d.image)) }

// freeBytes returns how many bytes are free.
func (d *loopDisk) freeBytes() (uint64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(d.dir, &st)
	return st.Bavail * uint64(st.Bsize), err
}

// fill takes all space that is left on the disk, to the last byte. It allocates most of the space
// at once, and writes the last 4 MiB.
func (d *loopDisk) fill() error {
	f, err := os.OpenFile(d.fillerPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()

	const writtenBytes = 4 << 20
	free, err := d.freeBytes()
	if err == nil && free > 2*writtenBytes {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		// Another process may have taken some of the free space meanwhile.
		err = unix.Fallocate(int(f.Fd()), 0, info.Size(), int64(free-writtenBytes))
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}

	// Write ever smaller chunks, until not even two bytes fit.
	chunk := make([]byte, 64<<10)
	for len(chunk) > 0 {
		_, err := f.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/8]
		case err != nil:
			return err
		}
	}
	return nil
}

// fillToLastByte fills the disk repeatedly until no byte is free, because other processes may
// release space meanwhile.
func (d *loopDisk) fillToLastByte(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.fill(); err != nil {
			return err
		}
		if free, err := d.freeBytes(); err != nil || free == 0 {
			return err
		}
	}
	return ctx.Err()
}

// removeFiller releases the space that was filled.
func (d *loopDisk) removeFiller() error { return os.Remove(d.fillerPath) }

// buildProgram builds a program without the race detector, as people run it.
func buildProgram(t *testing.T, dir, name, pkg string, flags ...string) string {
	t.Helper()
	program := dir + "/" + name
	args := append([]string{"build", "-o", program}, flags...)
	if out, err := runTool(t.Context(), "go", append(args, pkg)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
