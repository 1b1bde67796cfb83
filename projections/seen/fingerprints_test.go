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
			t.Fatalf("%v, %v: %x", values, got, row)
		}
	}
}

// TestFingerprintsAroundPowersOfTwo: where the number of fingerprints gets one more bit, the code
// gets one bit less. Sets of every such size come back, spread or in a heap at either end.
func TestFingerprintsAroundPowersOfTwo(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const limit = uint64(1) << fingerprintBits
	for k := range 14 {
		for _, n := range []int{1<<k - 1, 1 << k, 1<<k + 1} {
			low, high := make([]uint64, n), make([]uint64, n)
			for i := range n {
				low[i], high[i] = uint64(i), limit-uint64(n)+uint64(i)
			}
			for name, values := range map[string][]uint64{"spread": randomSet(r, n), "low": low, "high": high} {
				if n == 0 {
					continue // no row has none
				}
				row := appendFingerprints(nil, values)
				got, err := decodeFingerprints(nil, row)
				if err != nil || !slices.Equal(got, values) {
					t.Fatalf("%d fingerprints, %s: %d come back: %v", n, name, len(got), err)
				}
				// Besides the rest, a gap takes one bit and what is in unary, which is less than 2n
				// bits in all.
				most := 4 + (n*(riceLowBits(uint64(n))+1)+2*n)/8 + 1
				if len(row) > most {
					t.Errorf("%d fingerprints, %s: %d bytes, want at most %d", n, name, len(row), most)
				}
			}
		}
	}
}

// TestDecodingAppendsToDst: rows and fingerprints are appended, and a row that is refused leaves
// what was there.
func TestDecodingAppendsToDst(t *testing.T) {
	row := appendFingerprints([]byte("row:"), []uint64{5, 9})
	if !bytes.HasPrefix(row, []byte("row:")) {
		t.Fatalf("%x", row)
	}
	got, err := decodeFingerprints([]uint64{7}, row[4:])
	if err != nil || !slices.Equal(got, []uint64{7, 5, 9}) {
		t.Fatalf("%v %v", got, err)
	}
	if got, err = decodeFingerprints([]uint64{7}, row[4:len(row)-1]); err == nil || !slices.Equal(got[:1], []uint64{7}) {
		t.Fatalf("%v %v", got, err)
	}
}

// TestDecodingRejectsOtherForms changes, cuts and prolongs rows: what is taken all the same is the
// row of another set.
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
		forms = append(forms, append(bytes.Clone(row), 0), append(bytes.Clone(row), 1), append(bytes.Clone(row), row...),
			// The number of fingerprints in more bytes than it needs.
			slices.Concat(row[:1], []byte{row[1] | 0x80, 0}, row[2:]))
		for _, form := range forms {
			got, err := decodeFingerprints(nil, form)
			if err != nil {
				refused++
				continue
			}
			if again := appendFingerprints(nil, got); !bytes.Equal(again, form) || slices.Equal(got, values) {
				t.Fatalf("%x is read as %v, which is %x", form, got, again)
			}
		}
	}
	if refused == 0 {
		t.Error("no form was refused")
	}
}

// TestUnionIsASemilattice: in whatever groups and order rows are merged, and however often, the
// same bytes come out.
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
			if got := mergeAnyhow(t, rows, union); !bytes.Equal(got, want) {
				t.Fatalf("%x, want %x, of %x", got, want, rows)
			}
		}
	})
}

// mergeAnyhow merges rows in random order, with repetitions, in random groups.
func mergeAnyhow(t *rapid.T, rows [][]byte, merge func(dst []byte, rows [][]byte) ([]byte, error)) []byte {
	left := rapid.Permutation(rows).Draw(t, "order")
	left = append(left, rapid.SliceOfN(rapid.SampledFrom(rows), 0, 3).Draw(t, "again")...)
	for len(left) > 1 {
		from := rapid.IntRange(0, len(left)-2).Draw(t, "from")
		to := rapid.IntRange(from+2, len(left)).Draw(t, "to")
		// What stands before the merged row is left alone.
		merged, err := merge([]byte("before"), left[from:to])
		if err != nil || !bytes.HasPrefix(merged, []byte("before")) {
			t.Fatalf("%x: %v", merged, err)
		}
		left = slices.Concat(left[:from], [][]byte{merged[len("before"):]}, left[to:])
	}
	return left[0]
}

// TestUnionRefusesCorruptRows: a row that cannot be is not left out of a union.
func TestUnionRefusesCorruptRows(t *testing.T) {
	good, large := appendFingerprint(nil, 1), appendFingerprints(nil, randomSet(rand.New(rand.NewPCG(1, 1)), 100))
	for _, rows := range [][][]byte{
		{good, nil}, {good, {versionFingerprints}}, {good, good[:len(good)-1]}, {large, large[:len(large)-1]}, {large, {versionBloom, 1}},
	} {
		if got, err := union(nil, rows); err == nil {
			t.Errorf("%x are merged to %x", rows, got)
		}
	}
}

// TestFingerprintsDifferByUser: the same item has another print for each user, and fingerprints
// fill their space evenly.
func TestFingerprintsDifferByUser(t *testing.T) {
	item, _ := itemHash(nil, "42")
	met := map[uint64]bool{}
	var buckets [64]int
	const users = 64_000
	for i := range users {
		p := fingerprintOf(item, userSalt(string(rune('a'+i%26))+string(rune(0x4e00+i/26))))
		if p >= 1<<fingerprintBits || met[p] {
			t.Fatalf("print %x", p)
		}
		met[p] = true
		buckets[p>>(fingerprintBits-6)]++
	}
	for i, n := range buckets {
		if math.Abs(float64(n)-users/64) > 200 { // six standard deviations
			t.Errorf("%d fingerprints begin with %d, want about %d", n, i, users/64)
		}
	}
}
