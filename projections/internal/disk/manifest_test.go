package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
)

// newReopenedStore returns the files of a Pebble database that was opened twice, so that the first
// record of its manifest names the tables of the first time.
func newReopenedStore(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	for open := range 2 {
		db, err := pebble.Open("db", &pebble.Options{
			FS: fs, DisableWAL: true, DisableAutomaticCompactions: true,
			FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silentLogger{},
		})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			err := errors.Join(
				db.Set([]byte("last"), fmt.Append(nil, open, n), pebble.NoSync),
				db.Set(fmt.Append(nil, "row", open, n), nil, pebble.NoSync),
				db.Flush(),
			)
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

// readManifest returns the name and the content of the manifest.
func readManifest(t *testing.T, fs vfs.FS) (string, []byte) {
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

// copyWithManifest returns a copy of the store with another manifest.
func copyWithManifest(t *testing.T, store *vfs.MemFS, name string, manifest []byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	ok, err := vfs.Clone(store, fs, "db", "db")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Fatal("got no copy of the directory db, want one")
	}
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(manifest)); err != nil { // MemFS changes the slice if the race detector is on
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestDamagedManifestIsReported checks that damage before the last record of a manifest is
// reported, wherever it is. Pebble would open most of these manifests as an older state. A torn
// last record is accepted, because a power cut causes it.
func TestDamagedManifestIsReported(t *testing.T) {
	store := newReopenedStore(t)
	name, whole := readManifest(t, store)
	if err := CheckManifest(store, "db"); err != nil {
		t.Fatal(err)
	}
	records, end := wholeRecords(whole)
	if records < 5 || end != len(whole) {
		t.Fatalf("got %d records in the first %d bytes, want at least 5 in all %d bytes", records, end, len(whole))
	}

	// Find the offset of the last record.
	last := len(whole)
	for n := records; n == records; n, _ = wholeRecords(whole[:last]) {
		last--
	}
	_, last = wholeRecords(whole[:last])

	// Damage each byte before it.
	openedByPebble := 0
	for at := range last {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x5a
		fs := copyWithManifest(t, store, name, damaged)
		if err := CheckManifest(fs, "db"); !errors.Is(err, projections.ErrCorrupt) {
			t.Fatalf("byte %d of %d is damaged: got error %v, want %v", at, len(whole), err, projections.ErrCorrupt)
		}
		db, err := pebble.Open("db", &pebble.Options{
			FS: fs, DisableWAL: true, DisableAutomaticCompactions: true, ReadOnly: true,
			FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silentLogger{},
		})
		if err == nil {
			openedByPebble++
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("of %d damaged manifests Pebble opens %d", last, openedByPebble)

	// Cut the last record anywhere.
	for size := last; size <= len(whole); size++ {
		if err := CheckManifest(copyWithManifest(t, store, name, whole[:size]), "db"); err != nil {
			t.Errorf("torn after %d of %d bytes: got error %v, want none", size, len(whole), err)
		}
	}

	// Cut the manifest so that it has fewer than two records.
	_, first := wholeChunkEnd(whole)
	for size := range first + manifestHeader {
		if err := CheckManifest(copyWithManifest(t, store, name, whole[:size]), "db"); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%d bytes with fewer than two records: got error %v, want %v", size, err, projections.ErrCorrupt)
		}
	}
}

// wholeChunkEnd returns the type and the end of the first chunk.
func wholeChunkEnd(content []byte) (kind byte, end int) {
	end, kind = wholeChunk(content, 0)
	return kind, end
}

// TestManifestWithoutSecondRecordIsReported shows why [CheckManifest] demands a second record:
// Pebble opens a store without it, and does not show rows that the store has.
func TestManifestWithoutSecondRecordIsReported(t *testing.T) {
	store := newReopenedStore(t)
	name, whole := readManifest(t, store)
	_, first := wholeChunkEnd(whole)
	db, err := pebble.Open("db", &pebble.Options{
		FS: copyWithManifest(t, store, name, whole[:first]), DisableWAL: true, DisableAutomaticCompactions: true,
		FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silentLogger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()

	// Count the rows that Pebble shows.
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
		t.Errorf("got all %d rows from Pebble, want fewer; CheckManifest need no longer demand a second record", rows)
	}
}

// TestTornRecordBehindPaddingIsAccepted checks manifests in which a block ends with padding, because
// a chunk would not fit, and the record in the next blocks is torn. A power cut causes that. Pebble
// opens such a manifest without the torn record.
func TestTornRecordBehindPaddingIsAccepted(t *testing.T) {
	store := newReopenedStore(t)
	name, whole := readManifest(t, store)
	for padding := 1; padding < manifestHeader; padding++ {
		// Add a record that leaves the padding in the first block, and one of three chunks.
		var manifest bytes.Buffer
		w := record.NewWriter(&manifest)
		r := record.NewReader(bytes.NewReader(whole), 0)
		for {
			next, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(next)
			if err != nil {
				t.Fatal(err)
			}
			writeRecord(t, w, content)
		}
		writeRecord(t, w, newFileNumbers(manifestBlock-padding-len(whole)-manifestHeader))
		writeRecord(t, w, newFileNumbers(2*manifestBlock))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		content := manifest.Bytes()
		if records, end := wholeRecords(content[:manifestBlock-padding]); records < 5 || end != manifestBlock-padding {
			t.Fatalf("got %d records in the first %d bytes, want at least 5 in %d bytes", records, end, manifestBlock-padding)
		}

		// Cut the last record, also within the padding and at the borders of its chunks.
		cuts := []int{
			manifestBlock - padding, manifestBlock - 1, manifestBlock, manifestBlock + 1, manifestBlock + manifestHeader,
			2*manifestBlock - 1, 2 * manifestBlock, 2*manifestBlock + 1, 3*manifestBlock - 1, len(content) - 1, len(content),
		}
		for _, size := range cuts {
			fs := copyWithManifest(t, store, name, content[:size])
			if err := CheckManifest(fs, "db"); err != nil {
				t.Errorf("padding %d, torn after %d of %d bytes: got error %v, want none", padding, size, len(content), err)
			}
			db, err := pebble.Open("db", &pebble.Options{
				FS: fs, DisableWAL: true, DisableAutomaticCompactions: true, ReadOnly: true,
				FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silentLogger{},
			})
			if err != nil {
				t.Fatalf("padding %d, torn after %d of %d bytes: Pebble returns error %v, want none", padding, size, len(content), err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}

		// A record behind a damaged chunk is still reported.
		damaged := bytes.Clone(content)
		damaged[manifestBlock-padding-1] ^= 0x5a
		if err := CheckManifest(copyWithManifest(t, store, name, damaged), "db"); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("padding %d, damaged before it: got error %v, want %v", padding, err, projections.ErrCorrupt)
		}
	}
}

// writeRecord appends a record to a manifest.
func writeRecord(t *testing.T, w *record.Writer, content []byte) {
	t.Helper()
	if _, err := w.WriteRecord(content); err != nil {
		t.Fatal(err)
	}
}

// newFileNumbers returns a record of a manifest with so many bytes, at least two. It repeats the
// next file number, 100, which Pebble raises if there are files with greater numbers.
func newFileNumbers(size int) (content []byte) {
	const tagNextFileNumber = 3
	if size%2 == 1 {
		content = append(content, tagNextFileNumber, 0xe4, 0) // one byte longer than needed
		size -= 3
	}
	return append(content, bytes.Repeat([]byte{tagNextFileNumber, 100}, size/2)...)
}
