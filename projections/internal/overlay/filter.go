package overlay

import "math/bits"

// blockFilter is a split block Bloom filter: a key sets one bit in each of the eight words of one
// block. A block is half a cache line, so a lookup reads memory once (Putze, Sanders, Singler:
// Cache-, Hash- and Space-Efficient Bloom Filters, 2007).
type blockFilter [][8]uint32

// newBlockFilter returns an empty filter of about the given size. A filter with more keys than
// bytes excludes little, but is never wrong.
func newBlockFilter(bytes int) blockFilter { return make([][8]uint32, max(1, bytes/32)) }

// blockAndBits returns the block of a hash, which its upper bits choose, and the eight bits to set
// in it, which its lower 32 bits choose.
func (f blockFilter) blockAndBits(hash uint64) (block *[8]uint32, set [8]uint32) {
	// Odd constants, one for each word, as in the specification of Apache Parquet.
	salts := [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}
	i, _ := bits.Mul64(hash, uint64(len(f)))
	for w, salt := range salts {
		set[w] = 1 << (uint32(hash) * salt >> 27)
	}
	return &f[i], set
}

func (f blockFilter) add(hash uint64) {
	block, set := f.blockAndBits(hash)
	for w := range block {
		block[w] |= set[w]
	}
}

// excludes reports whether a key was certainly not added. It may return false for a key that was
// not added.
func (f blockFilter) excludes(hash uint64) bool {
	block, set := f.blockAndBits(hash)
	for w := range block {
		if block[w]&set[w] == 0 {
			return true
		}
	}
	return false
}
