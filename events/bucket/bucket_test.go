package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events/bucket"
)

// TestDirectoryIsABucket checks that a directory behaves like every bucket.
func TestDirectoryIsABucket(t *testing.T) {
	b, err := bucket.NewDir(filepath.Join(t.TempDir(), "new", "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	checkConformance(t, b)
}

// TestLinkToDirectoryIsABucket checks that a bucket behaves the same if its path is a symbolic link to
// a directory.
func TestLinkToDirectoryIsABucket(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	b, err := bucket.NewDir(link)
	if err != nil {
		t.Fatal(err)
	}
	checkConformance(t, b)
}

// TestCheckWritableNamesPath checks a directory in which this process may not write. The error names
// the path of the directory.
func TestCheckWritableNamesPath(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	if err := bucket.CheckWritable(b); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("entries after the check: got %v and error %v, want none", entries, err)
	}

	// Root may write everywhere; task deploy:try runs the service as another user.
	if os.Getuid() == 0 {
		return
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := bucket.CheckWritable(b); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("check of a directory without permission: got error %v, want %v with %q", err, fs.ErrPermission, dir)
	}
}

// checkConformance checks the behavior that all buckets share. The bucket must be empty.
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
			t.Errorf("put: got error %v, want %v", err, context.Canceled)
		}
		if _, err := readRange(ctx, b, "late", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("object of a Put with an ended context: got error %v, want %v", err, bucket.ErrNotFound)
		}
	})
}

// mustPut writes an object.
func mustPut(ctx context.Context, t *testing.T, b bucket.Bucket, name, content string) {
	t.Helper()
	if err := b.Put(ctx, name, strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

// readRange reads a part of an object, or all from the offset on if length is negative.
func readRange(ctx context.Context, b bucket.Bucket, name string, offset, length int64) (string, error) {
	r, err := b.Get(ctx, name, offset, length)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// checkObjects checks that an object can be written, replaced, read and deleted.
func checkObjects(ctx context.Context, t *testing.T, b bucket.Bucket) {
	if _, err := readRange(ctx, b, "a/b", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("object before Put: got error %v, want %v", err, bucket.ErrNotFound)
	}
	for _, content := range []string{"one", "", "three times"} {
		mustPut(ctx, t, b, "a/b", content)
		if got, err := readRange(ctx, b, "a/b", 0, -1); err != nil || got != content {
			t.Errorf("object: got %q and error %v, want %q", got, err, content)
		}
	}

	if _, err := readRange(ctx, b, "a", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("object whose name is a part of another name: got error %v, want %v", err, bucket.ErrNotFound)
	}

	for range 2 {
		if err := b.Delete(ctx, "a/b"); err != nil {
			t.Error(err)
		}
		if _, err := readRange(ctx, b, "a/b", 0, -1); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("object after Delete: got error %v, want %v", err, bucket.ErrNotFound)
		}
	}
}

// checkRanges checks that every range of an object can be read. Ranges end where the object ends.
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
				t.Errorf("%d bytes from %d: got %q and error %v, want %q", length, offset, got, err, want)
			}
		}
	}

	for _, length := range []int64{0, -1, 1} {
		if _, err := readRange(ctx, b, "none", 3, length); !errors.Is(err, bucket.ErrNotFound) {
			t.Errorf("%d bytes of a missing object: got error %v, want %v", length, err, bucket.ErrNotFound)
		}
	}
}

// checkSizes checks that a Put fails, and leaves the object as it was, if its reader has more or
// fewer bytes than announced, or fails.
func checkSizes(ctx context.Context, t *testing.T, b bucket.Bucket) {
	mustPut(ctx, t, b, "sizes", "before")
	for _, c := range []struct {
		content string
		size    int64
	}{{"short", 6}, {"long", 3}, {"", 1}, {"x", 0}} {
		if err := b.Put(ctx, "sizes", strings.NewReader(c.content), c.size); err == nil {
			t.Errorf("Put of %q as %d bytes: got no error, want one", c.content, c.size)
		}
	}

	broken := io.MultiReader(strings.NewReader("bro"), brokenReader{})
	if err := b.Put(ctx, "sizes", broken, 6); !errors.Is(err, errBroken) {
		t.Errorf("Put with a broken reader: got error %v, want %v", err, errBroken)
	}
	if got, err := readRange(ctx, b, "sizes", 0, -1); err != nil || got != "before" {
		t.Errorf("object after failed Puts: got %q and error %v, want before", got, err)
	}
}

