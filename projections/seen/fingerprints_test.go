package seen

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// randomSet returns about n fingerprints, sorted and without repetitions.
func randomSet(r *rand.Rand, n int) []uint64 {
	values := make([]uint64, n)
	for i := range values {
		values[i] = r.Uint64() >> (64 - fingerprintBits)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// TestRiceIsCanonical checks that sets of random and of extreme values are decoded as they were
// encoded.
func TestRiceIsCanonical(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		n := 1 + r.IntN(1+r.IntN(300))
		values := make([]uint64, n)
		for i := range values {
			values[i] = r.Uint64() >> (64 - fingerprintBits)
			if r.IntN(5) == 0 {
				values[i] = (1<<fingerprintBits - 1) >> r.IntN(fingerprintBits)
			}
		}
		slices.Sort(values)
		values = slices.Compact(values)

		row := appendRice(nil, values)
		got, ok := decodeRice(nil, row)
		if !ok || !slices.Equal(got, values) {
			t.Fatalf("row %x: got %v, want %v", row, got, values)
		}
	}
}

// TestFingerprintsAroundPowersOfTwo checks sets around the sizes at which the number of fingerprints
// gets one more bit and the code one bit less. Spread over all values, or at either end, each must
// be decoded as it was encoded.
func TestFingerprintsAroundPowersOfTwo(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const limit = uint64(1) << fingerprintBits
	for k := range 14 {
		for _, n := range []int{1<<k - 1, 1 << k, 1<<k + 1} {
			low := make([]uint64, n)
			high := make([]uint64, n)
			for i := range n {
				low[i] = uint64(i)
				high[i] = limit - uint64(n) + uint64(i)
			}
			for name, values := range map[string][]uint64{"spread": randomSet(r, n), "low": low, "high": high} {
				if n == 0 {
					continue // there is no row without fingerprints
				}
				row := appendFingerprints(nil, values)
				got, err := decodeFingerprints(nil, row)
				if err != nil {
					t.Fatalf("%d fingerprints, %s: %v", n, name, err)
				}
				if !slices.Equal(got, values) {
					t.Fatalf("%d fingerprints, %s: got %d other ones, want the same", n, name, len(got))
				}

				// Besides the low bits, a gap takes one bit and its unary part, which takes less than
				// 2n bits in all.
				maxBytes := 4 + (n*(riceLowBits(uint64(n))+1)+2*n)/8 + 1
				if len(row) > maxBytes {
					t.Errorf("%d fingerprints, %s: got %d bytes, want at most %d", n, name, len(row), maxBytes)
				}
			}
		}
	}
}

// TestDecodingAppendsToDst checks that encoding and decoding append to their first argument, and that
// a row that is refused leaves what was there.
func TestDecodingAppendsToDst(t *testing.T) {
	row := appendFingerprints([]byte("row:"), []uint64{5, 9})
	if !bytes.HasPrefix(row, []byte("row:")) {
		t.Fatalf("got the row %q, want one that begins with \"row:\"", row)
	}

	got, err := decodeFingerprints([]uint64{7}, row[4:])
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{7, 5, 9}; !slices.Equal(got, want) {
		t.Fatalf("got the fingerprints %v, want %v", got, want)
	}

	got, err = decodeFingerprints([]uint64{7}, row[4:len(row)-1])
	if err == nil {
		t.Fatal("decode a cut row: got no error, want one")
	}
	if !slices.Equal(got[:1], []uint64{7}) {
		t.Fatalf("decode a cut row: got the fingerprints %v, want 7 first", got)
	}
}

// TestDecodingRejectsOtherForms changes, cuts and extends rows. Each such row must be refused, or be
// the only row of another set.
func TestDecodingRejectsOtherForms(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	refused := 0
	for range 400 {
		values := randomSet(r, 1+r.IntN(1+r.IntN(40)))
		row := appendFingerprints(nil, values)
		var forms [][]byte
		for i := range row {
			for bit := range 8 {
				form := bytes.Clone(row)
				form[i] ^= 1 << bit
				forms = append(forms, form)
			}
			forms = append(forms, row[:i])
		}

		twoByteCount := slices.Concat(row[:1], []byte{row[1] | 0x80, 0}, row[2:]) // more bytes than the number needs
		forms = append(forms,
			append(bytes.Clone(row), 0),
			append(bytes.Clone(row), 1),
			append(bytes.Clone(row), row...),
			twoByteCount,
		)
		for _, form := range forms {
			got, err := decodeFingerprints(nil, form)
			if err != nil {
				refused++
				continue
			}
			if again := appendFingerprints(nil, got); !bytes.Equal(again, form) {
				t.Fatalf("row %x decodes to %v, which encodes to %x, want the same bytes", form, got, again)
			}
			if slices.Equal(got, values) {
				t.Fatalf("rows %x and %x both decode to %v, want one row per set", form, row, got)
			}
		}
	}
	if refused == 0 {
		t.Error("got no refused rows, want some")
	}
}

// TestUnionIsASemilattice checks that the order and grouping in which rows are merged, and
// repetitions, do not change the resulting bytes.
func TestUnionIsASemilattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fingerprints := rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64Range(0, 1<<fingerprintBits-1))
		sizes := rapid.OneOf(rapid.IntRange(1, 3), rapid.IntRange(1, 3*fewFingerprints))
		var rows [][]byte
		var all []uint64
		for range rapid.IntRange(2, 12).Draw(t, "rows") {
			n := sizes.Draw(t, "size")
			set := rapid.SliceOfN(fingerprints, n, n).Draw(t, "set")
			slices.Sort(set)
			set = slices.Compact(set)
			all = append(all, set...)
			rows = append(rows, appendFingerprints(nil, set))
		}

		slices.Sort(all)
		want := appendFingerprints(nil, slices.Compact(all))
		for range 4 {
			if got := mergeInRandomGroups(t, rows, union); !bytes.Equal(got, want) {
				t.Fatalf("merge %x: got %x, want %x", rows, got, want)
			}
		}
	})
}

