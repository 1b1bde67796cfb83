package access

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// began is when the tests did. How long they take does not matter to them.
var began = time.Now()

// later is a time at which files are looked at again, whatever was before.
func afterChecks(n int) time.Time { return began.Add(time.Hour + time.Duration(n)*2*checkInterval) }

func mustWriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that changes is loaded again once. If it does not load, the previous value stays, and the error is logged once.
func TestFilesAreReloaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	mustWriteFile(t, file, "one")
	var log bytes.Buffer
	loads := 0
	k, err := newReloader("words", slog.New(slog.NewTextHandler(&log, nil)), func() (*string, error) {
		loads++
		data, err := os.ReadFile(file)
		if text := string(data); err == nil && text != "bad" {
			return &text, nil
		}
		return nil, errors.Join(err, errors.New("it is bad"))
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	said := func() string { defer log.Reset(); return log.String() }
	want := func(at time.Time, text string, times int) {
		t.Helper()
		if got := *k.current(at); got != text || loads != times {
			t.Errorf("%q after %d loads, want %q after %d", got, loads, text, times)
		}
	}
	want(afterChecks(1), "one", 1)
	mustWriteFile(t, file, "longer")
	want(afterChecks(1).Add(checkInterval/2), "one", 1) // it was looked at a moment ago
	want(afterChecks(2), "longer", 2)
	if text := said(); !strings.Contains(text, "loaded again") {
		t.Error(text)
	}
	mustWriteFile(t, file, "bad")
	want(afterChecks(3), "longer", 3)
	if text := said(); strings.Count(text, "it is bad") != 1 {
		t.Error(text)
	}
	want(afterChecks(4), "longer", 3)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(afterChecks(5), "longer", 3)
	if text := said(); strings.Count(text, "level=ERROR") != 1 {
		t.Error(text)
	}
	want(afterChecks(6), "longer", 3)
	if text := said(); text != "" {
		t.Error(text)
	}
	mustWriteFile(t, file, "back")
	want(afterChecks(7), "back", 4)
	// Another file in its place, of the same size and time.
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	mustWriteFile(t, file+".new", "next")
	if err := errors.Join(os.Chtimes(file+".new", info.ModTime(), info.ModTime()), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	want(afterChecks(8), "next", 5)
}

func TestReloaderNeedsItsFiles(t *testing.T) {
	if _, err := newReloader("nothing", slog.New(slog.DiscardHandler), func() (*int, error) { return new(int), nil }, "missing"); err == nil {
		t.Error("no error for a missing file")
	}
	big := filepath.Join(t.TempDir(), "big")
	mustWriteFile(t, big, strings.Repeat("x", maxFileBytes+1))
	if _, err := readFile(big); !errors.Is(err, errFileTooLong) {
		t.Error(err)
	}
}