// errBroken is the error of a brokenReader.
var errBroken = errors.New("broken")

// brokenReader is a reader that always fails.
type brokenReader struct{}

// Read is part of [io.Reader].
func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// checkNames checks which names are valid, and that invalid ones are rejected by every method.
func checkNames(ctx context.Context, t *testing.T, b bucket.Bucket) {
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "_a", "-a", "a b", "ä", "a\\b", "a:b", "a\x00",
		strings.Repeat("a", 513),
	} {
		// No method accepts an invalid name.
		putErr := b.Put(ctx, name, strings.NewReader("x"), 1)
		_, getErr := b.Get(ctx, name, 0, -1)
		deleteErr := b.Delete(ctx, name)
		for method, err := range map[string]error{"Put": putErr, "Get": getErr, "Delete": deleteErr} {
			if !errors.Is(err, bucket.ErrName) {
				t.Errorf("%s of %q: got error %v, want %v", method, name, err, bucket.ErrName)
			}
		}
	}

	for _, name := range []string{"x", "0", "MANIFEST", "a.b_c-d/e", "n/b/c/d", strings.Repeat("a", 200)} {
		mustPut(ctx, t, b, name, name)
		if got, err := readRange(ctx, b, name, 0, -1); err != nil || got != name {
			t.Errorf("object %q: got %q and error %v, want its name", name, got, err)
		}
		if err := b.Delete(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

// checkList checks that List returns the objects with a prefix in order of their names, with their
// sizes and times.
func checkList(ctx context.Context, t *testing.T, b bucket.Bucket) {
	names := []string{"list-b", "list/a", "list/a-b", "list/d/b", "list/e.c", "listing"}
	for i, name := range names { // the size of an object is its index in names
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
				t.Errorf("time of %s: got %v, want about now", o.Name, o.Time)
			}
			if o.Size >= int64(len(names)) || names[o.Size] != o.Name {
				t.Errorf("size of %s: got %d bytes, want its index in the list of names", o.Name, o.Size)
			}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("objects with prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
}

// checkLargeObject writes an object that is larger than one part of an S3 upload, and whose size is
// no multiple of a part.
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
			t.Errorf("large object from %d: got %d bytes and error %v, want the %d bytes that were written",
				offset, len(got), err, int64(len(data))-offset)
		}
	}
}

// TestLeftoversOfPutAreCleaned checks that the temporary files of interrupted Puts are not listed, and
// are removed when they are old, and that a failed Put leaves none.
func TestLeftoversOfPutAreCleaned(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{".put-new": time.Minute, ".put-old": 48 * time.Hour} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		modified := time.Now().Add(-age)
		if err := os.Chtimes(file, modified, modified); err != nil {
			t.Fatal(err)
		}
	}

	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if objects, err := b.List(t.Context(), ""); err != nil || len(objects) > 0 {
		t.Errorf("objects: got %v and error %v, want none", objects, err)
	}

	leftFiles, err := filepath.Glob(filepath.Join(dir, ".put-*"))
	if err != nil || len(leftFiles) != 1 || filepath.Base(leftFiles[0]) != ".put-new" {
		t.Errorf("temporary files: got %v and error %v, want only .put-new", leftFiles, err)
	}

	if err := b.Put(t.Context(), "short", strings.NewReader("x"), 2); err == nil {
		t.Error("Put with a short reader: got no error, want one")
	}
	if leftFiles, err := filepath.Glob(filepath.Join(dir, ".put-*")); err != nil || len(leftFiles) != 1 {
		t.Errorf("temporary files after a failed Put: got %v and error %v, want only .put-new", leftFiles, err)
	}
}

