package seen

import (
	"encoding/binary"
	"math/bits"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/skein-feed/skein/projections"
)

// A closed month is sealed into a Bloom filter of the right size. It takes an unseen candidate for a seen one with probability 2^-bits or
// less, however many plays there are: see B. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13 (7), 1970.

// leastBits is the least number of positions of a fingerprint in a Bloom filter.
const leastBits = 3

// The row of a Bloom filter: a version byte, the number of positions that a print has, the number of fingerprints as a varint,
// and the bits, the lowest of each byte first.

// bloomSize returns the size of a filter in bits, a multiple of 64: n · k / ln 2, at which half of the bits are set. It is
// integer arithmetic, so that all machines agree.
func bloomSize(n, k int) uint {
	const perLn2 = 94549 // 65536 / ln 2, rounded up
	return (uint((uint64(n)*uint64(k)*perLn2)>>16) + 64) &^ 63
}

func appendBloom(dst []byte, fingerprints []uint64, k int) []byte {
	size := bloomSize(len(fingerprints), k)
	filter := bloom.New(size, uint(k))
	set := filter.BitSet()
	for _, p := range fingerprints {
		pos := positions(spread(p))
		for range k {
			set.Set(uint(pos.next(uint64(size))))
		}
	}
	dst = binary.AppendUvarint(append(dst, versionBloom, byte(k)), uint64(len(fingerprints)))
	for _, word := range set.Words() {
		dst = binary.LittleEndian.AppendUint64(dst, word)
	}
	return dst
}

// spread makes 64 bits of a print, from which its positions in every Bloom filter follow.
func spread(p uint64) uint64 { return mix(p + 0x9e3779b97f4a7c15) }

// positions are those of a print in a Bloom filter, one after the other: the states of a linear congruential generator, each
// brought down to the size by a multiplication, without division, after D. Lemire, "Fast Random Integer Generation in an
// Interval", ACM TOMACS 29 (1), 2019. Double hashing, which is usual, has too few different rows of positions in the small
// filters that most users have.
type positions uint64

const (
	posFactor    = 6364136223846793005 // after D. Knuth, TAOCP 2, 3.3.4
	posIncrement = 1442695040888963407
)

func (p *positions) next(size uint64) uint64 {
	pos, _ := bits.Mul64(uint64(*p), size)
	*p = *p*posFactor + posIncrement
	return pos
}

// bloomFilter is a filter as it stands in a row.
type bloomFilter struct {
	k, n int
	bits []byte
}

func decodeBloom(row []byte) (b bloomFilter, err error) {
	if len(row) < 3 || row[0] != versionBloom || row[1] < leastBits {
		return b, projections.RowError("filter", row)
	}
	n, used := binary.Uvarint(row[2:])
	b = bloomFilter{k: int(row[1]), n: int(n)}
	if used <= 0 || n == 0 || n > 8*uint64(len(row)) || used > 1 && n>>(7*(used-1)) == 0 {
		return b, projections.RowError("filter", row)
	}
	b.bits = row[2+used:]
	if uint(len(b.bits))*8 != bloomSize(b.n, b.k) {
		return b, projections.RowError("filter", row)
	}
	return b, nil
}

// has reports whether a print, spread, may be in the filter. Three bits are looked at together: seven of eight fingerprints that are
// not in it miss one of them, so the processor seldom guesses wrong, and does not wait for one before it fetches the next.
func (b *bloomFilter) has(spread uint64) bool {
	const (
		factor2    = posFactor * posFactor & (1<<64 - 1)
		increment2 = (posFactor + 1) * posIncrement & (1<<64 - 1)
	)
	set := b.bits
	size := uint64(len(set)) * 8
	first, _ := bits.Mul64(spread, size)
	second, _ := bits.Mul64(spread*posFactor+posIncrement, size)
	pos := positions(spread*factor2 + increment2)
	third := pos.next(size)
	if set[first>>3]>>(first&7)&(set[second>>3]>>(second&7))&(set[third>>3]>>(third&7))&1 == 0 {
		return false
	}
	for range b.k - 3 {
		if at := pos.next(size); set[at>>3]>>(at&7)&1 == 0 {
			return false
		}
	}
	return true
}
