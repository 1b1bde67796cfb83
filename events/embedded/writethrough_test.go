package embedded

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteThroughKeepsContent checks that writeThrough does not change the files. That the files
// are on disk afterwards is checked by task soak:faults.
func TestWriteThroughKeepsContent(t *testing.T) {
	dir := t.TempDir()
	if err := writeThrough(dir); err != nil {
		t.Fatalf("writeThrough of an empty directory: got error %v, want none", err)
	}

	msgs := filepath.Join(dir, "jetstream", "a", "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}

	content := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n*10_000) }
	for n := range 12 {
		if err := os.WriteFile(filepath.Join(msgs, fmt.Sprint(n, blockSuffix)), content(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := writeThrough(dir); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		if got, err := os.ReadFile(filepath.Join(msgs, fmt.Sprint(n, blockSuffix))); err != nil || !bytes.Equal(got, content(n)) {
			t.Errorf("file %d: got %d bytes and error %v, want the %d bytes that were written", n, len(got), err, n*10_000)
		}
	}

	if err := writeThrough(filepath.Join(dir, "none")); err == nil {
		t.Error("writeThrough of a missing directory: got no error, want one")
	}
}

// TestWriteThroughToleratesRemovedFiles removes files while writeThrough runs, as a server does
// that has shut down and still removes purged files.
func TestWriteThroughToleratesRemovedFiles(t *testing.T) {
	dir := t.TempDir()
	purged := filepath.Join(dir, "jetstream", "a", "__msgs__")
	for range 30 {
		if err := os.MkdirAll(purged, 0o700); err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			if err := os.WriteFile(filepath.Join(purged, fmt.Sprint(n, blockSuffix)), []byte("gone"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		removed := make(chan error, 1)
		go func() { removed <- os.RemoveAll(purged) }()

		err := writeThrough(dir)
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
