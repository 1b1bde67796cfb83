package seen

import (
	"encoding/binary"
	"math/bits"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/skein-feed/skein/projections"
)

// A closed month is sealed into a Bloom filter whose size depends on the number of plays. With k
// positions per fingerprint, it takes an unseen candidate for a seen one with probability 2^-k or
// less, however many plays there are: see B. Bloom, "Space/Time Trade-offs in Hash Coding with
// Allowable Errors", CACM 13 (7), 1970.

// minPositions is the smallest number of positions of a fingerprint in a Bloom filter.
// [bloomFilter.has] looks at three at once.
const minPositions = 3

// bloomSize returns the size in bits of a filter for n fingerprints with k positions each: n · k /
// ln 2, rounded up to a multiple of 64. At that size half of the bits are set. It uses integer
// arithmetic, so that all machines get the same result.
func bloomSize(n, k int) uint {
	const perLn2 = 94549 // 65536 / ln 2, rounded up
	return (uint((uint64(n)*uint64(k)*perLn2)>>16) + 64) &^ 63
}

// appendBloom appends the row of a Bloom filter: a version byte, the number of positions per
// fingerprint (1 byte), the number of fingerprints as a varint, and the bits, the lowest bit of
// each byte first.
func appendBloom(dst []byte, fingerprints []uint64, k int) []byte {
	size := bloomSize(len(fingerprints), k)
	filter := bloom.New(size, uint(k))
	set := filter.BitSet()
	for _, p := range fingerprints {
		pos := positions(spreadFingerprint(p))
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

// spreadFingerprint makes 64 bits of a fingerprint, from which its positions in every Bloom filter
// follow.
func spreadFingerprint(p uint64) uint64 { return mix(p + 0x9e3779b97f4a7c15) }

// positions generates the positions of a fingerprint in a Bloom filter. They are the states of a
// linear congruential generator, each scaled to the size of the filter by a multiplication instead
// of a division, after D. Lemire, "Fast Random Integer Generation in an Interval", ACM TOMACS 29
// (1), 2019. The usual double hashing has too few different sequences of positions in the small
// filters that most users have.
type positions uint64

const (
	posFactor    = 6364136223846793005 // after D. Knuth, TAOCP 2, 3.3.4
	posIncrement = 1442695040888963407
)

// next returns the next position, which is below size.
func (p *positions) next(size uint64) uint64 {
	pos, _ := bits.Mul64(uint64(*p), size)
	*p = *p*posFactor + posIncrement
	return pos
}

// bloomFilter is a decoded filter.
type bloomFilter struct {
	// k is the number of positions per fingerprint, n the number of fingerprints.
	k, n int
	// bits is part of the row.
	bits []byte
}

func decodeBloom(row []byte) (b bloomFilter, err error) {
	if len(row) < 3 || row[0] != versionBloom || row[1] < minPositions {
		return b, projections.RowError("filter", row)
	}
	n, used := projections.Uvarint(row[2:])
	b = bloomFilter{k: int(row[1]), n: int(n)}
	if used <= 0 || n == 0 || n > 8*uint64(len(row)) {
		return b, projections.RowError("filter", row)
	}
	b.bits = row[2+used:]
	if uint(len(b.bits))*8 != bloomSize(b.n, b.k) {
		return b, projections.RowError("filter", row)
	}
	return b, nil
}

// has reports whether a fingerprint may be in the filter. It is given as [spreadFingerprint]
// returns it.
//
// It tests the first three bits together. Seven of eight fingerprints that are not in the filter
// miss one of the three, so the processor seldom predicts the branch wrong, and it can fetch all
// three without waiting for one another.
func (b *bloomFilter) has(spread uint64) bool {
	const (
		factor2    = posFactor * posFactor & (1<<64 - 1)
		increment2 = (posFactor + 1) * posIncrement & (1<<64 - 1)
	)
	// The third position is computed by two steps of the generator in one, so that it does not
	// depend on the second.
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
