package graph

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// cacheID is an id as the cache compares it: by value if the id is a decimal number, else by its
// bytes.
type cacheID struct {
	// text is the id if it is no number. If text is empty, the id is number.
	text   string
	number uint64
	// hash says where to look for the id. Ids with equal hashes may differ.
	hash uint64
}

// maxCacheDigits is the largest number of digits of an id that is compared as a number. All numbers
// of 19 digits fit into 64 bits.
const maxCacheDigits = 19

// cacheIDOf converts an id. ok is false for the empty string, which is the id of no user.
func cacheIDOf(id string, seed uint64) (h cacheID, ok bool) {
	if n, numeric := parseNumber(id); numeric {
		return cacheID{number: n, hash: hashNumber(n, seed)}, true
	}
	return cacheID{text: id, hash: xxh3.HashStringSeed(id, seed)}, id != ""
}

// hashNumber spreads numbers with two multiplications. A client that does not know the seed cannot
// choose ids that collide.
func hashNumber(n, seed uint64) uint64 {
	hi, lo := bits.Mul64(n^seed, 0x9e3779b97f4a7c15)
	hi, lo = bits.Mul64(hi^lo^seed, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// parseNumber reads a decimal number of at most [maxCacheDigits] digits. It refuses leading zeros,
// so that each number has one text and numbers are equal exactly if the ids are.
func parseNumber(id string) (n uint64, ok bool) {
	if len(id) == 0 || len(id) > maxCacheDigits || id[0] == '0' && len(id) > 1 {
		return 0, false
	}

	for len(id) >= 8 {
		// Read eight digits at once, the first into the lowest byte.
		v := uint64(id[0]) | uint64(id[1])<<8 | uint64(id[2])<<16 | uint64(id[3])<<24 |
			uint64(id[4])<<32 | uint64(id[5])<<40 | uint64(id[6])<<48 | uint64(id[7])<<56

		// The sum has the high bit of each byte above '9', the difference that of each byte below
		// '0'.
		if ((v+0x4646464646464646)|(v-0x3030303030303030))&0x8080808080808080 != 0 {
			return 0, false
		}

		// Combine neighbors: digits to pairs, pairs to fours, fours to one number.
		v = v & 0x0f0f0f0f0f0f0f0f * 2561 >> 8
		v = v & 0x00ff00ff00ff00ff * 6553601 >> 16
		v = v & 0x0000ffff0000ffff * 42949672960001 >> 32
		n = n*1e8 + v
		id = id[8:]
	}

	for i := range len(id) {
		digit := id[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = n*10 + uint64(digit)
	}
	return n, true
}