// mergeInRandomGroups merges rows in random order, with repetitions, in random groups.
func mergeInRandomGroups(t *rapid.T, rows [][]byte, merge func(dst []byte, rows [][]byte) ([]byte, error)) []byte {
	left := rapid.Permutation(rows).Draw(t, "order")
	left = append(left, rapid.SliceOfN(rapid.SampledFrom(rows), 0, 3).Draw(t, "again")...)
	for len(left) > 1 {
		from := rapid.IntRange(0, len(left)-2).Draw(t, "from")
		to := rapid.IntRange(from+2, len(left)).Draw(t, "to")

		// The bytes before the merged row must stay.
		merged, err := merge([]byte("before"), left[from:to])
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		if !bytes.HasPrefix(merged, []byte("before")) {
			t.Fatalf("merge: got %q, want the bytes \"before\" first", merged)
		}
		left = slices.Concat(left[:from], [][]byte{merged[len("before"):]}, left[to:])
	}
	return left[0]
}

// TestUnionRefusesCorruptRows checks that a corrupt row is not left out of a union, but refused.
func TestUnionRefusesCorruptRows(t *testing.T) {
	good := appendFingerprint(nil, 1)
	large := appendFingerprints(nil, randomSet(rand.New(rand.NewPCG(1, 1)), 100))
	for _, rows := range [][][]byte{
		{good, nil},
		{good, {versionFingerprints}},
		{good, good[:len(good)-1]},
		{large, large[:len(large)-1]},
		{large, {versionBloom, 1}},
	} {
		if got, err := union(nil, rows); err == nil {
			t.Errorf("merge %x: got %x, want an error", rows, got)
		}
	}
}

// TestFingerprintsDifferByUser checks that one item has another fingerprint for each user, and that
// fingerprints are spread evenly over their values.
func TestFingerprintsDifferByUser(t *testing.T) {
	item, _ := itemHash(nil, "42")
	known := map[uint64]bool{}
	var buckets [64]int
	const users = 64_000
	for i := range users {
		p := fingerprintOf(item, userSalt(string(rune('a'+i%26))+string(rune(0x4e00+i/26))))
		if p >= 1<<fingerprintBits {
			t.Fatalf("got the fingerprint %x, want at most %d bits", p, fingerprintBits)
		}
		if known[p] {
			t.Fatalf("got the fingerprint %x twice, want another one for each user", p)
		}
		known[p] = true
		buckets[p>>(fingerprintBits-6)]++
	}
	for i, n := range buckets {
		if math.Abs(float64(n)-users/64) > 200 { // six standard deviations
			t.Errorf("got %d fingerprints that begin with %d, want about %d", n, i, users/64)
		}
	}
}
