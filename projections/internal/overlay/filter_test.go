package overlay

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestBlockFilterNeverExcludesAddedKeys checks that a filter excludes no key that was added. With
// two bytes per key, it must exclude most keys that were not added.
func TestBlockFilterNeverExcludesAddedKeys(t *testing.T) {
	const keys = 20_000
	f := newBlockFilter(2 * keys)
	hash := func(n uint64) uint64 { return xxh3.Hash(binary.BigEndian.AppendUint64(nil, n)) }
	if !f.excludes(hash(0)) {
		t.Error("empty filter: got a key that is not excluded, want all keys excluded")
	}

	for n := range uint64(keys) {
		f.add(hash(n))
	}
	falsePositives := 0
	for n := range uint64(keys) {
		if f.excludes(hash(n)) {
			t.Fatalf("key %d was added and is excluded, want it not excluded", n)
		}
		if !f.excludes(hash(keys + n)) {
			falsePositives++
		}
	}
	if falsePositives > keys/100 {
		t.Errorf("%d of %d keys that were not added are not excluded, want at most %d", falsePositives, keys, keys/100)
	}
}
