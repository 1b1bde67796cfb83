package atomicfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/events/atomicfile"
)

// TestFile: a file is there when it is whole, or not at all.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	holds := func(want string) {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range list {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got += e.Name() + "=" + string(data) + " "
		}
		if got != want {
			t.Errorf("the directory holds %q, want %q", got, want)
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
		holds("out=" + text + " ")
	}
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
	holds("out=two ")
	if _, err := atomicfile.Create(filepath.Join(dir, "none", "out")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := atomicfile.Write(name, []byte("three")); err != nil {
		t.Fatal(err)
	}
	holds("out=three ")
}
