// Package engine has what the storage engine is given for the tables of a projection: how values are merged, and which keys are in
// the Bloom filters.
package engine

import (
	"encoding/hex"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// bloomBits per key: a lookup that misses, as most do, reads no table but 1 in 100 times.
const bloomBits = 10

// tableFilter is the Bloom filter of tables, of the keys that are asked for.
type tableFilter struct {
	pebble.FilterPolicy
	name   string
	walked [256]bool
}

// Filter returns the Bloom filter of tables, without the keys of some tags. It is named by what it leaves out: a table whose filter
// has another name, as one that was written when other tags were walked, is read without.
func Filter(walked []byte) pebble.FilterPolicy {
	f := &tableFilter{FilterPolicy: bloom.FilterPolicy(bloomBits)}
	f.name = f.FilterPolicy.Name()
	if len(walked) > 0 {
		walked = slices.Sorted(slices.Values(walked))
		for _, tag := range walked {
			f.walked[tag] = true
		}
		f.name = "skein." + f.name + ".without." + hex.EncodeToString(walked)
	}
	return f
}

// leavesOut reports whether a key is in no filter. The tag stands behind the shard, or behind the month or week of rows that have one.
func (f *tableFilter) leavesOut(key []byte) bool { return len(key) > 2 && f.walked[key[2]] }

// Name is part of [pebble.FilterPolicy].
func (f *tableFilter) Name() string { return f.name }

// MayContain is part of [pebble.FilterPolicy].
func (f *tableFilter) MayContain(kind pebble.FilterType, filter, key []byte) bool {
	return f.leavesOut(key) || f.FilterPolicy.MayContain(kind, filter, key)
}

// NewWriter is part of [pebble.FilterPolicy].
func (f *tableFilter) NewWriter(kind pebble.FilterType) pebble.FilterWriter {
	return tableFilterWriter{f.FilterPolicy.NewWriter(kind), f}
}

type tableFilterWriter struct {
	pebble.FilterWriter
	of *tableFilter
}

// AddKey is part of [pebble.FilterWriter].
func (w tableFilterWriter) AddKey(key []byte) {
	if !w.of.leavesOut(key) {
		w.FilterWriter.AddKey(key)
	}
}
