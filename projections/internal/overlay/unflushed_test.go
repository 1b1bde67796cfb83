package overlay

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestUnflushedKeysAreNotExcluded checks that a key that was written is not excluded until a flush has ended that began after the write. Most other
// keys must be excluded.
func TestUnflushedKeysAreNotExcluded(t *testing.T) {
	const keys = 20_000
	const asked, late = byte(0x10), byte(0x11)
	var u unflushedKeys
	key := func(tag byte, n uint64) []byte {
		return binary.BigEndian.AppendUint64(prefixOf(nil, 1, tag), n)
	}
	lacks := func(tag byte, n uint64) bool { return u.excludes(key(tag, n), xxh3.Hash(key(tag, n))) }
	write := func(tag byte, from, to uint64) {
		for n := from; n < to; n++ {
			u.recordWrite(key(tag, n), xxh3.Hash(key(tag, n)))
		}
	}
	known := func(when string, tag byte, from, to uint64) {
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

	u.flushStarted()
	write(asked, keys, 2*keys)
	known("while it is flushed", asked, 0, 2*keys)
	known("while it is flushed", late, 0, 1)
	u.flushStarted()
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
	u.flushEnded()
	known("after the flush was begun", asked, 3*keys, 3*keys+1)
	if !lacks(asked, 0) || !lacks(late, 0) {
		t.Error("what is flushed is known still")
	}

	u.recordUnknownWrites()
	known("after a repair", late, 0, 10)
	u.flushStarted()
	u.flushEnded()
	if u.recordRangeDelete(keyRange{key(late, 0), key(late, 5)}); !lacks(asked, 0) {
		t.Error("a range of one tag is of another")
	}
	known("in a range", late, 0, 5)
	if u.recordRangeDelete(keyRange{key(asked, 0), key(late, 5)}); lacks(asked, 0) {
		t.Error("a range of two tags")
	}
}

// TestFlushIsUsefulAfterManyKeys checks that after more keys than the filters are made for, the overlay reports that a flush is useful, until one has
// begun.
func TestFlushIsUsefulAfterManyKeys(t *testing.T) {
	var u unflushedKeys
	key := prefixOf(nil, 1, 0x10)
	u.excludes(key, 0)
	for n := range uint64(unflushedBytes/4 + 1) {
		if u.isFull() {
			t.Fatalf("full after %d keys", n)
		}
		u.recordWrite(key, n)
	}
	if !u.isFull() {
		t.Error("it is not full")
	}
	if u.flushStarted(); u.isFull() {
		t.Error("a flush has begun, and it is full")
	}
}
