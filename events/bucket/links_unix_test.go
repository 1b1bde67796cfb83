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

// Links in the directory of a bucket lead nowhere: no file outside it is read, written, listed or removed. A
// pipe does not keep a reader waiting.
func TestLinksAreNotFollowed(t *testing.T) {
	top := t.TempDir()
	dir, outside := filepath.Join(top, "bucket"), filepath.Join(top, "outside")
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
	for name, to := range map[string]string{"file": secret, "dir": outside, "relative": "../outside", "device": "/dev/zero"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "device", "pipe", "dir/secret", "relative/secret"} {
		if r, err := b.Get(t.Context(), name, 0, -1); err == nil {
			r.Close()
			t.Errorf("%s was read", name)
		}
	}
	for _, name := range []string{"dir/new", "relative/new", "dir/deep/new"} {
		if err := b.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	for _, name := range []string{"dir/secret", "relative/secret"} {
		if err := b.Delete(t.Context(), name); err == nil {
			t.Errorf("%s was removed", name)
		}
	}
	// The link itself is replaced, and what it named stays as it was.
	if err := b.Put(t.Context(), "file", strings.NewReader("x"), 1); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("%q, %v", text, err)
	}
	if objects, err := b.List(t.Context(), ""); err != nil || len(objects) != 1 || objects[0].Name != "file" {
		t.Errorf("%+v, %v", objects, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
