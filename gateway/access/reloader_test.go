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

// testsBegan is when the tests began. The times in the tests are relative to it, so that they do
// not depend on how long a test takes.
var testsBegan = time.Now()

// afterChecks returns a time at which a check of the files is due, also if the files were checked
// at a time that afterChecks returned for a lower n.
func afterChecks(n int) time.Time {
	return testsBegan.Add(time.Hour + time.Duration(n)*2*checkInterval)
}

func mustWriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestChangedFileIsLoadedAgain checks that a file that changes is loaded again once. If it does not
// load, the previous value stays, the error is logged once, and each check tries again.
func TestChangedFileIsLoadedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	mustWriteFile(t, file, "one")

	// The value is the text of the file. The text "bad" does not load, and neither does any text
	// while isForbidden is set.
	loads := 0
	isForbidden := false
	load := func() (*string, error) {
		loads++
		if isForbidden {
			return nil, fs.ErrPermission
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text := string(data)
		if text == "bad" {
			return nil, errors.New("it is bad")
		}
		return &text, nil
	}
	var log bytes.Buffer
	r, err := newReloader("words", slog.New(slog.NewTextHandler(&log, nil)), load, file)
	if err != nil {
		t.Fatal(err)
	}
	expectValue := func(now time.Time, want string, wantLoads int) {
		t.Helper()
		if got := *r.current(now); got != want || loads != wantLoads {
			t.Errorf("got the value %q after %d loads, want %q after %d", got, loads, want, wantLoads)
		}
	}
	// expectLogged fails the test unless the text was logged so many times since the last call.
	expectLogged := func(text string, times int) {
		t.Helper()
		if got := strings.Count(log.String(), text); got != times {
			t.Errorf("occurrences of %q in the log: got %d, want %d in:\n%s", text, got, times, log.String())
		}
		log.Reset()
	}
	expectNothingLogged := func() {
		t.Helper()
		if log.Len() != 0 {
			t.Errorf("got the log %q, want nothing, because the error was logged before", log.String())
		}
	}

	// The changed file is loaded again, but only when a check is due.
	expectValue(afterChecks(1), "one", 1)
	mustWriteFile(t, file, "longer")
	expectValue(afterChecks(1).Add(checkInterval/2), "one", 1)
	expectValue(afterChecks(2), "longer", 2)
	expectLogged("msg=\"loaded again\"", 1)

	// The file does not load.
	mustWriteFile(t, file, "bad")
	expectValue(afterChecks(3), "longer", 3)
	expectLogged("it is bad", 1)
	expectValue(afterChecks(4), "longer", 4)
	expectNothingLogged()

	// The file may not be read, and then it may, without a change of its content.
	isForbidden = true
	mustWriteFile(t, file, "allowed")
	expectValue(afterChecks(5), "longer", 5)
	expectLogged(fs.ErrPermission.Error(), 1)
	isForbidden = false
	expectValue(afterChecks(6), "allowed", 6)
	expectLogged("msg=\"loaded again\"", 1)

	// The file is missing, and comes back.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expectValue(afterChecks(7), "allowed", 6)
	expectLogged("level=ERROR", 1)
	expectValue(afterChecks(8), "allowed", 6)
	expectNothingLogged()
	mustWriteFile(t, file, "back")
	expectValue(afterChecks(9), "back", 7)

	// Another file of the same size and time replaces the file.
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	newFile := file + ".new"
	mustWriteFile(t, newFile, "next")
	if err := os.Chtimes(newFile, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	mustRename(t, newFile, file)
	expectValue(afterChecks(10), "next", 8)
}

func TestUnreadableFilesAreRefused(t *testing.T) {
	t.Run("a missing file", func(t *testing.T) {
		load := func() (*int, error) { return new(int), nil }
		if _, err := newReloader("nothing", slog.New(slog.DiscardHandler), load, "missing"); err == nil {
			t.Error("newReloader: got no error, want one")
		}
	})
	t.Run("a file above the limit", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "big")
		mustWriteFile(t, file, strings.Repeat("x", maxFileBytes+1))
		if _, err := readFile(file); !errors.Is(err, errFileTooLong) {
			t.Errorf("readFile: got the error %v, want %v", err, errFileTooLong)
		}
	})
}
