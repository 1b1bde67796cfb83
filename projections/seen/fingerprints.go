package seen

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A print is the fingerprint of an item that a user has played: printBits bits of a hash of both. The user is part of the hash so that
// two users do not share their false positives: otherwise some items would be hidden from all users.
//
// With n plays a month, an unseen candidate has the print of a seen one with probability n / 2^40.
const printBits = 40

// itemHash hashes an id. A decimal number is its own hash, so that numeric ids need not be formatted to be looked up; [mix] spreads it.
// Everything else is hashed by XXH3.
func itemHash(scratch []byte, item string) (hash uint64, _ []byte) {
	scratch = events.AppendID(scratch[:0], item)
	return keyHash(scratch), scratch
}

// keyHash is the hash of an id in its key form.
func keyHash(key []byte) uint64 {
	if n, ok := events.NumberOf(key); ok {
		return n
	}
	return xxh3.Hash(key)
}

// userSalt returns the part of a fingerprint that depends on the user.
func userSalt(user string) uint64 { return mix(xxh3.HashString(user)) }

// printOf returns the print of an item for a user.
func printOf(item, salt uint64) uint64 { return mix(item^salt) >> (64 - printBits) }

// mix is the finalizer of MurmurHash3 by A. Appleby: every bit of the result depends on all of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// A row of fingerprints is a version byte, their number as a varint, and the fingerprints, sorted, as gaps in a Rice code: of each gap
// the last r bits, of all of them together; then of each gap the quotient by 2^r in unary, as many 0 bits and a 1. Bits fill
// bytes from the lowest on, r is so many less than printBits as the number has bits: so about printBits - log2(n) + 1.5 bits
// are spent on each print. Equal sets are equal bytes. That the two parts stand apart costs no bit, and lets a processor
// decode several fingerprints at a time, since it need not have read one to know where the next begins. See R. Rice and J. Plaunt,
// "Adaptive Variable-Length Coding for Efficient Compression of Spacecraft Television Data", IEEE Transactions on
// Communication Technology 19 (6), 1971.
const (
	versionFingerprints = 1
	versionBloom        = 2
)

// appendFingerprints appends the row of a set, sorted and without repetitions.
func appendFingerprints(dst []byte, fingerprints []uint64) []byte {
	return appendRice(append(dst, versionFingerprints), fingerprints)
}

// appendFingerprint appends the row of a set of one.
func appendFingerprint(dst []byte, p uint64) []byte {
	one := [1]uint64{p}
	return appendFingerprints(dst, one[:])
}

// decodeFingerprints appends the fingerprints of a row to dst.
func decodeFingerprints(dst []uint64, row []byte) ([]uint64, error) {
	if len(row) == 0 || row[0] != versionFingerprints {
		return dst, projections.RowError("fingerprints", row)
	}
	out, ok := decodeRice(dst, row[1:])
	if !ok {
		return dst, projections.RowError("fingerprints", row)
	}
	return out, nil
}

// riceRest returns the number of bits of a gap that are written as they are, and not in unary.
func riceRest(n uint64) int { return max(0, printBits-bits.Len64(n)) }

// bitWriter fills bytes from the lowest bit on.
type bitWriter struct {
	dst  []byte
	word uint64
	used int
}

// write appends the lowest n bits, at most 64, of a value that has no more.
func (w *bitWriter) write(value uint64, n int) {
	w.word |= value << w.used
	if w.used += n; w.used >= 64 {
		w.dst = binary.LittleEndian.AppendUint64(w.dst, w.word)
		w.used -= 64
		w.word = value >> (n - w.used) // 0, if all of it was written
	}
}

// end fills the last byte.
func (w *bitWriter) end() {
	for ; w.used > 0; w.used -= 8 {
		w.dst = append(w.dst, byte(w.word))
		w.word >>= 8
	}
	w.word, w.used = 0, 0
}

// appendRice appends the number of some fingerprints, and their gaps.
func appendRice(dst []byte, values []uint64) []byte {
	w := bitWriter{dst: binary.AppendUvarint(dst, uint64(len(values)))}
	rest := riceRest(uint64(len(values)))
	next := uint64(0) // the least value that may come
	for _, v := range values {
		w.write((v-next)&(1<<rest-1), rest)
		next = v + 1
	}
	w.end()
	next = 0
	for _, v := range values {
		zeros := (v - next) >> rest
		for ; zeros > 63; zeros -= 63 {
			w.write(0, 63)
		}
		w.write(1<<zeros, int(zeros)+1)
		next = v + 1
	}
	w.end()
	return w.dst
}

