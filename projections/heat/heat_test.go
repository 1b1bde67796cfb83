package heat

import (
	"bytes"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

const (
	second = int64(1_000_000)
	day    = 24 * 60 * 60 * second
	year   = 365 * day
)

// precision is the precision of exact sums, in bits.
const precision = 192

// halvings has the roots 2^(2^-1), 2^(2^-2), and so on.
var halvings = func() (list [120]*big.Float) {
	x := exactly(2)
	for i := range list {
		x = new(big.Float).SetPrec(precision).Sqrt(x)
		list[i] = x
	}
	return list
}()

func exactly(n int64) *big.Float { return new(big.Float).SetPrec(precision).SetInt64(n) }

// exactSum is mantissa · 2^exponent, with a range and precision far above those of a [Sum].
type exactSum struct {
	mantissa *big.Float
	exponent int64
}

// scaled returns the mantissa for another exponent. A sum more than a thousand doublings below that
// exponent becomes 0.
func (e exactSum) scaled(exponent int64) *big.Float {
	if e.mantissa == nil || exponent-e.exponent > 1000 {
		return exactly(0)
	}
	return new(big.Float).SetMantExp(e.mantissa, int(e.exponent-exponent))
}

// add adds weight · 2^(at/halfLife), exact to far more than 100 bits.
func (e exactSum) add(weight uint32, at, halfLife int64) exactSum {
	x := exactSum{exactly(int64(weight)), at / halfLife}
	rest := big.NewInt(at % halfLife)
	half := big.NewInt(halfLife)
	for _, root := range &halvings {
		rest.Lsh(rest, 1)
		if rest.Cmp(half) >= 0 {
			rest.Sub(rest, half)
			x.mantissa.Mul(x.mantissa, root)
		}
	}
	exponent := max(e.exponent, x.exponent)
	return exactSum{exactly(0).Add(e.scaled(exponent), x.scaled(exponent)), exponent}
}

func (s Sum) exact() exactSum {
	return exactSum{new(big.Float).SetPrec(precision).SetUint64(s.Mantissa), s.Exponent - 62}
}

// cmp compares two sums exactly.
func (s Sum) cmp(other Sum) int {
	exponent := max(s.Exponent, other.Exponent)
	return s.exact().scaled(exponent).Cmp(other.exact().scaled(exponent))
}

// tooSmall returns by how much the sum is below the exact value, as a fraction of that value times
// 2^58.
func (s Sum) tooSmall(e exactSum) float64 {
	exact := e.scaled(s.Exponent)
	diff := exactly(0).Sub(exact, s.exact().scaled(s.Exponent))
	f, _ := diff.SetMantExp(diff.Quo(diff, exact), 58).Float64()
	return f
}

// TestScoresOfKnownSums checks sums that can be worked out by hand, and their scores.
func TestScoresOfKnownSums(t *testing.T) {
	for _, c := range []struct {
		name  string
		got   Sum
		want  Sum
		score int64
	}{
		{"nothing", Sum{}, Sum{}, 0},
		{"no weight adds nothing", Sum{}.Add(0, day, day), Sum{}, 0},
		{"one at the epoch", Sum{}.Add(1, 0, day), Sum{1 << 62, 0}, 0},
		{"eight are three doublings", Sum{}.Add(8, 0, day), Sum{1 << 62, 3}, 3 * 65536},
		{"a half-life is a doubling", Sum{}.Add(1, day, day), Sum{1 << 62, 1}, 65536},
		{"one a day after one is three halves of it", Sum{}.Add(1, 10*day, day).Add(1, 11*day, day), Sum{3 << 61, 11}, 11*65536 + 9*4096},
		{"and in the other order", Sum{}.Add(1, 11*day, day).Add(1, 10*day, day), Sum{3 << 61, 11}, 11*65536 + 9*4096},
		{"two equal ones are one doubling", Sum{}.Add(5, 3*day, day).Add(5, 3*day, day), Sum{5 << 60, 6}, 6*65536 + 5*4096},
		{"the largest weight", Sum{}.Add(math.MaxUint32, 0, day), Sum{math.MaxUint32 << 31, 31}, 31*65536 + 15*4096},
		{"62 half-lives earlier is the last bit", Sum{}.Add(1, 62*day, day).Add(1, 0, day), Sum{1<<62 + 1, 62}, 62 * 65536},
		{"63 half-lives earlier is nothing", Sum{}.Add(1, 63*day, day).Add(1, 0, day), Sum{1 << 62, 63}, 63 * 65536},
		{"much later is all", Sum{}.Add(9, 0, day).Add(1, 1000*day, day), Sum{1 << 62, 1000}, 1000 * 65536},
		{"before the epoch is the epoch", Sum{}.Add(1, -5, day), Sum{1 << 62, 0}, 0},
		{"no half-life is 1 µs", Sum{}.Add(1, 7, 0), Sum{1 << 62, 7}, 7 * 65536},
		{"a negative half-life too", Sum{}.Add(1, 7, -day), Sum{1 << 62, 7}, 7 * 65536},
		{"the last of all times", Sum{}.Add(math.MaxUint32, math.MaxInt64, 1), Sum{math.MaxUint32 << 31, 1<<62 + 30}, math.MaxInt64 &^ 4095},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got the sum %+v, want %+v", c.got, c.want)
			}
			if c.got.Score() != c.score {
				t.Errorf("got the score %d, want %d", c.got.Score(), c.score)
			}
		})
	}
}

