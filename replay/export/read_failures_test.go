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
	faults := &conformance.FailingRead{}
	cache := store.NewCache(0)
	defer cache.Unref()

	p := allProjections()[0]
	s, err := store.Open(store.Options{FS: faults.FileSystem(vfs.NewMem()), Dir: "data", Projection: p, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer conformance.Close(t, s)
	conformance.Fold(t, s, makeHistory(1, 300))
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}

	exportRows := func() ([]byte, error) {
		view, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := view.Close(); err != nil {
				t.Errorf("close the view: got %v, expected no error", err)
			}
		}()

		var out bytes.Buffer
		_, err = export.Rows(t.Context(), &out, view, export.RowsOptions{
			Format: export.Parquet, Projection: p, Fingerprint: s.Fingerprint(), Partition: export.AllPartitions,
		})
		return out.Bytes(), err
	}

	// Count the reads of an export without failures.
	reads := faults.Count(func() {
		if _, err := exportRows(); err != nil {
			t.Fatal(err)
		}
	})
	if reads == 0 {
		t.Fatal("without failures: got no reads, expected some")
	}

	for n := int64(1); n <= reads; n++ {
		faults.FailAt(n)
		out, err := exportRows()

		// The later exports need fewer reads: some of what the first one read is in memory since.
		if !faults.HasFailed() {
			continue
		}
		if err == nil {
			t.Errorf("read %d of %d fails: got no error, expected one", n, reads)
		}
		if _, openErr := parquet.OpenFile(bytes.NewReader(out), int64(len(out))); openErr == nil {
			t.Errorf("read %d of %d fails: got a complete file of %d bytes, expected an incomplete one", n, reads, len(out))
		}
	}
}