// decodeRice appends the values that appendRice wrote, and refuses everything else.
func decodeRice(dst []uint64, row []byte) ([]uint64, bool) {
	n, used := binary.Uvarint(row)
	if used <= 0 || n == 0 || n > 8*uint64(len(row)) || used > 1 && n>>(7*(used-1)) == 0 {
		return dst, false
	}
	row = row[used:]
	rest := riceRest(n)
	lows := int(n) * rest
	high := (lows + 7) / 8
	if high >= len(row) || lows%8 != 0 && row[high-1]>>(lows%8) != 0 {
		return dst, false
	}
	first := len(dst)
	dst = slices.Grow(dst, int(n))[:first+int(n)]
	ok := decodeGaps(dst[first:], row, high, rest, 1<<printBits)
	return dst, ok
}

// decodeGaps reads as many values as out is long: their rests from the beginning of the row, their quotients from the byte
// high on.
func decodeGaps(out []uint64, row []byte, high, rest int, limit uint64) bool {
	n, at := 0, 0 // at in bits
	last := -1    // the last 1 bit of the quotients
	next := uint64(0)
	mask := uint64(1)<<rest - 1
	for from := high; from < len(row); from += 8 {
		base := (from - high) * 8
		for word := load(row, from*8); word != 0; word &= word - 1 {
			if n == len(out) {
				return false
			}
			var low uint64
			if i := at >> 3; i+8 <= len(row) {
				low = binary.LittleEndian.Uint64(row[i:]) >> (at & 7)
			} else {
				low = load(row, at)
			}
			one := base + bits.TrailingZeros64(word)
			next += uint64(one-last-1)<<rest | low&mask
			out[n] = next
			next++
			last = one
			at += rest
			n++
		}
	}
	// If the quotients add up to no more than a value can be, no sum has overflowed.
	return n == len(out) && last/8 == len(row)-high-1 && uint64(last+1-n) <= limit>>rest && next <= limit
}

// load returns the 57 bits and more of a row from a bit on; what is behind its end is 0.
func load(row []byte, at int) uint64 {
	i := at >> 3
	if i+8 <= len(row) {
		return binary.LittleEndian.Uint64(row[i:]) >> (at & 7)
	}
	var last [8]byte
	if i < len(row) {
		copy(last[:], row[i:])
	}
	return binary.LittleEndian.Uint64(last[:]) >> (at & 7)
}

// fewFingerprints is the size up to which sets are concatenated and sorted instead of merged. Most sets that are merged have one play.
const fewFingerprints = 16

// union returns the row of all fingerprints of some rows.
func union(dst []byte, rows [][]byte) ([]byte, error) {
	var space [8 * fewFingerprints]uint64 // enough for nearly all
	few := space[:0]
	var large [][]byte
	var err error
	for _, row := range rows {
		if len(row) > 1 && row[1] > fewFingerprints {
			large = append(large, row)
		} else if few, err = decodeFingerprints(few, row); err != nil {
			return dst, err
		}
	}
	slices.Sort(few)
	few = slices.Compact(few)
	if len(large) == 0 {
		return appendFingerprints(dst, few), nil
	}
	all, err := unionLarge(slices.Clone(few), large)
	if err != nil {
		return dst, err
	}
	return appendFingerprints(dst, all), nil
}

// unionLarge merges a set and those of some rows two by two: many sets of some fingerprints are what a user who plays without
// pause leaves between two flushes.
func unionLarge(set []uint64, rows [][]byte) ([]uint64, error) {
	sets := [][]uint64{set}
	for _, row := range rows {
		set, err := decodeFingerprints(nil, row)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	for len(sets) > 1 {
		half := sets[:0]
		for pair := range slices.Chunk(sets, 2) {
			one := pair[0]
			if len(pair) == 2 {
				one = merge(make([]uint64, 0, len(pair[0])+len(pair[1])), pair[0], pair[1])
			}
			half = append(half, one)
		}
		sets = half
	}
	return sets[0], nil
}

// merge appends the union of two sorted sets.
func merge(dst, a, b []uint64) []uint64 {
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x < y:
			dst, a = append(dst, x), a[1:]
		case x > y:
			dst, b = append(dst, y), b[1:]
		default:
			dst, a, b = append(dst, x), a[1:], b[1:]
		}
	}
	return append(append(dst, a...), b...)
}
