package access

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// began is when the tests began. The times in the tests are relative to it, so that they do not
// depend on how long a test takes.
var began = time.Now()

// afterChecks returns a time at which a check of the files is due, also after a check at a time
// that it returned for a lower n.
func afterChecks(n int) time.Time { return began.Add(time.Hour + time.Duration(n)*2*checkInterval) }

func mustWriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChangedFileIsLoadedAgain demands that a file that changes is loaded again once. If it does
// not load, the previous value stays, the error is logged once, and each check tries again.
func TestChangedFileIsLoadedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	mustWriteFile(t, file, "one")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	loads := 0
	forbidden := false
	load := func() (*string, error) {
		loads++
		if forbidden {
			return nil, fs.ErrPermission
		}
		data, err := os.ReadFile(file)
		text := string(data)
		if err == nil && text != "bad" {
			return &text, nil
		}
		return nil, errors.Join(err, errors.New("it is bad"))
	}
	r, err := newReloader("words", logger, load, file)
	if err != nil {
		t.Fatal(err)
	}
	takeLog := func() string { defer log.Reset(); return log.String() }
	expect := func(now time.Time, wantText string, wantLoads int) {
		t.Helper()
		if got := *r.current(now); got != wantText || loads != wantLoads {
			t.Errorf("got %q after %d loads, expected %q after %d", got, loads, wantText, wantLoads)
		}
	}

	expect(afterChecks(1), "one", 1)
	mustWriteFile(t, file, "longer")
	expect(afterChecks(1).Add(checkInterval/2), "one", 1) // the files were checked a moment ago
	expect(afterChecks(2), "longer", 2)
	if text := takeLog(); !strings.Contains(text, "loaded again") {
		t.Errorf("the log does not say that the file was loaded again: %q", text)
	}

	// The file does not load.
	mustWriteFile(t, file, "bad")
	expect(afterChecks(3), "longer", 3)
	if text := takeLog(); strings.Count(text, "it is bad") != 1 {
		t.Errorf("the log does not have the error once: %q", text)
	}
	expect(afterChecks(4), "longer", 4)
	if text := takeLog(); text != "" {
		t.Errorf("the log repeats the error of the file that does not load: %q", text)
	}

	// The file may not be read, and then it may, without a change of its content.
	forbidden = true
	mustWriteFile(t, file, "allowed")
	expect(afterChecks(5), "longer", 5)
	if text := takeLog(); strings.Count(text, fs.ErrPermission.Error()) != 1 {
		t.Errorf("the log does not have one error about the permission: %q", text)
	}
	forbidden = false
	expect(afterChecks(6), "allowed", 6)
	takeLog()

	// The file is missing, and comes back.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(afterChecks(7), "allowed", 6)
	if text := takeLog(); strings.Count(text, "level=ERROR") != 1 {
		t.Errorf("the log does not have one error about the missing file: %q", text)
	}
	expect(afterChecks(8), "allowed", 6)
	if text := takeLog(); text != "" {
		t.Errorf("the log repeats the error of the missing file: %q", text)
	}
	mustWriteFile(t, file, "back")
	expect(afterChecks(9), "back", 7)

	// Another file of the same size and time replaces the file.
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	mustWriteFile(t, file+".new", "next")
	if err := errors.Join(os.Chtimes(file+".new", info.ModTime(), info.ModTime()), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	expect(afterChecks(10), "next", 8)
}

func TestUnreadableFilesAreRefused(t *testing.T) {
	load := func() (*int, error) { return new(int), nil }
	if _, err := newReloader("nothing", slog.New(slog.DiscardHandler), load, "missing"); err == nil {
		t.Error("newReloader accepts a missing file, expected an error")
	}
	big := filepath.Join(t.TempDir(), "big")
	mustWriteFile(t, big, strings.Repeat("x", maxFileBytes+1))
	if _, err := readFile(big); !errors.Is(err, errFileTooLong) {
		t.Errorf("a file above the limit: got %v, expected %v", err, errFileTooLong)
	}
}
