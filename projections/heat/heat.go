// Package heat sums up how much attention an item gets, and lets recent attention count more. It
// uses forward decay, in integer arithmetic.
//
// # The formula
//
// An event of weight w at time t adds w · 2^((t − t₀) / half-life) to the sum of its item, where t₀
// is the Unix epoch. The item with the greater sum is the hotter one. A sum never becomes smaller:
// with a half-life of a day, yesterday's play counts half of today's because today's counts twice
// as much. So an item without new events keeps its sum, no clock is read, and the order of two
// items changes only by events. The exponentially decayed counts that are usual elsewhere are these
// sums divided by 2^((T − t₀) / half-life), at any time T. Dividing all sums by the same number
// changes no order.
//
// This is forward decay with an exponential function, after G. Cormode, V. Shkapenyuk, D.
// Srivastava and B. Xu, "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE
// 2009.
//
// # Arithmetic
//
// Sums grow without bound, and two builds of a projection must agree in every bit on every machine.
// Therefore a [Sum] is not a float64 but a floating-point number of its own, with a mantissa of 63
// bits and an exponent of 64 bits. All arithmetic on it is integer arithmetic that rounds down. One
// addition is too small by less than 2^-58 of the result, and never too large.
package heat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// Sum is the heat that an item has gathered. Its value is Mantissa · 2^(Exponent − 62), so Exponent
// is the binary logarithm of the value, rounded down. The zero Sum is the sum of no events. In all
// others the mantissa is at least 2^62 and less than 2^63, and the exponent is not negative, so
// equal sums are equal structs.
type Sum struct {
	Mantissa uint64
	Exponent int64
}

// One is how much the score grows when the sum doubles.
const One = 1 << 16

const (
	// scoreStep divides every score. 16 steps are a doubling of the sum.
	scoreStep = One / 16

	// minMantissa is the smallest mantissa of a sum that is not zero. Every mantissa is less than
	// twice as large.
	minMantissa = 1 << 62

	// maxTime is the largest time, in µs, some 146 000 years from the epoch. Later times count as
	// maxTime.
	maxTime = 1<<62 - 1
	// maxExponent is more than any number of additions can reach, and still far from an overflow.
	maxExponent = maxTime + 1<<10
)

// Add returns the sum with an event added, which is weight · 2^(at/halfLife). The time at is in µs
// since the Unix epoch, and halfLife is in µs. A time before the epoch counts as the epoch, and a
// half-life of less than 1 µs as 1 µs. An event that is smaller than the last bit of the sum
// changes nothing. The same additions in another order may differ in the last bits.
func (s Sum) Add(weight uint32, at, halfLife int64) Sum {
	if weight == 0 {
		return s
	}
	at = min(max(at, 0), maxTime)
	halfLife = max(halfLife, 1)
	return s.addSum(powerTerm(weight, at, halfLife))
}

// powerTerm returns weight · 2^(at/halfLife), rounded down.
func powerTerm(weight uint32, at, halfLife int64) Sum {
	whole, rest := at/halfLife, at%halfLife
	fraction, _ := bits.Div64(uint64(rest), 0, uint64(halfLife)) // rest/halfLife · 2^64
	hi, lo := bits.Mul64(exp2(fraction), uint64(weight))

	// The product hi:lo has 63 bits behind the point and is n bits long. It is at least 2^63, so n
	// is at least 64, and all but the highest 63 bits are cut off.
	n := 64 + bits.Len64(hi)
	return Sum{Mantissa: hi<<(127-n) | lo>>(n-63), Exponent: whole + int64(n-64)}
}

// exp2 returns 2^63 · 2^(fraction/2^64), which is at least 2^63 and less than 2^64. As everything
// is rounded down, it is too small, by less than 2^-59 of itself.
func exp2(fraction uint64) uint64 {
	// The last 40 bits of the fraction, x: with y = x · ln 2 < 2^-24, 2^x is 1 + y + y²/2. The
	// other terms of the series are less than 2^-74.
	y, _ := bits.Mul64(fraction&(1<<40-1), ln2)
	square, _ := bits.Mul64(y, y)
	product := 1<<63 + (y+square/2)/2

	// The first 24 bits are six digits of 4 bits, and each digit is a factor that is looked up.
	for k := range roots {
		root := roots[k][fraction>>(60-4*k)&15]
		hi, lo := bits.Mul64(product, root)
		product = hi<<1 | lo>>63
	}
	return product
}

// addSum returns s + t.
func (s Sum) addSum(t Sum) Sum {
	if s.Mantissa == 0 {
		return t
	}
	if s.Exponent < t.Exponent {
		s, t = t, s
	}

	// Shift the mantissa of the smaller one to the exponent of the greater one.
	s.Mantissa += t.Mantissa >> min(uint64(s.Exponent-t.Exponent), 63)
	if s.Mantissa >= 2*minMantissa {
		s.Mantissa /= 2
		s.Exponent++
	}
	return s
}

// Score returns the binary logarithm of the sum in units of 1/[One], rounded down to a multiple of
// 4096 (1/16 of a doubling). Because it is rounded, the score of an item changes at most 16 · log₂
// n times in n equal events. The greater of two sums never has the smaller score. The zero Sum has
// score 0. Sums of more than 2^47 half-lives have the largest multiple of 4096 that an int64 can
// hold.
func (s Sum) Score() int64 {
	if s.Mantissa == 0 {
		return 0
	}
	if s.Exponent > (math.MaxInt64-One)/One {
		return math.MaxInt64 - math.MaxInt64%scoreStep
	}

	// roots[0][i]/2 is minMantissa · 2^(i/16), rounded down. That number is irrational for 0 < i <
	// 16, so a mantissa is above the number exactly if it is above the rounded one.
	steps := int64(0)
	for steps < 15 && s.Mantissa > roots[0][steps+1]/2 {
		steps++
	}
	return s.Exponent*One + steps*scoreStep
}

// ErrSum is returned for bytes that are not the canonical form of a sum.
var ErrSum = errors.New("heat: not the canonical form of a sum")

// Append appends the canonical form of the sum: the exponent + 1 and the mantissa as varints, or
// one zero byte for the zero Sum. It has at most 19 bytes, usually 12.
func (s Sum) Append(dst []byte) []byte {
	if s.Mantissa == 0 {
		return append(dst, 0)
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(s.Exponent)+1), s.Mantissa)
}

// Decode reads the canonical form of a sum that [Sum.Append] writes. It fails with [ErrSum] for all
// other bytes, also if bytes follow the sum.
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

	// Varints have several forms. Only the shortest ones are canonical.
	if !bytes.Equal(s.Append(nil), b) {
		return Sum{}, ErrSum
	}
	return s, nil
}
