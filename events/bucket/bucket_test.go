package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/bucket"
)

func TestDirectoryIsABucket(t *testing.T) {
	b, err := bucket.NewDir(filepath.Join(t.TempDir(), "new", "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	checkConformance(t, b)
}

// TestCheckWritableNamesPathAndUser: a directory of another user is refused with its path and the id of the user who has to be able to write there.
func TestCheckWritableNamesPathAndUser(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.CheckWritable(b); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the check left %v, %v", entries, err)
	}
	if os.Getuid() == 0 {
		return // root may write everywhere; task deploy:try runs the service as another user
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := bucket.CheckWritable(b); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("expected that %s is refused, got %v", dir, err)
	}
}

// conform is what every bucket does. The bucket is empty.
func checkConformance(t *testing.T, b bucket.Bucket) {
	ctx := t.Context()
	t.Run("objects", func(t *testing.T) { checkObjects(ctx, t, b) })
	t.Run("ranges", func(t *testing.T) { checkRanges(ctx, t, b) })
	t.Run("sizes", func(t *testing.T) { checkSizes(ctx, t, b) })
	t.Run("names", func(t *testing.T) { checkNames(ctx, t, b) })
	t.Run("list", func(t *testing.T) { checkList(ctx, t, b) })
	t.Run("large", func(t *testing.T) { checkLargeObject(ctx, t, b) })
	t.Run("context", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := b.Put(ended, "late", strings.NewReader("x"), 1); !errors.Is(err, context.Canceled) {
			t.Errorf("put: %v", err)
		}
		if _, err := readRange(ctx, b, "late", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("it was put: %v", err)
		}
	})
}

