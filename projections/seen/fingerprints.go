package seen

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// fingerprintBits is the size of the fingerprint of an item that a user has played, which is part
// of a hash of both. The user is part of the hash, so that two users do not share their false
// positives: otherwise some items would be hidden from all users.
//
// If a user has n plays in a month, an unseen candidate has the fingerprint of a seen one with
// probability n / 2^40.
const fingerprintBits = 40

// itemHash hashes the id of an item. A decimal number is its own hash, so that numeric ids can be
// looked up without formatting them; [mix] spreads it. All other ids are hashed by XXH3. scratch is
// memory for the key form of the id, and is returned for the next call.
func itemHash(scratch []byte, item string) (hash uint64, _ []byte) {
	scratch = events.AppendID(scratch[:0], item)
	return idKeyHash(scratch), scratch
}

// idKeyHash returns the hash of an id in its key form.
func idKeyHash(key []byte) uint64 {
	if n, ok := events.NumberFromKey(key); ok {
		return n
	}
	return xxh3.Hash(key)
}

// userSalt returns the part of a fingerprint that depends on the user.
func userSalt(user string) uint64 { return mix(xxh3.HashString(user)) }

// fingerprintOf returns the fingerprint of an item for a user, from the hash of the item and the
// salt of the user.
func fingerprintOf(item, salt uint64) uint64 { return mix(item^salt) >> (64 - fingerprintBits) }

// mix is the finalizer of MurmurHash3 by A. Appleby: every bit of the result depends on all of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// A row of fingerprints is a version byte, their number n as a varint, and the sorted fingerprints
// as gaps in a Rice code. The code has two parts. The first has the low r bits of each gap. The
// second has the quotient of each gap by 2^r in unary: that many 0 bits and a 1. Bits fill bytes
// from the lowest bit on. r is fingerprintBits less the number of bits of n, so a fingerprint takes
// about fingerprintBits - log2(n) + 1.5 bits. Equal sets are equal bytes.
//
// Keeping the two parts apart costs no bit. It lets a processor decode several fingerprints at a
// time, because it need not have decoded one to know where the next begins. See R. Rice and J.
// Plaunt, "Adaptive Variable-Length Coding for Efficient Compression of Spacecraft Television
// Data", IEEE Transactions on Communication Technology 19 (6), 1971.
const (
	versionFingerprints = 1
	versionBloom        = 2
)

// appendFingerprints appends the row of a set, which must be sorted and without repetitions.
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

// riceLowBits returns, for n fingerprints, how many bits of a gap are written as they are. The
// others are written in unary.
func riceLowBits(n uint64) int { return max(0, fingerprintBits-bits.Len64(n)) }

// bitWriter fills bytes from the lowest bit on.
type bitWriter struct {
	dst  []byte
	word uint64
	used int
}

// write appends the lowest n bits of a value, at most 64. The other bits of the value must be 0.
func (w *bitWriter) write(value uint64, n int) {
	w.word |= value << w.used
	if w.used += n; w.used >= 64 {
		w.dst = binary.LittleEndian.AppendUint64(w.dst, w.word)
		w.used -= 64
		w.word = value >> (n - w.used) // 0, if all of it was written
	}
}

// flush writes the bits that do not fill a word, and fills the last byte with 0 bits.
func (w *bitWriter) flush() {
	for ; w.used > 0; w.used -= 8 {
		w.dst = append(w.dst, byte(w.word))
		w.word >>= 8
	}
	w.word, w.used = 0, 0
}

// appendRice appends the number of some sorted values and their gaps.
func appendRice(dst []byte, values []uint64) []byte {
	w := bitWriter{dst: binary.AppendUvarint(dst, uint64(len(values)))}
	lowBits := riceLowBits(uint64(len(values)))

	// A gap is counted from the smallest value that may come next.
	next := uint64(0)
	for _, v := range values {
		w.write((v-next)&(1<<lowBits-1), lowBits)
		next = v + 1
	}
	w.flush()

	next = 0
	for _, v := range values {
		zeros := (v - next) >> lowBits
		for ; zeros > 63; zeros -= 63 {
			w.write(0, 63)
		}
		w.write(1<<zeros, int(zeros)+1)
		next = v + 1
	}
	w.flush()
	return w.dst
}

