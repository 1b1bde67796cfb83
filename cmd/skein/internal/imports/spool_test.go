//go:build unix

package imports

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWaitingForAPipeCanBeInterrupted: a pipe to which nobody writes does not keep the command from ending, and no temporary file is left.
func TestWaitingForAPipeCanBeInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := openInput(ctx, pipe, strings.NewReader("")); !errors.Is(err, context.Canceled) {
		t.Errorf("expected context.Canceled, got %v", err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("expected an empty TMPDIR, got %v, %v", left, err)
	}

	// The goroutine that opens the pipe ends when a writer comes.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

func TestRegularFileIsNotCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "follows.csv")
	if err := os.WriteFile(path, []byte("ann,bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := openInput(t.Context(), path, strings.NewReader("stdin"))
	if want := (inputFile{path: path, name: "follows.csv", outputPrefix: path}); err != nil || *got != want {
		t.Errorf("expected %+v, got %+v, %v", want, got, err)
	}
}

// TestStandardInputHasOneName: standard input is copied, and has the same names whichever path stands for it, so that an import continues.
func TestStandardInputHasOneName(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var names []string
	for _, path := range []string{"-", "/dev/stdin", "/dev/fd/0"} {
		got, err := openInput(t.Context(), path, strings.NewReader("ann,bob\n"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(got.path); string(text) != "ann,bob\n" || err != nil {
			t.Errorf("%s: expected a copy of the input, got %q, %v", path, text, err)
		}
		names = append(names, got.name+" "+got.outputPrefix)
		got.remove()
		if exists(got.path) {
			t.Errorf("%s: expected that the copy is removed", path)
		}
	}
	if names[0] != names[1] || names[0] != names[2] || !strings.HasPrefix(names[0], "stdin stdin-") {
		t.Errorf("expected the same name three times, got %q", names)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
