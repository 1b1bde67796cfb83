package overlay

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestBlockFilterNeverExcludesAddedKeys checks that a filter excludes no key that was added. With two bytes per key, it must exclude most keys that
// were not added.
func TestBlockFilterNeverExcludesAddedKeys(t *testing.T) {
	const keys = 20_000
	f := newBlockFilter(2 * keys)
	hash := func(n uint64) uint64 { return xxh3.Hash(binary.BigEndian.AppendUint64(nil, n)) }
	if !f.excludes(hash(0)) {
		t.Error("an empty filter knows a key")
	}
	for n := range uint64(keys) {
		f.add(hash(n))
	}
	taken := 0
	for n := range uint64(keys) {
		if f.excludes(hash(n)) {
			t.Fatalf("key %d was added", n)
		}
		if !f.excludes(hash(keys + n)) {
			taken++
		}
	}
	if taken > keys/100 {
		t.Errorf("%d of %d keys that were not added are taken for added", taken, keys)
	}
}
