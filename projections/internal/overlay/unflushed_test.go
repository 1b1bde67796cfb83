package overlay

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestUnflushedKeysAreNotExcluded checks that a key that was written is not excluded until a flush
// has ended that began after the write. Most other keys must be excluded.
func TestUnflushedKeysAreNotExcluded(t *testing.T) {
	const keys = 20_000
	const lookedUp, notYetLookedUp = byte(0x10), byte(0x11)
	var u unflushedKeys
	key := func(tag byte, n uint64) []byte {
		return binary.BigEndian.AppendUint64(appendPrefix(nil, 1, tag), n)
	}
	excludes := func(tag byte, n uint64) bool { return u.excludes(key(tag, n), xxh3.Hash(key(tag, n))) }
	write := func(tag byte, from, to uint64) {
		for n := from; n < to; n++ {
			u.recordWrite(key(tag, n), xxh3.Hash(key(tag, n)))
		}
	}
	checkNotExcluded := func(when string, tag byte, from, to uint64) {
		t.Helper()
		for n := from; n < to; n++ {
			if excludes(tag, n) {
				t.Fatalf("%s: key %d of tag %x is excluded, want it not excluded, because it may be in a memtable", when, n, tag)
			}
		}
	}

	// Keys that were written are not excluded.
	if !excludes(lookedUp, 0) {
		t.Error("before any write: got a key that is not excluded, want all keys excluded")
	}
	write(lookedUp, 0, keys)
	write(notYetLookedUp, 0, 1)
	checkNotExcluded("written", lookedUp, 0, keys)
	checkNotExcluded("written before its tag was looked up", notYetLookedUp, 0, 1)

	// Neither are they while a flush, or two, are running. Most others are excluded.
	u.flushStarted()
	write(lookedUp, keys, 2*keys)
	checkNotExcluded("while it is flushed", lookedUp, 0, 2*keys)
	checkNotExcluded("while it is flushed", notYetLookedUp, 0, 1)
	u.flushStarted()
	checkNotExcluded("while two flushes are running", lookedUp, 0, 2*keys)
	falsePositives := 0
	for n := range uint64(keys) {
		if !excludes(lookedUp, 2*keys+n) {
			falsePositives++
		}
	}
	if falsePositives > keys/100 {
		t.Errorf("got %d of %d unwritten keys that are not excluded, want at most %d", falsePositives, keys, keys/100)
	}

	// After a flush has ended, the keys from before it are excluded, but not those that were written
	// since it began.
	write(lookedUp, 3*keys, 3*keys+1)
	u.flushEnded()
	checkNotExcluded("written after the flush began", lookedUp, 3*keys, 3*keys+1)
	if !excludes(lookedUp, 0) || !excludes(notYetLookedUp, 0) {
		t.Error("after the flush: got a key that is not excluded, want both excluded")
	}

	// After a repair, which may have written any key, no key is excluded. After a range delete, no
	// key is excluded whose tag is in the range.
	u.recordUnknownWrites()
	checkNotExcluded("after a repair", notYetLookedUp, 0, 10)
	u.flushStarted()
	u.flushEnded()
	u.recordRangeDelete(keyRange{key(notYetLookedUp, 0), key(notYetLookedUp, 5)})
	if !excludes(lookedUp, 0) {
		t.Error("after a range of another tag was deleted: got a key that is not excluded, want it excluded")
	}
	checkNotExcluded("in a range", notYetLookedUp, 0, 5)
	u.recordRangeDelete(keyRange{key(lookedUp, 0), key(notYetLookedUp, 5)})
	if excludes(lookedUp, 0) {
		t.Error("after a range of two tags was deleted: got a key that is excluded, want it not excluded")
	}
}

// TestFlushIsUsefulAfterManyKeys checks that after more keys than the filters are made for, the
// overlay reports that a flush is useful, until one has begun.
func TestFlushIsUsefulAfterManyKeys(t *testing.T) {
	var u unflushedKeys
	key := appendPrefix(nil, 1, 0x10)
	u.excludes(key, 0)
	for n := range uint64(unflushedBytes/4 + 1) {
		if u.isFull() {
			t.Fatalf("isFull after %d keys: got true, want false", n)
		}
		u.recordWrite(key, n)
	}
	if !u.isFull() {
		t.Error("isFull after too many keys: got false, want true")
	}
	u.flushStarted()
	if u.isFull() {
		t.Error("isFull after a flush has begun: got true, want false")
	}
}