// decodeRice appends the values that appendRice wrote. It returns false for bytes that appendRice
// cannot have written.
func decodeRice(dst []uint64, row []byte) ([]uint64, bool) {
	n, used := projections.Uvarint(row)
	if used <= 0 || n == 0 || n > 8*uint64(len(row)) {
		return dst, false
	}
	row = row[used:]
	lowBits := riceLowBits(n)
	allLowBits := int(n) * lowBits
	quotients := (allLowBits + 7) / 8 // the byte where they begin
	if quotients >= len(row) || allLowBits%8 != 0 && row[quotients-1]>>(allLowBits%8) != 0 {
		return dst, false
	}
	first := len(dst)
	dst = slices.Grow(dst, int(n))[:first+int(n)]
	ok := decodeGaps(dst[first:], row, quotients, lowBits, 1<<fingerprintBits)
	return dst, ok
}

// decodeGaps fills out with values: it reads their low bits from the beginning of the row, and
// their quotients from the byte quotients on. lowBits is the number of low bits of each. It returns
// false if the row does not have exactly as many values, all below limit.
func decodeGaps(out []uint64, row []byte, quotients, lowBits int, limit uint64) bool {
	n := 0        // the number of values decoded
	lowAt := 0    // the bit where the next low bits begin
	lastOne := -1 // the last 1 bit of the quotients, counted from their begin
	next := uint64(0)
	mask := uint64(1)<<lowBits - 1
	for from := quotients; from < len(row); from += 8 {
		base := (from - quotients) * 8
		// Each 1 bit of the word ends the quotient of one gap.
		for word := loadBits(row, from*8); word != 0; word &= word - 1 {
			if n == len(out) {
				return false
			}
			var low uint64
			if i := lowAt >> 3; i+8 <= len(row) {
				low = binary.LittleEndian.Uint64(row[i:]) >> (lowAt & 7)
			} else {
				low = loadBits(row, lowAt)
			}
			one := base + bits.TrailingZeros64(word)
			next += uint64(one-lastOne-1)<<lowBits | low&mask
			out[n] = next
			next++
			lastOne = one
			lowAt += lowBits
			n++
		}
	}
	// The last 1 bit must be in the last byte. If the quotients add up to no more than a value can
	// be, no sum has overflowed.
	return n == len(out) && lastOne/8 == len(row)-quotients-1 && uint64(lastOne+1-n) <= limit>>lowBits && next <= limit
}

// loadBits returns at least 57 bits of a row, from the bit at on. Bits behind the end of the row
// are 0.
func loadBits(row []byte, at int) uint64 {
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

// fewFingerprints is the size up to which a set is appended to others and sorted with them, instead
// of merged. Most sets have a single play.
const fewFingerprints = 16

// union appends the row of the union of the sets in some rows.
func union(dst []byte, rows [][]byte) ([]byte, error) {
	// Nearly all unions fit into an array on the stack.
	var stack [8 * fewFingerprints]uint64
	few := stack[:0]
	var large [][]byte
	var err error
	for _, row := range rows {
		// The second byte of a row is the number of fingerprints, or its low bits with the highest
		// bit set.
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

// unionLarge returns the union of a set and the sets in some rows. It merges them in pairs, then
// the results in pairs, and so on, because a user who plays without pause leaves many sets between
// two flushes.
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
		merged := sets[:0]
		for pair := range slices.Chunk(sets, 2) {
			setUnion := pair[0]
			if len(pair) == 2 {
				setUnion = merge(make([]uint64, 0, len(pair[0])+len(pair[1])), pair[0], pair[1])
			}
			merged = append(merged, setUnion)
		}
		sets = merged
	}
	return sets[0], nil
}

// merge appends the union of two sorted sets.
func merge(dst, a, b []uint64) []uint64 {
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; { // a value that both have is appended once
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
