package export_test

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/parquet-go/parquet-go"

	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/export"
)

// TestFailedReadLeavesNoCompleteFile exports the rows of a store while one read after the other
// fails. The export must fail, and what it has written must not be a complete file: a pipe receives
// it even if the export fails.
func TestFailedReadLeavesNoCompleteFile(t *testing.T) {
	faults, cache := &conformance.FailingRead{}, store.NewCache(0)
	defer cache.Unref()
	p := allProjections()[0]
	s, err := store.Open(store.Options{FS: faults.FileSystem(vfs.NewMem()), Dir: "data", Projection: p, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer conformance.Close(t, s)
	conformance.Fold(t, s, history(1, 300))
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}

	exportRows := func() ([]byte, error) {
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}()

		var out bytes.Buffer
		_, err = export.Rows(t.Context(), &out, v, export.RowsOptions{
			Format: export.Parquet, Projection: p, Fingerprint: s.Fingerprint(), Partition: export.AllPartitions,
		})
		return out.Bytes(), err
	}

	reads := faults.Count(func() {
		if _, err := exportRows(); err != nil {
			t.Fatal(err)
		}
	})
	if reads == 0 {
		t.Fatal("expected the export to read from the disk")
	}

	for n := int64(1); n <= reads; n++ {
		faults.FailAt(n)
		out, err := exportRows()
		if !faults.HasFailed() {
			continue // some of what the first export read is in memory since
		}
		if _, open := parquet.OpenFile(bytes.NewReader(out), int64(len(out))); err == nil || open == nil {
			t.Errorf("read %d of %d fails: expected an error and no complete file, got %v and %d bytes", n, reads, err, len(out))
		}
	}
}
