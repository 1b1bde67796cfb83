package embedded

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteThroughKeepsContent: files are as they were, whatever is in them. That they are on disk then, task soak:faults shows.
func TestWriteThroughKeepsContent(t *testing.T) {
	dir := t.TempDir()
	if err := writeThrough(dir); err != nil {
		t.Fatalf("nothing is there: %v", err)
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
			t.Errorf("file %d has %d bytes, %v", n, len(got), err)
		}
	}
	if err := writeThrough(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}

// TestWriteThroughToleratesRemovedFiles: a server that has shut down removes what it has purged in its own time.
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