// drawHalfLife draws a half-life from 1 s to 10 years.
func drawHalfLife(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{second, 3600 * second, day, 7 * day, 10 * year}),
		rapid.Int64Range(second, 10*year),
	).Draw(t, "half-life")
}

// drawTime draws a time from the epoch to the end of timestamps, often about now.
func drawTime(t *rapid.T, halfLife int64) int64 {
	now := 55 * year
	return rapid.OneOf(
		rapid.Int64Range(now, now+2*halfLife),
		rapid.Int64Range(max(0, now-30*halfLife), now+30*halfLife),
		rapid.Int64Range(0, 8029*year),
		rapid.SampledFrom([]int64{0, 1, halfLife - 1, halfLife, halfLife + 1}),
	).Draw(t, "at")
}

func drawWeight(t *rapid.T) uint32 {
	return rapid.OneOf(rapid.Uint32Range(1, 10), rapid.Uint32Min(1)).Draw(t, "weight")
}

// TestOneAdditionIsExactToFiftyEightBits checks that one addition is at most 2^-58 of its value too
// small, and never too large.
func TestOneAdditionIsExactToFiftyEightBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		halfLife := drawHalfLife(t)
		at := drawTime(t, halfLife)
		weight := drawWeight(t)
		s := Sum{}.Add(weight, at, halfLife)
		if off := s.tooSmall(exactSum{}.add(weight, at, halfLife)); off < 0 || off >= 1 {
			t.Fatalf("%d at %d, half-life %d: got %+v, too small by %g · 2^-58, want less than 1 · 2^-58",
				weight, at, halfLife, s, off)
		}
	})
}

// TestManyAdditionsStayNearExactSum checks that each addition adds at most 2^-58 to the error, and
// that no addition lowers the sum or its score.
func TestManyAdditionsStayNearExactSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		halfLife := drawHalfLife(t)
		var s, again Sum
		var exact exactSum
		for n := range rapid.IntRange(1, 100).Draw(t, "additions") {
			at := drawTime(t, halfLife)
			weight := drawWeight(t)
			before := s
			s = s.Add(weight, at, halfLife)
			again = again.Add(weight, at, halfLife)
			exact = exact.add(weight, at, halfLife)

			if off := s.tooSmall(exact); off < 0 || off >= float64(n+1) {
				t.Fatalf("after %d additions, half-life %d: got %+v, too small by %g · 2^-58, want less than 1 · 2^-58 per addition",
					n+1, halfLife, s, off)
			}
			if s != again {
				t.Fatalf("the same additions: got %+v and %+v, want equal sums", s, again)
			}
			if s.cmp(before) < 0 || s.Score() < before.Score() {
				t.Fatalf("%d added at %d to %+v: got %+v, want no lower sum", weight, at, before, s)
			}
			checkForm(t, s)
		}
	})
}

// checkForm checks that a sum survives encoding, and that its score follows from it.
func checkForm(t *rapid.T, s Sum) {
	b := s.Append([]byte("x"))[1:]
	decoded, err := Decode(b)
	if err != nil || decoded != s || len(b) > 19 {
		t.Fatalf("decode % x: got %+v, error %v, want %+v in at most 19 bytes", b, decoded, err, s)
	}

	// score/4096 is the number of whole sixteenths of a doubling in the sum. The 16th power of the
	// sum has no roots, so it can be compared exactly.
	sixteenths := s.Score()/4096 - 16*s.Exponent
	power := new(big.Int).Exp(new(big.Int).SetUint64(s.Mantissa), big.NewInt(16), nil)
	if s.Score()%4096 != 0 || int64(power.BitLen()) != 16*62+1+sixteenths {
		t.Fatalf("%+v: got score %d, which does not follow from the sum", s, s.Score())
	}
}

