//go:build faults

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
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
	// file has the offset.
	file string
	// url is a page of the process, whose answers have a date.
	url string
}

// clockFileVar names the environment variable with the file, for programs that [buildWithClock] has
// built.
const clockFileVar = "SKEIN_SOAK_CLOCK"

// newClock makes a clock without an offset.
func newClock(t *testing.T, file, page string) *processClock {
	t.Helper()
	if err := os.WriteFile(file, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	return &processClock{file, page}
}

// setOffset sets the clock ahead, or back if the offset is negative.
func (c *processClock) setOffset(by time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// Overwrite the file in place, because the process has mapped it.
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(by/time.Second))), 0)
	return err
}

// measureOffset returns how far the date in an answer of the process is ahead.
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
	at, err := http.ParseTime(res.Header.Get("Date"))
	return time.Until(at).Round(time.Second), err
}

// jumpClock sets the clock of a process ahead or back for a while, by at most the given time. The
// proof is the date in the answers of the process.
func (c *faultSoak) jumpClock(p *soakProcess, most time.Duration) (string, error) {
	by := time.Minute + time.Duration(c.random.Int64N(int64(most-time.Minute))).Truncate(time.Second)
	if c.random.IntN(2) == 0 {
		by = -by
	}
	if err := p.clock.setOffset(by); err != nil {
		return "", err
	}

	sleepOrDone(c.ctx, c.faultDuration(20*time.Second))
	// On a busy machine, an answer may take longer than one measurement waits.
	var shown time.Duration
	err := eventually(c.ctx, func(ctx context.Context) (err error) {
		shown, err = p.clock.measureOffset(ctx)
		return err
	})
	if off := shown - by; err == nil && (off < -readTime || off > readTime) {
		err = fmt.Errorf("the clock of %s is %v ahead, not %v", p.name, shown, by)
	}

	if back := p.clock.setOffset(0); err == nil {
		err = back
	}
	return fmt.Sprintf("%s: a date %v ahead", p.name, shown), err
}

// buildWithClock builds a program whose time.Now adds the seconds in the file of [clockFileVar], an
// integer of 64 bits.
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

	// Patch a copy of time.go, and let the compiler read the copy.
	const reads = "\tsec, nsec, mono := runtimeNow()\n"
	patched := strings.ReplaceAll(string(text), reads, reads+"\tsec += *clockAhead\n")
	if strings.Count(patched, "*clockAhead") == 0 {
		t.Fatalf("%s does not have %q", source, reads)
	}

	now, ahead, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "clock_ahead.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{
		"Replace": {source: now, filepath.Join(filepath.Dir(source), "clock_ahead.go"): ahead},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{now: patched, ahead: clockSource, overlay: string(list)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return buildProgram(t, dir, name, pkg, "-overlay", overlay)
}

// clockSource is a file that is added to the package time.
const clockSource = `package time

import (
	"syscall"
	"unsafe"
)

var clockAhead = mapClock()

func mapClock() *int64 {
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
