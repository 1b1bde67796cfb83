package projections

import (
	"math/bits"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// blockFilter is a split block Bloom filter: a key sets one bit in each of eight words of one block, which is half a cache
// line (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007).
type blockFilter [][8]uint32

// newBlockFilter returns a filter of about so many bytes. It becomes useless, not wrong, when it holds more keys than bytes.
func newBlockFilter(bytes int) blockFilter { return make([][8]uint32, max(1, bytes/32)) }

// bitsOf returns the block of a key and its bits.
func (f blockFilter) bitsOf(hash uint64) (block *[8]uint32, set [8]uint32) {
	// Odd constants, one for each word, as in the specification of Apache Parquet.
	salts := [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}
	i, _ := bits.Mul64(hash, uint64(len(f)))
	for w, salt := range salts {
		set[w] = 1 << (uint32(hash) * salt >> 27)
	}
	return &f[i], set
}

func (f blockFilter) add(hash uint64) {
	block, set := f.bitsOf(hash)
	for w := range block {
		block[w] |= set[w]
	}
}

// lacks reports whether a key was certainly not added.
func (f blockFilter) lacks(hash uint64) bool {
	block, set := f.bitsOf(hash)
	for w := range block {
		if block[w]&set[w] == 0 {
			return true
		}
	}
	return false
}

// keyFilter tells of most keys that the database has no row of them, without asking it: nearly every look-up of a build is
// for a row that is not there yet, and asks a table of each level.
//
// Invariant: of a tag that is filtered, every key that the database has a row of was added. A tag is filtered if it was
// asked for before a row of it was written: most rows are never asked for by their keys, as those of lists, and would
// only fill the filter.
type keyFilter struct {
	keys blockFilter
	tags [256]tagUse
}

type tagUse uint8

const (
	tagUnused tagUse = iota
	tagFiltered
	// tagOpen: rows were written that the filter does not know.
	tagOpen
)

func newKeyFilter(bytes int) *keyFilter { return &keyFilter{keys: newBlockFilter(bytes)} }

// wrote adds a key of which a row is written.
func (f *keyFilter) wrote(key []byte, hash uint64) {
	switch use := &f.tags[key[2]]; *use {
	case tagFiltered:
		f.keys.add(hash)
	case tagUnused:
		*use = tagOpen
	}
}

// lacks reports whether there is certainly no row of a key.
func (f *keyFilter) lacks(key []byte, hash uint64) bool {
	switch use := &f.tags[key[2]]; *use {
	case tagOpen:
		return false
	case tagUnused:
		*use = tagFiltered
		return true
	}
	return f.keys.lacks(hash)
}

// load adds all rows of a database to an empty filter.
func (f *keyFilter) load(rows pebble.Reader) error {
	for tag := range f.tags {
		f.tags[tag] = tagFiltered
	}
	it, err := rows.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		f.wrote(it.Key(), xxh3.Hash(it.Key()))
	}
	return it.Close()
}
