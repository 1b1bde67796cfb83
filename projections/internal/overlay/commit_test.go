package overlay

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCommitsShareMemtables checks that Pebble does not flush a commit of less than half a
// memtable, as Size counts, by itself, however small its rows are.
func TestCommitsShareMemtables(t *testing.T) {
	const memtable, commits = 1 << 20, 20
	var flushed atomic.Int64
	db, err := pebble.Open("db", &pebble.Options{
		FS: vfs.NewMem(), MemTableSize: memtable, DisableWAL: true,
		EventListener: &pebble.EventListener{FlushEnd: func(info pebble.FlushInfo) { flushed.Add(int64(info.Input)) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()

	var o Overlay
	o.Init(db, 0, nil)
	for n := range uint64(commits) {
		for row := uint64(0); o.Size() < memtable/2-1024; row++ {
			key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, n), row)
			o.Set(key, nil)
		}
		if err := o.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}

	// If Pebble flushes a commit by itself, it also flushes the memtable before it, so there are
	// two per commit.
	if n := flushed.Load(); n == 0 || n > commits*2/3 {
		t.Errorf("%d commits were flushed as %d memtables, want at most %d", commits, n, commits*2/3)
	}
}
