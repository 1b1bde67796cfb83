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
				t.Fatalf("%s: key %d of tag %x is excluded, but may be in a memtable", when, n, tag)
			}
		}
	}
	if !excludes(lookedUp, 0) {
		t.Error("a key is not excluded before anything was written")
	}
	write(lookedUp, 0, keys)
	write(notYetLookedUp, 0, 1)
	checkNotExcluded("written", lookedUp, 0, keys)
	checkNotExcluded("written before its tag was looked up", notYetLookedUp, 0, 1)

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
		t.Errorf("%d of %d keys that were not written are not excluded, want at most %d", falsePositives, keys, keys/100)
	}
	write(lookedUp, 3*keys, 3*keys+1)
	u.flushEnded()
	checkNotExcluded("after the flush was begun", lookedUp, 3*keys, 3*keys+1)
	if !excludes(lookedUp, 0) || !excludes(notYetLookedUp, 0) {
		t.Error("keys are not excluded after they were flushed")
	}

	u.recordUnknownWrites()
	checkNotExcluded("after a repair", notYetLookedUp, 0, 10)
	u.flushStarted()
	u.flushEnded()
	u.recordRangeDelete(keyRange{key(notYetLookedUp, 0), key(notYetLookedUp, 5)})
	if !excludes(lookedUp, 0) {
		t.Error("a key is not excluded after a range of another tag was deleted")
	}
	checkNotExcluded("in a range", notYetLookedUp, 0, 5)
	u.recordRangeDelete(keyRange{key(lookedUp, 0), key(notYetLookedUp, 5)})
	if excludes(lookedUp, 0) {
		t.Error("a key is excluded after a range of two tags was deleted")
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
