package projections

import (
	"encoding/hex"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// Walked is implemented by a projection that never asks for rows of some tags by their keys, as for those of lists, which are
// only walked over. The filters of tables leave them out: that is a byte and a quarter of each. To ask for one all the same is
// slower, not wrong.
type Walked interface {
	Walked() []Tag
}

// tableFilter is the Bloom filter of tables, of the keys that are asked for.
type tableFilter struct {
	pebble.FilterPolicy
	name   string
	walked [256]bool
}

// newTableFilter returns the filter for the tables of a projection. It is named by what it leaves out: a table whose filter has
// another name, as one that was written when other tags were walked, is read without.
func newTableFilter(p Projection) *tableFilter {
	f := &tableFilter{FilterPolicy: bloom.FilterPolicy(bloomBits)}
	f.name = f.FilterPolicy.Name()
	if w, ok := p.(Walked); ok {
		tags := slices.Sorted(slices.Values(w.Walked()))
		names := make([]byte, len(tags))
		for i, tag := range tags {
			f.walked[tag], names[i] = true, byte(tag)
		}
		f.name = "skein." + f.name + ".without." + hex.EncodeToString(names)
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