func mustPut(ctx context.Context, t *testing.T, b bucket.Bucket, name, content string) {
	t.Helper()
	if err := b.Put(ctx, name, strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

func readRange(ctx context.Context, b bucket.Bucket, name string, offset, length int64) (string, error) {
	r, err := b.Get(ctx, name, offset, length)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

func checkObjects(ctx context.Context, t *testing.T, b bucket.Bucket) {
	if _, err := readRange(ctx, b, "a/b", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("before put: %v", err)
	}
	for _, content := range []string{"one", "", "three times"} {
		mustPut(ctx, t, b, "a/b", content)
		if got, err := readRange(ctx, b, "a/b", 0, -1); err != nil || got != content {
			t.Errorf("got %q (%v), want %q", got, err, content)
		}
	}
	if _, err := readRange(ctx, b, "a", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("a part of a name: %v", err)
	}
	for range 2 {
		if err := b.Delete(ctx, "a/b"); err != nil {
			t.Error(err)
		}
		if _, err := readRange(ctx, b, "a/b", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("after delete: %v", err)
		}
	}
}

func checkRanges(ctx context.Context, t *testing.T, b bucket.Bucket) {
	const content = "0123456789"
	mustPut(ctx, t, b, "ranges", content)
	for offset := range int64(12) {
		for length := int64(-1); length < 12; length++ {
			want := content[min(offset, 10):]
			if length >= 0 {
				want = want[:min(length, int64(len(want)))]
			}
			if got, err := readRange(ctx, b, "ranges", offset, length); err != nil || got != want {
				t.Errorf("%d bytes from %d: %q (%v), want %q", length, offset, got, err, want)
			}
		}
	}
	for _, length := range []int64{0, -1, 1} {
		if _, err := readRange(ctx, b, "none", 3, length); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("%d bytes of nothing: %v", length, err)
		}
	}
}

// A reader that has not as much as was said leaves what was there.
func checkSizes(ctx context.Context, t *testing.T, b bucket.Bucket) {
	mustPut(ctx, t, b, "sizes", "before")
	for _, c := range []struct {
		content string
		size    int64
	}{{"short", 6}, {"long", 3}, {"", 1}, {"x", 0}} {
		if err := b.Put(ctx, "sizes", strings.NewReader(c.content), c.size); err == nil {
			t.Errorf("%q was taken as %d bytes", c.content, c.size)
		}
	}
	broken := io.MultiReader(strings.NewReader("bro"), brokenReader{})
	if err := b.Put(ctx, "sizes", broken, 6); !errors.Is(err, errBroken) {
		t.Errorf("a broken reader: %v", err)
	}
	if got, err := readRange(ctx, b, "sizes", 0, -1); err != nil || got != "before" {
		t.Errorf("now it is %q (%v)", got, err)
	}
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func checkNames(ctx context.Context, t *testing.T, b bucket.Bucket) {
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "_a", "-a", "a b", "ä", "a\\b", "a:b", "a\x00",
		strings.Repeat("a", 513),
	} {
		err := b.Put(ctx, name, strings.NewReader("x"), 1)
		_, err2 := b.Get(ctx, name, 0, -1)
		err3 := b.Delete(ctx, name)
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, bucket.ErrName) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, name := range []string{"x", "0", "MANIFEST", "a.b_c-d/e", "n/b/c/d", strings.Repeat("a", 200)} {
		mustPut(ctx, t, b, name, name)
		if got, err := readRange(ctx, b, name, 0, -1); err != nil || got != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
		if err := b.Delete(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

func checkList(ctx context.Context, t *testing.T, b bucket.Bucket) {
	names := []string{"list-b", "list/a", "list/a-b", "list/d/b", "list/e.c", "listing"}
	for i, name := range names {
		mustPut(ctx, t, b, name, strings.Repeat("x", i))
	}
	for prefix, want := range map[string][]string{
		"list": names, "list/": names[1:5], "list/a": names[1:3], "list/d/": names[3:4], "list/e.c": names[4:5], "nothing": nil,
	} {
		objects, err := b.List(ctx, prefix)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range objects {
			got = append(got, o.Name)
			if age := time.Since(o.Time); age > time.Hour || age < -time.Hour {
				t.Errorf("%s is of %v", o.Name, o.Time)
			}
			if o.Size >= int64(len(names)) || names[o.Size] != o.Name {
				t.Errorf("%s has %d bytes", o.Name, o.Size)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q: %v, want %v", prefix, got, want)
		}
	}
}

// More than S3 takes in one part, and not a round number.
func checkLargeObject(ctx context.Context, t *testing.T, b bucket.Bucket) {
	data := make([]byte, 17<<20+1)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	if err := b.Put(ctx, "large", bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{0, 16<<20 - 1, int64(len(data)) - 1} {
		if got, err := readRange(ctx, b, "large", offset, -1); err != nil || got != string(data[offset:]) {
			t.Errorf("from %d: %d bytes, %v", offset, len(got), err)
		}
	}
}

// What an interrupted Put left behind is not listed, and removed when it is old.
func TestLeftoversOfPutAreCleaned(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{".put-new": time.Minute, ".put-old": 48 * time.Hour} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if objects, err := b.List(t.Context(), ""); err != nil || len(objects) > 0 {
		t.Errorf("listed: %v, %v", objects, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".put-*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".put-new" {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := b.Put(t.Context(), "short", strings.NewReader("x"), 2); err == nil {
		t.Error("a short reader was taken")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".put-*")); len(left) != 1 {
		t.Errorf("a failed put left %v", left)
	}
}

func TestOpenParsesTargets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	b, err := bucket.Open(t.Context(), dir)
	if err != nil || b.String() != dir {
		t.Errorf("%v, %v", b, err)
	}
	for _, target := range []string{
		"", "http://host/b", "s3://", "s3:///prefix", "s3://u:secret@b", "s3://b?secret=x", "s3://b?insecure=perhaps", "s3://b%zz?x",
	} {
		_, err := bucket.Open(t.Context(), target)
		if !errors.Is(err, bucket.ErrTarget) || strings.Contains(fmt.Sprint(err), "secret@") {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// The address has no secrets and names the same bucket again.
func TestS3AddressHasNoSecrets(t *testing.T) {
	b, err := bucket.NewS3(bucket.S3Config{
		Endpoint: "localhost:1", Bucket: "feeds", Prefix: "/skein/a/", Region: "eu", Insecure: true,
		AccessKey: "access", SecretKey: "hidden", SessionToken: "token",
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "s3://feeds/skein/a?endpoint=localhost%3A1&insecure=true&region=eu"
	if got := b.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := bucket.NewS3(bucket.S3Config{Bucket: "feeds", Prefix: "a b"}); !errors.Is(err, bucket.ErrName) {
		t.Errorf("a prefix that is no name: %v", err)
	}
}

// TestWithinIsABucket: a part of a bucket is a bucket, and has its objects there.
func TestWithinIsABucket(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	part, err := bucket.Within(b, "nodes/a")
	if err != nil || part.String() != filepath.Join(dir, "nodes", "a") {
		t.Fatal(part, err)
	}
	checkConformance(t, part)
	mustPut(t.Context(), t, part, "x", "content")
	if got, err := readRange(t.Context(), b, "nodes/a/x", 0, -1); err != nil || got != "content" {
		t.Errorf("%q, %v", got, err)
	}
	for prefix, want := range map[string]string{
		"": "s3://feeds/nodes/a?endpoint=localhost%3A1&region=eu", "b/c": "s3://feeds/b/c/nodes/a?endpoint=localhost%3A1&region=eu",
	} {
		b, err := bucket.NewS3(bucket.S3Config{Endpoint: "localhost:1", Bucket: "feeds", Prefix: prefix, Region: "eu"})
		if err != nil {
			t.Fatal(err)
		}
		if part, err := bucket.Within(b, "nodes/a"); err != nil || part.String() != want {
			t.Errorf("%v of %v, %v", part, b, err)
		}
	}
	for _, name := range []string{"", "..", "a/../../b", "/a", "-a"} {
		if part, err := bucket.Within(b, name); !errors.Is(err, bucket.ErrName) {
			t.Errorf("%q: %v, %v", name, part, err)
		}
	}
}
