//go:build faults

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// processClock is the clock of one process: the clock of the machine and an offset from a file.
// Like setting the clock of a machine, the offset does not affect timers or measured durations.
type processClock struct {
	// file is the path of the file with the offset in seconds, an integer of 64 bits.
	file string
	// url is a page of the process. Its answers have a date, which shows the clock.
	url string
}

// clockFileVar names the environment variable with the path of the file, for programs that
// [buildWithClock] has built.
const clockFileVar = "SKEIN_SOAK_CLOCK"

// newProcessClock makes the file of a clock with the offset 0.
func newProcessClock(t *testing.T, file, url string) *processClock {
	t.Helper()
	if err := os.WriteFile(file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return &processClock{file: file, url: url}
}

// setOffset sets the clock ahead, or back if the offset is negative, by whole seconds.
func (c *processClock) setOffset(offset time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()

	// Overwrite the file in place, because the process has mapped it.
	seconds := int64(offset / time.Second)
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(seconds)), 0)
	return err
}

// measureOffset returns how far the date in an answer of the process is ahead of the clock of the
// machine. The answer may take up to readTime, and the measured offset is too small by that time.
func (c *processClock) measureOffset(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	date, err := http.ParseTime(res.Header.Get("Date"))
	return time.Until(date).Round(time.Second), err
}

// jumpClock sets the clock of a process ahead or back for a while, by a minute at least and by
// maxOffset at most. The proof is the date in the answers of the process.
func (c *faultSoak) jumpClock(p *soakProcess, maxOffset time.Duration) (string, error) {
	// The offset is larger than the error of a measurement, which is up to readTime.
	offset := time.Minute + time.Duration(c.random.Int64N(int64(maxOffset-time.Minute))).Truncate(time.Second)
	if c.random.IntN(2) == 0 {
		offset = -offset
	}
	if err := p.clock.setOffset(offset); err != nil {
		return "", err
	}
	sleepOrDone(c.ctx, c.faultDuration(20*time.Second))

	// On a busy machine, an answer may take longer than one measurement waits.
	var measured time.Duration
	err := eventually(c.ctx, func(ctx context.Context) (err error) {
		measured, err = p.clock.measureOffset(ctx)
		return err
	})
	if err == nil && (measured-offset).Abs() > readTime {
		err = fmt.Errorf("offset of the clock of %s: got %v, want %v", p.name, measured, offset)
	}

	// Heal the fault also if it could not be measured.
	err = errors.Join(err, p.clock.setOffset(0))
	return fmt.Sprintf("%s: a date %v ahead", p.name, measured), err
}

// buildWithClock builds a program whose time.Now adds the seconds in the file of [clockFileVar]. It
// lets the compiler read a changed copy of the package time.
func buildWithClock(t *testing.T, dir, name, pkg string) string {
	t.Helper()
	root, err := runTool(t.Context(), "go", "env", "GOROOT")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(root), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}

	// Add the offset after each line that reads the clock of the machine.
	const readClock = "\tsec, nsec, mono := runtimeNow()\n"
	patched := strings.ReplaceAll(string(text), readClock, readClock+"\tsec += *clockOffset\n")
	if !strings.Contains(patched, "*clockOffset") {
		t.Fatalf("%s: got no line %q, want one", source, readClock)
	}

	// Replace time.go by its patched copy, and add a file to the package.
	patchedFile := filepath.Join(dir, "time.go")
	offsetFile := filepath.Join(dir, "clock_offset.go")
	overlayFile := filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {source: patchedFile, filepath.Join(filepath.Dir(source), "clock_offset.go"): offsetFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{patchedFile: patched, offsetFile: clockOffsetSource, overlayFile: string(overlay)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return buildProgram(t, dir, name, pkg, "-overlay", overlayFile)
}

// clockOffsetSource is the source of a file that is added to the package time. It maps the file of
// [clockFileVar] into memory, so that time.Now sees the current offset without a system call.
// Without the environment variable, the offset is 0.
const clockOffsetSource = `package time

import (
	"syscall"
	"unsafe"
)

// clockOffset is in seconds.
var clockOffset = mapClockOffset()

func mapClockOffset() *int64 {
	path, ok := syscall.Getenv("` + clockFileVar + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	data, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&data[0]))
}
`
