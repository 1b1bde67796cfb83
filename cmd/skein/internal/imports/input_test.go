//go:build unix

package imports

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe that nobody opens for writing does not keep the command from ending, and no temporary file
// stays behind.
func TestWaitingForAPipeCanBeInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := openInput(ctx, pipe, strings.NewReader(""))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("openInput: got %v, want context.Canceled", err)
	}

	remaining, err := os.ReadDir(os.TempDir())
	if err != nil || len(remaining) > 0 {
		t.Errorf("TMPDIR: got %v, %v, want no files", remaining, err)
	}

	// The goroutine that opens the pipe waits for a writer. Let it end.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}

// A regular file is read where it is.
func TestRegularFileIsNotCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "follows.csv")
	if err := os.WriteFile(path, []byte("ann,bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := openInput(t.Context(), path, strings.NewReader("stdin"))
	if err != nil {
		t.Fatal(err)
	}

	want := inputFile{path: path, name: "follows.csv", outputPrefix: path}
	if *got != want {
		t.Errorf("openInput: got %+v, want %+v", *got, want)
	}
}

// Standard input is copied. It has the same names whichever path stands for it, so that an import
// continues.
func TestStandardInputHasOneName(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var names []string
	for _, path := range []string{"-", "/dev/stdin", "/dev/fd/0"} {
		t.Run(path, func(t *testing.T) {
			input, err := openInput(t.Context(), path, strings.NewReader("ann,bob\n"))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, input.name+" "+input.outputPrefix)

			content, err := os.ReadFile(input.path)
			if string(content) != "ann,bob\n" || err != nil {
				t.Errorf("copy of the input: got %q, %v, want ann,bob", content, err)
			}

			input.remove()
			if _, err := os.Stat(input.path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("copy of the input after remove: got %v, want no file", err)
			}
		})
	}

	if len(names) != 3 || names[0] != names[1] || names[0] != names[2] || !strings.HasPrefix(names[0], "stdin stdin-") {
		t.Errorf("names: got %q, want the same one three times, which begins with stdin stdin-", names)
	}
}
