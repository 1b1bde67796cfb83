package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
)

// storedTwice is a store of Pebble that was opened twice, so that its manifest begins with the tables of the first time.
func storedTwice(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	for open := range 2 {
		db, err := pebble.Open("db", &pebble.Options{FS: fs, DisableWAL: true, DisableAutomaticCompactions: true, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			err := errors.Join(db.Set([]byte("last"), fmt.Append(nil, open, n), pebble.NoSync), db.Set(fmt.Append(nil, "row", open, n), nil, pebble.NoSync), db.Flush())
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// manifestOf returns the name and the content of the manifest.
func manifestOf(t *testing.T, fs vfs.FS) (string, []byte) {
	t.Helper()
	desc, err := pebble.Peek("db", fs)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(desc.ManifestFilename)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return desc.ManifestFilename, content
}

// with is a copy of the store whose manifest is this.
func with(t *testing.T, store *vfs.MemFS, name string, manifest []byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	if ok, err := vfs.Clone(store, fs, "db", "db"); !ok || err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(manifest)); err != nil { // under the race detector it changes what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestDamagedManifestIsReported checks that damage before the last record of a manifest is reported, wherever it is. Pebble would open most of these
// manifests as an older state. A torn last record is accepted, because a power cut causes it.
func TestDamagedManifestIsReported(t *testing.T) {
	store := storedTwice(t)
	name, whole := manifestOf(t, store)
	if err := CheckManifest(store, "db"); err != nil {
		t.Fatal(err)
	}
	records, end := wholeRecords(whole)
	if records < 5 || end != len(whole) {
		t.Fatalf("%d records in %d of %d bytes", records, end, len(whole))
	}
	last := len(whole) // where the last record begins
	for n := records; n == records; n, _ = wholeRecords(whole[:last]) {
		last--
	}
	_, last = wholeRecords(whole[:last])
	silent := 0
	for at := range last {
		spoilt := bytes.Clone(whole)
		spoilt[at] ^= 0x5a
		fs := with(t, store, name, spoilt)
		if err := CheckManifest(fs, "db"); !errors.Is(err, projections.ErrCorrupt) {
			t.Fatalf("byte %d of %d is spoilt: %v", at, len(whole), err)
		}
		db, err := pebble.Open("db", &pebble.Options{FS: fs, DisableWAL: true, DisableAutomaticCompactions: true, ReadOnly: true, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quiet{}})
		if err == nil {
			silent++
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("of %d damaged manifests Pebble opens %d", last, silent)
	for size := last; size <= len(whole); size++ {
		if err := CheckManifest(with(t, store, name, whole[:size]), "db"); err != nil {
			t.Errorf("torn after %d of %d bytes: %v", size, len(whole), err)
		}
	}
	_, first := wholeChunkEnd(whole)
	for size := range first + manifestHeader {
		if err := CheckManifest(with(t, store, name, whole[:size]), "db"); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%d bytes and less than two records: %v", size, err)
		}
	}
}

func wholeChunkEnd(content []byte) (kind byte, end int) {
	end, kind = wholeChunk(content, 0)
	return kind, end
}

// TestManifestWithoutSecondRecordIsReported also shows the reason: Pebble opens such a store and does not show rows that it has.
func TestManifestWithoutSecondRecordIsReported(t *testing.T) {
	store := storedTwice(t)
	name, whole := manifestOf(t, store)
	_, first := wholeChunkEnd(whole)
	db, err := pebble.Open("db", &pebble.Options{
		FS: with(t, store, name, whole[:first]), DisableWAL: true, DisableAutomaticCompactions: true,
		FormatMajorVersion: pebble.FormatTableFormatV6, Logger: quiet{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows := 0
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		rows++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("of the 5 rows of the first time Pebble shows %d", rows)
	if rows == 5 {
		t.Error("Pebble sees them: this check is no longer needed")
	}
}
