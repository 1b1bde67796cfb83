//go:build unix

package bucket_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skein-feed/skein/events/bucket"
)

// TestLinksAreNotFollowed checks that links in the directory of a bucket are not followed, so no file
// outside the directory is read, written, listed or removed. A pipe does not block a reader.
func TestLinksAreNotFollowed(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "bucket")
	outside := filepath.Join(top, "outside")
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}

	links := map[string]string{"file": secret, "dir": outside, "relative": "../outside", "device": "/dev/zero"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"file", "device", "pipe", "dir/secret", "relative/secret"} {
		if r, err := b.Get(t.Context(), name, 0, -1); err == nil {
			r.Close()
			t.Errorf("Get(%q): got an object, want an error", name)
		}
	}

	for _, name := range []string{"dir/new", "relative/new", "dir/deep/new"} {
		if err := b.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("Put(%q): got no error, want one", name)
		}
	}

	for _, name := range []string{"dir/secret", "relative/secret"} {
		if err := b.Delete(t.Context(), name); err == nil {
			t.Errorf("Delete(%q): got no error, want one", name)
		}
	}

	// Put replaces the link itself. The file to which it pointed stays as it was.
	if err := b.Put(t.Context(), "file", strings.NewReader("x"), 1); err != nil {
		t.Error(err)
	}

	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("file outside the bucket: got %q and error %v, want secret", text, err)
	}
	if objects, err := b.List(t.Context(), ""); err != nil || len(objects) != 1 || objects[0].Name != "file" {
		t.Errorf("objects: got %+v and error %v, want file", objects, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 { // only the secret
		t.Errorf("files outside the bucket: got %v and error %v, want one", left, err)
	}
}
