// Package engine has the parts of the storage engine that a projection replaces: the merge of values, and the choice of keys for the
// Bloom filters of tables.
package engine

import (
	"encoding/hex"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// bloomBits is the number of bits per key. With it, a lookup of a missing row, as most lookups are, reads a table in 1 of 100 cases.
const bloomBits = 10

// tableFilter is the Bloom filter of tables. It leaves out the keys of tags that are only iterated over, never looked up.
type tableFilter struct {
	pebble.FilterPolicy
	name   string
	walked [256]bool
}

// Filter returns the Bloom filter of tables, without the keys of the walked tags. Its name has the tags that it leaves out. Pebble reads
// a table without its filter when the names differ, so a table that was written with other tags is read correctly.
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

// leavesOut reports whether the filter leaves a key out. The third byte is the tag: it follows the shard, or the month or week of rows
// that begin with one.
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