// TestScoreChangesAtEverySixteenth checks that the score changes exactly at each sixteenth of a
// doubling of the sum.
func TestScoreChangesAtEverySixteenth(t *testing.T) {
	for i := int64(1); i < 16; i++ {
		x := exactly(1 << 62)
		for range i {
			x.Mul(x, halvings[3]) // 2^(1/16)
		}
		below, _ := x.Uint64()
		for _, exponent := range []int64{0, 20_000} {
			lo := Sum{below, exponent}.Score()
			hi := Sum{below + 1, exponent}.Score()
			if lo != exponent*65536+(i-1)*4096 || hi != lo+4096 {
				t.Errorf("step %d: got scores %d and %d, want %d and %d",
					i, lo, hi, exponent*65536+(i-1)*4096, exponent*65536+i*4096)
			}
		}
	}
}

// TestScoreChangesSeldom checks that the score of an item with many plays changes about 16 times
// per doubling.
func TestScoreChangesSeldom(t *testing.T) {
	const n = 100_000
	s := Sum{}.Add(1, 55*year, day)
	changes := 0
	for i := range int64(n) {
		next := s.Add(1, 55*year+i, day)
		if next.Score() != s.Score() {
			changes++
		}
		s = next
	}

	if limit := int(16*math.Log2(n)) + 1; changes > limit || changes < limit/2 {
		t.Errorf("got %d changes in %d plays, want %d to %d", changes, n, limit/2, limit)
	}
}

// TestRootsAreExact compares the tables of roots with roots of 192 bits.
func TestRootsAreExact(t *testing.T) {
	for k := range roots {
		root := halvings[4*k+3] // 2^(1/16^(k+1))
		x := new(big.Float).SetPrec(precision).SetUint64(1 << 63)
		for i, got := range roots[k] {
			if want, _ := x.Uint64(); got != want {
				t.Errorf("roots[%d][%d]: got %#x, want %#x", k, i, got, want)
			}
			x.Mul(x, root)
		}
	}
}

// TestExp2StaysBelowTwo checks that exp2 returns numbers from 1 up to 2, in rising order.
func TestExp2StaysBelowTwo(t *testing.T) {
	last := uint64(0)
	for _, fraction := range []uint64{
		0, 1, 1 << 39, 1<<40 - 1, 1 << 40, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1<<40, math.MaxUint64,
	} {
		got := exp2(fraction)
		if got < 1<<63 || got < last {
			t.Errorf("exp2(%#x): got %#x, want at least %#x and the result before, %#x", fraction, got, uint64(1)<<63, last)
		}
		last = got
	}
}

// TestLaterCountsMore checks that a later addition is never smaller than an earlier one, although
// each is rounded.
func TestLaterCountsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		halfLife := drawHalfLife(t)
		at := drawTime(t, halfLife)
		weight := drawWeight(t)
		now := Sum{}.Add(weight, at, halfLife)
		later := Sum{}.Add(weight, at+1, halfLife)
		if later.cmp(now) < 0 {
			t.Fatalf("got %+v at %d and %+v a microsecond later, want no lower sum", now, at, later)
		}
	})
}

// FuzzDecode checks that a row that decodes encodes to the same bytes, and that sums have the form
// that Add makes.
func FuzzDecode(f *testing.F) {
	for _, s := range []Sum{{}, {1 << 62, 0}, {1<<63 - 1, maxExponent}, Sum{}.Add(3, 55*year, day)} {
		f.Add(s.Append(nil))
	}
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	f.Add([]byte{0x80, 0})                           // zero, not in its shortest form
	f.Add([]byte{1})                                 // without a mantissa
	f.Add([]byte{1, 5})                              // with a mantissa that is too small
	f.Add(append(Sum{1 << 62, 0}.Append(nil), 0xff)) // with an extra byte
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			if s != (Sum{}) {
				t.Errorf("got %+v with error %v, want the zero sum", s, err)
			}
			return
		}

		if again := s.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("encode the decoded sum: got % x, want % x", again, b)
		}
		if s != (Sum{}) && (s.Mantissa>>62 != 1 || s.Exponent < 0) {
			t.Errorf("got sum %+v in an impossible form", s)
		}
		if next := s.Add(1, 55*year, day); next.Score() < s.Score() {
			t.Errorf("add to %+v: got %+v, want no lower score", s, next)
		}
	})
}

// TestDecodeRefuses checks that rows that Append never makes are refused.
func TestDecodeRefuses(t *testing.T) {
	for _, b := range [][]byte{
		nil,
		{0, 0},
		{0x80, 0},
		{1},
		{1, 5},
		append(Sum{1 << 62, 0}.Append(nil), 0),
		Sum{1 << 62, maxExponent + 1}.Append(nil),
		Sum{1 << 63, 0}.Append(nil),
		bytes.Repeat([]byte{0xff}, 12),
	} {
		if s, err := Decode(b); err == nil {
			t.Errorf("decode % x: got %+v, want an error", b, s)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	s, at := Sum{}, 55*year
	for b.Loop() {
		at += 1001
		s = s.Add(1, at, day)
	}
	_ = s.Score()
}
