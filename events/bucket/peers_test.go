//go:build peers

package bucket_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
)

const (
	testAccess = "skein-test-access"
	testSecret = "skein-test-secret"
)

// startS3 starts versitygw, an S3 server, on a new directory, creates the S3 bucket "feeds", and
// returns the endpoint.
func startS3(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the first run builds versitygw
	t.Cleanup(cancel)
	out, err := exec.CommandContext(ctx, "go", "tool", "-modfile=../../tools.mod", "-n", "versitygw").Output()
	if err != nil {
		t.Fatalf("build versitygw: %v", err)
	}

	// Find a free port for the server.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := l.Addr().String()
	l.Close()

	dir := filepath.Join(t.TempDir(), "s3")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(ctx, strings.TrimSpace(string(out)), "--port", endpoint, "--quiet", "posix", dir)
	server.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+testAccess, "ROOT_SECRET_KEY="+testSecret)
	server.Stdout, server.Stderr = t.Output(), t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})

	client, err := minio.New(endpoint, &minio.Options{Creds: credentials.NewStaticV4(testAccess, testSecret, "")})
	if err != nil {
		t.Fatal(err)
	}

	// The server is ready when the bucket can be created.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for tries := 0; ; tries++ {
		err := client.MakeBucket(ctx, "feeds", minio.MakeBucketOptions{})
		if err == nil {
			return endpoint
		}
		if tries > 400 {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// TestS3IsABucket checks that an S3 bucket behaves like every bucket, with a prefix and without one.
func TestS3IsABucket(t *testing.T) {
	endpoint := startS3(t)
	for name, prefix := range map[string]string{"prefix": "some/where", "root": ""} {
		t.Run(name, func(t *testing.T) {
			b, err := bucket.NewS3(bucket.S3Config{
				Endpoint: endpoint, Bucket: "feeds", Prefix: prefix, Insecure: true, AccessKey: testAccess, SecretKey: testSecret,
			})
			if err != nil {
				t.Fatal(err)
			}
			checkConformance(t, b)

			part, err := bucket.Within(b, "nodes/a")
			if err != nil {
				t.Fatal(err)
			}
			t.Run("within", func(t *testing.T) { checkConformance(t, part) })
			deleteAll(t, b)
		})
	}

	t.Run("open", func(t *testing.T) { checkOpenS3(t, endpoint) })
}

// deleteAll deletes all objects.
func deleteAll(t *testing.T, b bucket.Bucket) {
	objects, err := b.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := b.Delete(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
}

// checkOpenS3 checks that Open takes the credentials from the environment, fails with wrong ones,
// and shows them nowhere.
func checkOpenS3(t *testing.T, endpoint string) {
	target := "s3://feeds/opened?insecure=true&endpoint=" + endpoint
	t.Setenv("AWS_ACCESS_KEY_ID", testAccess)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if _, err := bucket.Open(t.Context(), target); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("Open with a wrong key: got error %v, want one without the key", err)
	}

	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	if _, err := bucket.Open(t.Context(), "s3://none?insecure=true&endpoint="+endpoint); err == nil {
		t.Error("Open of a missing bucket: got no error, want one")
	}

	b, err := bucket.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t.Context(), t, b, "a/b", "content")

	// The address of the bucket opens it again.
	if s := b.String(); strings.Contains(s, testAccess) || strings.Contains(s, testSecret) {
		t.Errorf("address: got %s, want no credentials", s)
	}
	again, err := bucket.Open(t.Context(), b.String())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readRange(t.Context(), again, "a/b", 0, -1); err != nil || got != "content" {
		t.Errorf("object after opening the address: got %q and error %v, want content", got, err)
	}

	checkArchiveIn(t, again)
	if err := again.Put(t.Context(), "a/b", strings.NewReader("x"), 2); err == nil || errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("Put with a short reader: got error %v, want one that is not %v", err, bucket.ErrNotFound)
	}
}

// checkArchiveIn checks that a bucket can hold an archive. The bucket must not have one.
func checkArchiveIn(t *testing.T, b bucket.Bucket) {
	id := events.LogID{1}
	if _, ok, err := archive.LogOf(t.Context(), b); ok || err != nil {
		t.Errorf("log id of a bucket without archive: got ok %v and error %v, want none", ok, err)
	}

	// Write an archive of one envelope.
	a, err := archive.Open(t.Context(), b, id)
	if err != nil {
		t.Fatal(err)
	}
	w := a.Writer()
	env := events.Envelope{
		Events: []events.Event{{Kind: events.Played, Seq: 1, Time: 7, User: "1", Item: "2"}}, Kinds: events.Kinds(events.Played),
		Cursor: events.Cursor{Log: id, Epoch: 1, Seq: 1, LastTime: 7, Checksum: 8},
	}
	if err := w.Add(&env); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Open the archive again, check it and read it.
	if a, err = archive.Open(t.Context(), b, id); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Check(t.Context(), nil), a.Sweep(t.Context())); err != nil {
		t.Error(err)
	}
	r, err := a.Read(t.Context(), events.Cursor{Log: id}, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Next(t.Context(), 1)
	if err != nil || len(got) != 1 || !reflect.DeepEqual(*got[0], env) {
		t.Errorf("envelopes: got %+v and error %v, want %+v", got, err, env)
	}
}
