// Package heat sums up how much attention an item had, of which the latest counts most: forward decay, in integers.
//
// # The formula
//
// An event of weight w at time t adds w · 2^((t − t₀) / half-life) to the sum of its item, where t₀ is the Unix epoch.
// Of two items the hotter is the one with the greater sum. A sum never becomes smaller: yesterday's play
// counts half of today's, because today's counts twice as much. So an item without events keeps its sum, no clock is
// read, and the order of two items changes by events only. At any time T the sums divided by 2^((T − t₀) / half-life)
// are the exponentially decayed counts that are usual elsewhere, and dividing all by the same changes no order.
//
// This is forward decay with an exponential function, after G. Cormode, V. Shkapenyuk, D. Srivastava and B. Xu, "Forward
// Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009.
//
// # Arithmetic
//
// Sums grow without bound, and two builds of a projection must agree in every bit on every machine: so a [Sum] is a
// floating-point number of its own, of 63 bits and a 64-bit exponent, and all of it is integer arithmetic that rounds
// down. One addition is off by less than 2^-58 of the result, never upwards.
package heat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// Sum is what an item has gathered. It stands for Mantissa · 2^(Exponent − 62), so Exponent is the binary logarithm,
// rounded down. The zero Sum is that of nothing; of all others the mantissa is at least 2^62 and less than 2^63, and the
// exponent is not negative, so equal sums are equal structs.
type Sum struct {
	Mantissa uint64
	Exponent int64
}

// One is the unit of scores: a doubling of the sum is this much.
const One = 1 << 16

const (
	// step is what every score is a multiple of: 16 steps make a doubling.
	scoreStep = One / 16

	// leastMantissa is also half of what every mantissa is less than.
	minMantissa = 1 << 62

	// maxTime is the latest time, in µs, that is distinguished from later ones: in some 146 000 years.
	maxTime = 1<<62 - 1
	// maxExponent is above what any number of additions can reach, and far from an overflow.
	maxExponent = maxTime + 1<<10
)

// Add returns the sum with an event of a weight added: weight · 2^(at/halfLife), both times in µs, at since the Unix
// epoch. A weight less than the last bit of the sum vanishes. A time before the epoch counts as the epoch, and a half-life
// of less than 1 µs as 1 µs. The same additions in another order may differ in the last bits.
func (s Sum) Add(weight uint32, at, halfLife int64) Sum {
	if weight == 0 {
		return s
	}
	return s.addSum(powerTerm(weight, min(max(at, 0), maxTime), max(halfLife, 1)))
}

// term is weight · 2^(at/halfLife).
func powerTerm(weight uint32, at, halfLife int64) Sum {
	whole, rest := at/halfLife, at%halfLife
	fraction, _ := bits.Div64(uint64(rest), 0, uint64(halfLife)) // rest/halfLife · 2^64
	hi, lo := bits.Mul64(exp2(fraction), uint64(weight))
	// The product has 63 bits behind the point. At least 2^63, it is at least 64 bits long: some are cut off.
	n := 64 + bits.Len64(hi)
	return Sum{Mantissa: hi<<(127-n) | lo>>(n-63), Exponent: whole + int64(n-64)}
}

// exp2 returns 2^63 · 2^(fraction/2^64), which is at least 2^63 and less than 2^64. As everything is rounded down, it
// is too small, by less than 2^-59 of itself.
func exp2(fraction uint64) uint64 {
	// The last 40 bits: with y = x · ln 2 < 2^-24 it is 2^x = 1 + y + y²/2; what follows is less than 2^-74.
	y, _ := bits.Mul64(fraction&(1<<40-1), ln2)
	square, _ := bits.Mul64(y, y)
	product := 1<<63 + (y+square/2)/2
	for k := range roots {
		root := roots[k][fraction>>(60-4*k)&15]
		hi, lo := bits.Mul64(product, root)
		product = hi<<1 | lo>>63
	}
	return product
}

func (s Sum) addSum(t Sum) Sum {
	if s.Mantissa == 0 {
		return t
	}
	if s.Exponent < t.Exponent {
		s, t = t, s
	}
	s.Mantissa += t.Mantissa >> min(uint64(s.Exponent-t.Exponent), 63)
	if s.Mantissa >= 2*minMantissa {
		s.Mantissa /= 2
		s.Exponent++
	}
	return s
}

// Score returns the binary logarithm of the sum in units of 1/[One], cut down to a multiple of 4096 (1/16 of a doubling):
// so the score of an item of n equal events changes at most 16 · log₂ n times, however often it is played. The greater of
// two sums never has the smaller score. Nothing has score 0. Scores beyond an int64, of more than 2^47 half-lives, are
// the largest multiple that it holds.
func (s Sum) Score() int64 {
	if s.Mantissa == 0 {
		return 0
	}
	if s.Exponent > (math.MaxInt64-One)/One {
		return math.MaxInt64 - math.MaxInt64%scoreStep
	}
	steps := int64(0)
	// leastMantissa · 2^(i/16) is irrational for 0 < i < 16: a mantissa above it is one above it rounded down.
	for steps < 15 && s.Mantissa > roots[0][steps+1]/2 {
		steps++
	}
	return s.Exponent*One + steps*scoreStep
}

// ErrSum is returned for bytes that are no sum.
var ErrSum = errors.New("heat: not the canonical form of a sum")

// Append appends the canonical form of the sum: the exponent + 1 and the mantissa as varints, or one zero byte for
// nothing. At most 19 bytes; usually 12.
func (s Sum) Append(dst []byte) []byte {
	if s.Mantissa == 0 {
		return append(dst, 0)
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(s.Exponent)+1), s.Mantissa)
}

// Decode reads what [Sum.Append] wrote, and nothing else: every other form of a sum is an error, as is what follows it.
func Decode(b []byte) (Sum, error) {
	var s Sum
	exponent, n := binary.Uvarint(b)
	if n <= 0 || exponent > maxExponent+1 {
		return Sum{}, ErrSum
	}
	if exponent > 0 {
		mantissa, _ := binary.Uvarint(b[n:])
		if mantissa < minMantissa || mantissa >= 2*minMantissa {
			return Sum{}, ErrSum
		}
		s = Sum{Mantissa: mantissa, Exponent: int64(exponent) - 1}
	}
	if !bytes.Equal(s.Append(nil), b) {
		return Sum{}, ErrSum
	}
	return s, nil
}
