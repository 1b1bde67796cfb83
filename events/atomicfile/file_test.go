package atomicfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/events/atomicfile"
)

// TestFileAppearsOnlyWhenCommitted checks that a file appears under its name with its whole content
// when it is committed, and that a file that is only closed leaves nothing behind.
func TestFileAppearsOnlyWhenCommitted(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	checkContent := func(want string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got += e.Name() + "=" + string(data) + " "
		}
		if got != want {
			t.Errorf("content of the directory: got %q, want %q", got, want)
		}
	}

	for _, text := range []string{"one", "two"} {
		f, err := atomicfile.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(f, text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Commit(), f.Close()); err != nil {
			t.Fatal(err)
		}
		checkContent("out=" + text + " ")
	}

	// Without Commit, the old file stays and the temporary one is removed.
	f, err := atomicfile.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	checkContent("out=two ")

	if _, err := atomicfile.Create(filepath.Join(dir, "none", "out")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Create in a missing directory: got error %v, want %v", err, os.ErrNotExist)
	}
	if err := atomicfile.Write(name, []byte("three")); err != nil {
		t.Fatal(err)
	}
	checkContent("out=three ")
}