// TestCleanReturnsErrors checks that Clean fails if it cannot remove a temporary file, here because
// it is a directory that is not empty. It removes the others. The bucket can be opened
// nevertheless.
func TestCleanReturnsErrors(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, ".put-1", "below"), 0o700),
		os.WriteFile(filepath.Join(dir, ".put-2"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	cleaner, ok := b.(bucket.Cleaner)
	if !ok {
		t.Fatalf("got a %T, want a Cleaner", b)
	}

	inAnHour := time.Now().Add(time.Hour)
	if err := cleaner.Clean(inAnHour); err == nil {
		t.Error("Clean with a file that cannot be removed: got no error, want one")
	}
	if _, err := os.Stat(filepath.Join(dir, ".put-2")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other temporary file: got %v, want that it is removed", err)
	}
	if err := os.Remove(filepath.Join(dir, ".put-1", "below")); err != nil {
		t.Fatal(err)
	}
	if err := cleaner.Clean(inAnHour); err != nil {
		t.Errorf("Clean when everything can be removed: got error %v, want none", err)
	}
}

// TestOpenParsesTargets checks that Open accepts a directory, and rejects malformed targets without
// showing their passwords.
func TestOpenParsesTargets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	b, err := bucket.Open(t.Context(), dir)
	if err != nil || b.String() != dir {
		t.Errorf("Open(%q): got %v and error %v, want that directory", dir, b, err)
	}

	for _, target := range []string{
		"", "http://host/b", "s3://", "s3:///prefix", "s3://u:secret@b", "s3://b?secret=x", "s3://b?insecure=perhaps", "s3://b%zz?x",
	} {
		_, err := bucket.Open(t.Context(), target)
		if !errors.Is(err, bucket.ErrTarget) || strings.Contains(fmt.Sprint(err), "secret@") {
			t.Errorf("Open(%q): got error %v, want %v without the password", target, err, bucket.ErrTarget)
		}
	}
}

// TestS3AddressHasNoSecrets checks that the address of an S3 bucket contains no secrets, and names the
// same bucket when it is opened.
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
		t.Errorf("address: got %s, want %s", got, want)
	}

	if _, err := bucket.NewS3(bucket.S3Config{Bucket: "feeds", Prefix: "a b"}); !errors.Is(err, bucket.ErrName) {
		t.Errorf("NewS3 with a prefix that is no name: got error %v, want %v", err, bucket.ErrName)
	}
}

// TestWithinIsABucket checks that a part of a bucket behaves like every bucket, and that its
// objects are in the whole bucket under a prefix.
func TestWithinIsABucket(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	part, err := bucket.Within(b, "nodes/a")
	if err != nil || part.String() != filepath.Join(dir, "nodes", "a") {
		t.Fatalf("part of the bucket: got %v and error %v, want nodes/a", part, err)
	}

	checkConformance(t, part)
	mustPut(t.Context(), t, part, "x", "content")
	if got, err := readRange(t.Context(), b, "nodes/a/x", 0, -1); err != nil || got != "content" {
		t.Errorf("object of the part in the whole bucket: got %q and error %v, want content", got, err)
	}

	for prefix, want := range map[string]string{
		"":    "s3://feeds/nodes/a?endpoint=localhost%3A1&region=eu",
		"b/c": "s3://feeds/b/c/nodes/a?endpoint=localhost%3A1&region=eu",
	} {
		b, err := bucket.NewS3(bucket.S3Config{Endpoint: "localhost:1", Bucket: "feeds", Prefix: prefix, Region: "eu"})
		if err != nil {
			t.Fatal(err)
		}
		if part, err := bucket.Within(b, "nodes/a"); err != nil || part.String() != want {
			t.Errorf("part of %v: got %v and error %v, want %s", b, part, err, want)
		}
	}

	for _, name := range []string{"", "..", "a/../../b", "/a", "-a"} {
		if part, err := bucket.Within(b, name); !errors.Is(err, bucket.ErrName) {
			t.Errorf("Within(%q): got %v and error %v, want %v", name, part, err, bucket.ErrName)
		}
	}
}

// TestBrokenAnswerIsNoShortObject checks that an answer of an S3 server that ends early does not
// seem to be an object that ends early, because readers take such an object for damage.
func TestBrokenAnswerIsNoShortObject(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusForbidden) // the client does not try again after this status
		_, _ = io.WriteString(w, "<Error>")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // closes the connection
	}))
	defer server.Close()
	b, err := bucket.NewS3(bucket.S3Config{
		Endpoint: server.Listener.Addr().String(), Bucket: "feeds", Region: "here", Insecure: true, AccessKey: "a", SecretKey: "b",
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, length := range []int64{1, -1} {
		_, err := b.Get(t.Context(), "object", 0, length)
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Get of %d bytes: got error %v, want one that is not io.EOF or io.ErrUnexpectedEOF", length, err)
		}
	}
}
