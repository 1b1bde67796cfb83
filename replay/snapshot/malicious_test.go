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

// mustPut writes an object.
func (f forgedBucket) mustPut(name string, data []byte) {
	f.t.Helper()
	if err := f.Put(f.t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		f.t.Fatal(err)
	}
}

// mustWriteFile writes a file of a snapshot, and returns its entry for a manifest.
func (f forgedBucket) mustWriteFile(name, content string) File {
	f.t.Helper()
	sum := sha256.Sum256([]byte(content))
	file := File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
	f.mustPut(file.object(), []byte(content))
	return file
}

// mustWriteManifest writes the manifest of a snapshot that names these files.
func (f forgedBucket) mustWriteManifest(snapshotName string, files ...File) {
	f.t.Helper()
	p := graph.New()
	m := &Manifest{
		Snapshot:    snapshotName,
		Projection:  p.Name(),
		Time:        time.Unix(1e9, 0).UTC(),
		Files:       files,
		Cursor:      cursorOf(events.Cursor{Log: events.LogID{1}, Epoch: 1, Seq: 1}),
		Fingerprint: projections.FingerprintOf(p),
		Format:      store.NewestFormat(),
	}
	data, err := m.encode()
	if err != nil {
		f.t.Fatal(err)
	}
	f.mustPut(manifestName(snapshotName, p.Name()), data)
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

	good := f.mustWriteFile("000001.sst", "content")
	withName := func(name string) File {
		file := good
		file.Name = name
		return file
	}
	withSize := func(size int64) File {
		file := good
		file.Size = size
		return file
	}

	tooMany := make([]File, maxFiles+1)
	for i := range tooMany {
		tooMany[i] = withName(fmt.Sprintf("%06d.sst", i))
	}

	// The sum of these sizes is 2^64.
	overflowing := make([]File, 8)
	for i := range overflowing {
		overflowing[i] = withSize(1 << 61)
		overflowing[i].Name = fmt.Sprint(i, ".sst")
	}

	// Link an object to a file outside the bucket.
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
		name     string
		files    []File
		wantText string // in the error
	}{
		{"path traversal", []File{withName("../../escaped")}, "names the file"},
		{"an absolute path", []File{withName(filepath.Join(dir, "escaped"))}, "names the file"},
		{"a path of Windows", []File{withName(`..\escaped`)}, "names the file"},
		{"a hidden name", []File{withName(".escaped")}, "names the file"},
		{"no name", []File{withName("")}, "names the file"},
		{"a checksum that is a path", []File{{Name: "x", Size: 1, SHA256: "../../secret"}}, "names the file"},
		{"a file twice", []File{good, good}, "names the file"},
		{"a negative size", []File{withSize(-1)}, "names the file"},
		{"a size that is too small", []File{withSize(3)}, "has 4 bytes"},
		{"a size that is too large", []File{withSize(30)}, "has 7 bytes"},
		{"the largest possible size", []File{withSize(math.MaxInt64)}, "more than"},
		{"sizes whose sum overflows", overflowing, "more than"},
		{"too many files", tooMany, "names 262145 files"},
		{"a file that does not exist", []File{{Name: "x", Size: 7, SHA256: strings.Repeat("0", 64)}}, "is missing"},
		{"a link to a file outside the bucket", []File{linked}, "no regular file"},
		{"files that are no store", []File{good}, ""},
		{"no files", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprint("s", i)
			f.mustWriteManifest(name, c.files...)

			stores := filepath.Join(dir, name, "stores")
			_, err := Restore(t.Context(), RestoreOptions{Bucket: b, Snapshot: name, Projection: graph.New(), Dir: stores})
			if err == nil || !strings.Contains(err.Error(), c.wantText) || strings.Contains(err.Error(), "the secret") {
				t.Errorf("got %v, expected an error with %q and without the secret", err, c.wantText)
			}
			if names, _ := filepath.Glob(filepath.Join(stores, "*", "*")); len(names) > 0 {
				t.Errorf("got the files %v in the directory of stores, expected none", names)
			}
		})
	}

	escaped, err := filepath.Glob(filepath.Join(dir, "*escaped*"))
	if err != nil || len(escaped) > 0 {
		t.Errorf("got the files %v outside the directory of stores and error %v, expected neither", escaped, err)
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

	f.mustWriteManifest("one", f.mustWriteFile("000001.sst", "content"))
	f.mustWriteFile("extra.sst", "not named")
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
