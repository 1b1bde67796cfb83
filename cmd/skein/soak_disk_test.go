//go:build faults

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cutPower makes the file system lose everything that was not yet written through to the disk. It
// uses EXT4_IOC_SHUTDOWN without flushing the journal. The proof is that a write fails with EIO
// afterwards.
func (d *loopDisk) cutPower() (proof string, err error) {
	f, err := os.Open(d.dir)
	if err != nil {
		return "", err
	}
	defer f.Close()

	const shutdown, withoutFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush); err != nil {
		return "", fmt.Errorf("EXT4_IOC_SHUTDOWN: %w", err)
	}

	err = os.WriteFile(filepath.Join(d.dir, "probe"), []byte("x"), 0o600)
	if !errors.Is(err, syscall.EIO) {
		return "", fmt.Errorf("after the power cut a write ended with %w", err)
	}
	return "a write ended with EIO", nil
}

// restorePower mounts the disk again after a power cut. No process may have files of it open.
func (d *loopDisk) restorePower() error {
	if err := d.unmount(); err != nil {
		return err
	}
	return d.mount()
}

// device returns the major and minor number of the loop device.
func (d *loopDisk) device() (string, error) {
	out, err := runTool(context.Background(), "losetup", "-n", "-O", "NAME", "-j", d.image)
	if err != nil {
		return "", err
	}
	number, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(strings.TrimSpace(out)), "dev"))
	return strings.TrimSpace(string(number)), err
}

// limitWrites limits the bytes per second that a process writes to the disk, until end is called.
// The proof is the number of bytes that the kernel has counted. It needs the blkio controller of
// cgroups of version 1.
func (d *loopDisk) limitWrites(pid, bytesPerSecond int) (end func() (proof string, err error), err error) {
	const root = "/sys/fs/cgroup/blkio"
	group := filepath.Join(root, fmt.Sprint("skein-soak-", pid))
	device, err := d.device()
	if err != nil {
		return nil, err
	}

	write := func(dir, file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }

	if err := os.Mkdir(group, 0o700); err != nil {
		return nil, fmt.Errorf("a slow disk needs cgroups of version 1: %w", err)
	}

	err = errors.Join(write(group, "blkio.throttle.write_bps_device", fmt.Sprintf("%s %d", device, bytesPerSecond)),
		write(group, "cgroup.procs", strconv.Itoa(pid)))
	removeLimit := func() error {
		err := errors.Join(write(group, "blkio.throttle.write_bps_device", device+" 0"),
			write(root, "cgroup.procs", strconv.Itoa(pid)))

		// A group can be removed only after the kernel has moved the process out of it.
		return errors.Join(err, eventually(context.Background(), func(context.Context) error {
			err := os.Remove(group)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}))
	}
	if err != nil {
		return nil, errors.Join(err, removeLimit())
	}

	return func() (string, error) {
		counted, err := os.ReadFile(filepath.Join(group, "blkio.throttle.io_service_bytes"))
		err = errors.Join(err, removeLimit())

		for line := range strings.Lines(string(counted)) {
			if part := strings.Fields(line); len(part) == 3 && part[0] == device && part[1] == "Write" && part[2] != "0" {
				return fmt.Sprintf("%s bytes written at %d bytes/s", part[2], bytesPerSecond), err
			}
		}
		return "", errors.Join(err, fmt.Errorf("nothing was written to the slow disk: %q", counted))
	}, nil
}

// attachStrace attaches strace to a process and changes the result of its fsync calls as the option
// inject of strace says, until end is called. The proof is the number of calls that strace has
// marked in its log.
func attachStrace(pid int, what, mark, log string) (end func() (proof string, err error), err error) {
	cmd := exec.CommandContext(context.Background(), "strace", "-f", "-qq", "-p", strconv.Itoa(pid), "-o", log,
		"-e", "trace=fsync,fdatasync,sync_file_range", "-e", "inject=fsync,fdatasync,sync_file_range:"+what)
	var says bytes.Buffer
	cmd.Stderr = &says
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (string, error) {
		_ = cmd.Process.Signal(syscall.SIGINT) // strace detaches from the process
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}

		text, err := os.ReadFile(log)
		if n := bytes.Count(text, []byte(mark)); n > 0 {
			return fmt.Sprintf("%d calls %s", n, mark), nil
		}
		return "", errors.Join(err, fmt.Errorf("strace changed no call: %s %s", &says, text))
	}, nil
}

// processState returns the state letter of a process, such as T for stopped.
func processState(pid int) string { return readState(fmt.Sprintf("/proc/%d/status", pid)) }

// readState returns the state letter of a process or a thread from its status file.
func readState(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(text), "\nState:\t")
	return rest[:min(1, len(rest))]
}
