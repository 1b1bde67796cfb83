package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
)

// forgedBucket is a bucket whose writer is an attacker: every manifest has correct checksums.
type forgedBucket struct {
	bucket.Bucket
	t *testing.T
}

func (f forgedBucket) put(name string, data []byte) {
	f.t.Helper()
	if err := f.Put(f.t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		f.t.Fatal(err)
	}
}

// file writes a file, and returns its entry for a manifest.
func (f forgedBucket) file(name, content string) File {
	f.t.Helper()
	sum := sha256.Sum256([]byte(content))
	file := File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	f.put(file.object(), []byte(content))
	return file
}

func (f forgedBucket) manifest(name string, files ...File) {
	f.t.Helper()
	p := graph.New()
	m := &Manifest{
		Snapshot: name, Projection: p.Name(), Time: time.Unix(1e9, 0).UTC(), Files: files,
		Cursor: cursorOf(events.Cursor{Log: events.LogID{1}, Epoch: 1, Seq: 1}), Fingerprint: projections.FingerprintOf(p),
		Format: store.NewestFormat(),
	}
	data, err := m.encode()
	if err != nil {
		f.t.Fatal(err)
	}
	f.put(manifestName(name, p.Name()), data)
}

// A malicious snapshot is refused, and leaves nothing behind, neither next to the store nor in its
// place.
func TestMaliciousSnapshotsAreRefused(t *testing.T) {
	dir := t.TempDir()
	b, err := bucket.NewDir(filepath.Join(dir, "target"))
	if err != nil {
		t.Fatal(err)
	}
	f := forgedBucket{b, t}

	good := f.file("000001.sst", "content")
	named := func(name string) File { n := good; n.Name = name; return n }
	sized := func(size int64) File { n := good; n.Size = size; return n }

	many := make([]File, maxFiles+1)
	for i := range many {
		many[i] = named(fmt.Sprintf("%06d.sst", i))
	}
	overflowing := make([]File, 8) // the sum of the sizes is 2^64
	for i := range overflowing {
		overflowing[i] = sized(1 << 61)
		overflowing[i].Name = fmt.Sprint(i, ".sst")
	}

	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("the secret"))
	linked := File{Name: "linked.sst", Size: 10, SHA256: hex.EncodeToString(sum[:])}
	if err := os.Symlink(secret, filepath.Join(dir, "target", filepath.FromSlash(linked.object()))); err != nil {
		t.Fatal(err)
	}

	for i, c := range []struct {
		name  string
		files []File
		says  string
	}{
		{"path traversal", []File{named("../../escaped")}, "names the file"},
		{"an absolute path", []File{named(filepath.Join(dir, "escaped"))}, "names the file"},
		{"a path of Windows", []File{named(`..\escaped`)}, "names the file"},
		{"a hidden name", []File{named(".escaped")}, "names the file"},
		{"no name", []File{named("")}, "names the file"},
		{"a checksum that is a path", []File{{Name: "x", Size: 1, SHA256: "../../secret"}}, "names the file"},
		{"a file twice", []File{good, good}, "names the file"},
		{"a negative size", []File{sized(-1)}, "names the file"},
		{"a size that is too small", []File{sized(3)}, "has 4 bytes"},
		{"a size that is too large", []File{sized(30)}, "has 7 bytes"},
		{"the largest possible size", []File{sized(math.MaxInt64)}, "more than"},
		{"sizes whose sum overflows", overflowing, "more than"},
		{"too many files", many, "names 262145 files"},
		{"a file that does not exist", []File{{Name: "x", Size: 7, SHA256: strings.Repeat("0", 64)}}, "is missing"},
		{"a link to a file outside the bucket", []File{linked}, "no regular file"},
		{"files that are no store", []File{good}, ""},
		{"no files", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprint("s", i)
			f.manifest(name, c.files...)

			stores := filepath.Join(dir, name, "stores")
			_, err := Restore(t.Context(), RestoreOptions{Bucket: b, Snapshot: name, Projection: graph.New(), Dir: stores})
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "the secret") {
				t.Errorf("got %v, expected an error with %q and without the secret", err, c.says)
			}
			if left, _ := filepath.Glob(filepath.Join(stores, "*", "*")); len(left) > 0 {
				t.Errorf("expected no files, got %v", left)
			}
		})
	}

	escaped, err := filepath.Glob(filepath.Join(dir, "*escaped*"))
	if err != nil || len(escaped) > 0 {
		t.Errorf("got files outside the directory: %v, %v", escaped, err)
	}
}

// A manifest is refused unless it has exactly the form that this package writes. For example, no
// key may occur twice, and nothing may follow it. A file that no manifest names is not part of the
// snapshot.
func TestManifestsWithMoreAreRefused(t *testing.T) {
	b, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := forgedBucket{b, t}

	f.manifest("one", f.file("000001.sst", "content"))
	f.file("extra.sst", "not named")
	m, err := findManifest(t.Context(), b, "one", "graph")
	if err != nil || len(m.Files) != 1 {
		t.Fatalf("got %+v and %v, expected a manifest with one file", m, err)
	}

	data, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"a key twice":    strings.Replace(string(data), `"format":1`, `"format":1,"format":1`, 1),
		"an unknown key": strings.Replace(string(data), `"format":1`, `"format":1,"more":1`, 1),
		"a second value": string(data) + "{}",
		"white space":    " " + string(data),
		"deep nesting":   strings.Repeat("[", 1<<20),
	} {
		if _, err := decodeManifest([]byte(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v, expected ErrDamaged", name, err)
		}
	}
}
