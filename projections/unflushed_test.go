package projections

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"
)

// TestUnflushed: a key that was written is known until a flush has ended that was begun after it; few others are taken for known.
func TestUnflushed(t *testing.T) {
	const keys = 20_000
	const asked, late = LastRuntimeTag + 1, LastRuntimeTag + 2
	var u unflushed
	key := func(tag Tag, n uint64) []byte {
		return binary.BigEndian.AppendUint64(AppendPrefix(nil, StoreShard, tag), n)
	}
	lacks := func(tag Tag, n uint64) bool { return u.lacks(key(tag, n), xxh3.Hash(key(tag, n))) }
	write := func(tag Tag, from, to uint64) {
		for n := from; n < to; n++ {
			u.wrote(key(tag, n), xxh3.Hash(key(tag, n)))
		}
	}
	known := func(when string, tag Tag, from, to uint64) {
		t.Helper()
		for n := from; n < to; n++ {
			if lacks(tag, n) {
				t.Fatalf("%s: key %d of tag %x is in a memtable", when, n, tag)
			}
		}
	}
	if !lacks(asked, 0) {
		t.Error("nothing was written, and a key is known")
	}
	write(asked, 0, keys)
	write(late, 0, 1)
	known("written", asked, 0, keys)
	known("written before its tag was asked for", late, 0, 1)

	u.begun()
	write(asked, keys, 2*keys)
	known("while it is flushed", asked, 0, 2*keys)
	known("while it is flushed", late, 0, 1)
	u.begun()
	known("while two flushes are under way", asked, 0, 2*keys)
	taken := 0
	for n := range uint64(keys) {
		if !lacks(asked, 2*keys+n) {
			taken++
		}
	}
	if taken > keys/100 {
		t.Errorf("%d of %d keys that were not written are taken for written", taken, keys)
	}
	write(asked, 3*keys, 3*keys+1)
	u.ended()
	known("after the flush was begun", asked, 3*keys, 3*keys+1)
	if !lacks(asked, 0) || !lacks(late, 0) {
		t.Error("what is flushed is known still")
	}

	u.wroteAll()
	known("after a repair", late, 0, 10)
	u.begun()
	u.ended()
	if u.wroteRange(keyRange{key(late, 0), key(late, 5)}); !lacks(asked, 0) {
		t.Error("a range of one tag is of another")
	}
	known("in a range", late, 0, 5)
	if u.wroteRange(keyRange{key(asked, 0), key(late, 5)}); lacks(asked, 0) {
		t.Error("a range of two tags")
	}
}

// TestUnflushedIsBounded: a fold that writes more keys than the filters hold begins a flush by itself.
func TestUnflushedIsBounded(t *testing.T) {
	s := openMerging(t, vfs.NewMem(), &merging{"one", mergeItem})
	u := &s.fold.batch.rows.unflushed
	u.now.keys, u.now.filter = unflushedBytes, newBlockFilter(unflushedBytes/2)
	if err := foldPlays(t, s, 1, "a"); err != nil {
		t.Fatal(err)
	}
	if u.full() || u.before.keys < unflushedBytes {
		t.Errorf("no flush was begun: %d keys are in memtables, %d of them are being flushed", u.now.keys, u.before.keys)
	}
}
