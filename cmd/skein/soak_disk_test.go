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

	// These are EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH of the kernel.
	const shutdown = 0x8004587d
	const withoutFlush = 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush); err != nil {
		return "", fmt.Errorf("EXT4_IOC_SHUTDOWN: %w", err)
	}

	err = os.WriteFile(filepath.Join(d.dir, "probe"), []byte("x"), 0o600)
	if !errors.Is(err, syscall.EIO) {
		return "", errors.Join(errors.New("a write after the power cut did not end with EIO"), err)
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
	const rootGroup = "/sys/fs/cgroup/blkio"
	const limitFile = "blkio.throttle.write_bps_device"
	const processesFile = "cgroup.procs"
	group := filepath.Join(rootGroup, fmt.Sprint("skein-soak-", pid))
	device, err := d.device()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		return nil, fmt.Errorf("a slow disk needs cgroups of version 1: %w", err)
	}

	// The limit 0 is none. The kernel moves a process into the group whose file it is written to.
	write := func(dir, file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
	removeLimit := func() error {
		err := errors.Join(write(group, limitFile, device+" 0"), write(rootGroup, processesFile, strconv.Itoa(pid)))

		// A group can be removed only after the kernel has moved the process out of it.
		return errors.Join(err, eventually(context.Background(), func(context.Context) error {
			err := os.Remove(group)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}))
	}

	err = errors.Join(write(group, limitFile, fmt.Sprintf("%s %d", device, bytesPerSecond)),
		write(group, processesFile, strconv.Itoa(pid)))
	if err != nil {
		return nil, errors.Join(err, removeLimit())
	}

	return func() (string, error) {
		// The counts are gone with the group. A line is the device, the operation and the bytes.
		counted, err := os.ReadFile(filepath.Join(group, "blkio.throttle.io_service_bytes"))
		err = errors.Join(err, removeLimit())

		for line := range strings.Lines(string(counted)) {
			fields := strings.Fields(line)
			if len(fields) == 3 && fields[0] == device && fields[1] == "Write" && fields[2] != "0" {
				return fmt.Sprintf("%s bytes written at %d bytes/s", fields[2], bytesPerSecond), err
			}
		}
		return "", errors.Join(err, fmt.Errorf("bytes written to the slow disk %s: got none, want some: %q", device, counted))
	}, nil
}

// attachStrace attaches strace to a process and changes the result of its fsync calls as the option
// inject of strace says, until end is called. The proof is the number of calls that strace has
// marked in its log, which is written to logPath.
func attachStrace(pid int, injection, mark, logPath string) (end func() (proof string, err error), err error) {
	cmd := exec.CommandContext(context.Background(), "strace", "-f", "-qq", "-p", strconv.Itoa(pid), "-o", logPath,
		"-e", "trace=fsync,fdatasync,sync_file_range", "-e", "inject=fsync,fdatasync,sync_file_range:"+injection)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	return func() (string, error) {
		// SIGINT lets strace detach from the process and end. If strace is killed instead, the
		// kernel detaches it.
		_ = cmd.Process.Signal(syscall.SIGINT)
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}

		text, err := os.ReadFile(logPath)
		count := bytes.Count(text, []byte(mark))
		if count == 0 {
			return "", errors.Join(err, fmt.Errorf("calls that strace marks as %s: got none, want some: %s %s", mark, &stderr, text))
		}
		return fmt.Sprintf("%d calls %s", count, mark), nil
	}, nil
}

// randomFsyncDelay returns an injection for [attachStrace] that delays every fsync by 50
// milliseconds to about a second.
func (c *faultSoak) randomFsyncDelay() string {
	microseconds := 50_000 + c.random.IntN(1_000_000)
	return fmt.Sprintf("delay_enter=%d", microseconds)
}

// processState returns the state letter of a process, such as T for stopped.
func processState(pid int) string { return readState(fmt.Sprintf("/proc/%d/status", pid)) }

// readState returns the state letter of a process or a thread from its status file. If the file
// cannot be read, it returns the error as text, which equals no state.
func readState(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(text), "\nState:\t")
	return rest[:min(1, len(rest))]
}
