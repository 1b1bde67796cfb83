package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestStoreThatWaitsForDiskCanBeClosed checks that a store whose fold waits for the disk is closed
// without an error and keeps what it has folded.
func TestStoreThatWaitsForDiskCanBeClosed(t *testing.T) {
	fs := vfs.NewMem()
	s := openMerging(t, fs, &mergingProjection{"one", mergeItem})
	if err := foldPlays(t, s, 1, "a", "b"); err != nil {
		t.Fatal(err)
	}

	// Any memtable is too much now, so the fold would wait. Close has a position to write.
	s.folding.Lock()
	s.opts.Bounds.FlushBytes = 0
	s.fold.envelopesSinceCheckpoint = 1
	s.folding.Unlock()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = openMerging(t, fs, &mergingProjection{"one", mergeItem})
	if got := s.Cursor().Seq; got != 2 {
		t.Errorf("got position %d after the restart, want 2", got)
	}
}
