// Package engine has the two parts that a projection adds to Pebble: a function that merges values,
// and the choice of the keys that are in the Bloom filters of tables.
package engine

import (
	"encoding/hex"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// bloomBits is the number of bits per key in a filter. With 10 bits, the lookup of a missing row
// searches a table in vain in 1 of 100 cases. Most lookups are for missing rows.
const bloomBits = 10

// tableFilter is a Bloom filter policy that leaves out the keys of some tags.
type tableFilter struct {
	pebble.FilterPolicy
	name     string
	excluded [256]bool // by tag
}

// Filter returns the Bloom filter policy of tables. It leaves out the keys of the excluded tags,
// whose rows are only iterated over and never looked up, so that the filters are smaller. The name
// of the policy names the excluded tags. Pebble ignores the filter of a table if the name differs,
// so a table that was written with other excluded tags is read correctly.
func Filter(excluded []byte) pebble.FilterPolicy {
	f := &tableFilter{FilterPolicy: bloom.FilterPolicy(bloomBits)}
	f.name = f.FilterPolicy.Name()
	if len(excluded) > 0 {
		excluded = slices.Sorted(slices.Values(excluded))
		for _, tag := range excluded {
			f.excluded[tag] = true
		}
		f.name = "skein." + f.name + ".without." + hex.EncodeToString(excluded)
	}
	return f
}

// excludes reports whether a key is left out of filters. The tag is the third byte of a key. It
// follows the shard, or in rows that are sorted by time the month or week.
func (f *tableFilter) excludes(key []byte) bool { return len(key) > 2 && f.excluded[key[2]] }

// Name implements [pebble.FilterPolicy].
func (f *tableFilter) Name() string { return f.name }

// MayContain implements [pebble.FilterPolicy]. A table may contain any key that its filter leaves
// out.
func (f *tableFilter) MayContain(kind pebble.FilterType, filter, key []byte) bool {
	return f.excludes(key) || f.FilterPolicy.MayContain(kind, filter, key)
}

// NewWriter implements [pebble.FilterPolicy].
func (f *tableFilter) NewWriter(kind pebble.FilterType) pebble.FilterWriter {
	return tableFilterWriter{f.FilterPolicy.NewWriter(kind), f}
}

// tableFilterWriter makes the filter of one table.
type tableFilterWriter struct {
	pebble.FilterWriter
	policy *tableFilter
}

// AddKey implements [pebble.FilterWriter].
func (w tableFilterWriter) AddKey(key []byte) {
	if !w.policy.excludes(key) {
		w.FilterWriter.AddKey(key)
	}
}
