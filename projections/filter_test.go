package projections

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestKeyFilter: a key that was written is never lacked, whatever was asked for when; of those that were not, few are taken
// for written at two bytes a key.
func TestKeyFilter(t *testing.T) {
	const keys = 20_000
	const asked, late, unused = LastRuntimeTag + 1, LastRuntimeTag + 2, LastRuntimeTag + 3
	f := newKeyFilter(2 * keys)
	key := func(tag Tag, n uint64) []byte {
		return binary.BigEndian.AppendUint64(AppendPrefix(nil, StoreShard, tag), n)
	}
	lacks := func(tag Tag, n uint64) bool { return f.lacks(key(tag, n), xxh3.Hash(key(tag, n))) }
	if !lacks(asked, 0) {
		t.Error("an empty filter knows a key")
	}
	for n := range uint64(keys) {
		f.wrote(key(asked, n), xxh3.Hash(key(asked, n)))
		f.wrote(key(late, n), xxh3.Hash(key(late, n)))
	}
	taken := 0
	for n := range uint64(keys) {
		if lacks(asked, n) {
			t.Fatalf("key %d was written", n)
		}
		if lacks(late, n) {
			t.Fatalf("key %d was written before its tag was asked for", n)
		}
		if !lacks(asked, keys+n) {
			taken++
		}
	}
	if taken > keys/100 {
		t.Errorf("%d of %d keys that were not written are taken for written", taken, keys)
	}
	if !lacks(unused, 1) {
		t.Error("nothing was written with the tag")
	}
}
