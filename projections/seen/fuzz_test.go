package seen

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzFingerprints checks that bytes are either no row of fingerprints, or the only row of their set.
func FuzzFingerprints(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 15, 16, 17, 127, 128, 300} {
		f.Add(appendFingerprints(nil, randomSet(r, n)))
	}
	f.Add(appendFingerprints(nil, []uint64{0, 1, 2, 1<<fingerprintBits - 1}))
	f.Add([]byte{versionFingerprints, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, row []byte) {
		got, err := decodeFingerprints(nil, row)
		if cap(got) > 16*len(row)+64 {
			t.Fatalf("a row of %d bytes takes space for %d fingerprints, want at most %d", len(row), cap(got), 16*len(row)+64)
		}
		if err != nil {
			return
		}

		checkSorted(t, got)
		if again := appendFingerprints(nil, got); !bytes.Equal(again, row) {
			t.Fatalf("row %x decodes to a set that encodes to %x, want the same bytes", row, again)
		}
		merged, err := union(nil, [][]byte{row, row})
		if err != nil {
			t.Fatalf("merge %x with itself: %v", row, err)
		}
		if !bytes.Equal(merged, row) {
			t.Fatalf("merge %x with itself: got %x, want the same bytes", row, merged)
		}
	})
}

// checkSorted checks that fingerprints are sorted, differ, and have no more bits than allowed.
func checkSorted(t *testing.T, set []uint64) {
	t.Helper()
	for i, p := range set {
		if p >= 1<<fingerprintBits {
			t.Fatalf("fingerprint %x has more than %d bits", p, fingerprintBits)
		}
		if i > 0 && p <= set[i-1] {
			t.Fatalf("fingerprint %x comes after %x, want rising ones", p, set[i-1])
		}
	}
}

// FuzzBloom checks that bytes are either no filter, or one that reports of each fingerprint whether
// it is in the filter.
func FuzzBloom(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 100, 300} {
		f.Add(appendBloom(nil, randomSet(r, n), 12), uint64(17))
	}
	f.Add(appendBloom(nil, []uint64{17}, minPositions), uint64(17))
	f.Add([]byte{versionBloom, 255, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f}, uint64(1))
	f.Fuzz(func(t *testing.T, row []byte, probed uint64) {
		b, err := decodeBloom(row)
		if err != nil {
			return
		}

		again := binary.AppendUvarint([]byte{versionBloom, byte(b.k)}, uint64(b.n))
		again = append(again, b.bits...)
		if !bytes.Equal(again, row) {
			t.Fatalf("row %x decodes to a filter that encodes to %x, want the same bytes", row, again)
		}
		if b.n < 1 || b.n > 8*len(row) || len(b.bits) == 0 {
			t.Fatalf("got %d fingerprints in a row of %d bytes, want 1 to 8 per byte", b.n, len(row))
		}

		// The filter has a fingerprint if all its bits are set.
		probed &= 1<<fingerprintBits - 1
		want := true
		pos := positions(spreadFingerprint(probed))
		for range b.k {
			at := pos.next(uint64(len(b.bits)) * 8)
			want = want && b.bits[at/8]>>(at%8)&1 != 0
		}
		if b.has(spreadFingerprint(probed)) != want {
			t.Fatalf("filter %x has the fingerprint %x: got %v, want %v", row, probed, !want, want)
		}
	})
}

// FuzzServes checks that bytes are either no row of serves, or the only row of these serves.
func FuzzServes(f *testing.F) {
	f.Add(appendServes(nil, []serve{{stamp: liveStampBit | 9, index: 1, item: []byte("\x03a\x00")}}))
	f.Add(appendServes(nil, []serve{
		{stamp: liveStampBit | 9, item: []byte("\x03a\x00")},
		{stamp: 7, item: []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x07")},
		{stamp: 7, index: 3, item: []byte("\x03b\x00")},
		{stamp: 6, item: []byte("\x03c\x00")},
	}))
	f.Fuzz(func(t *testing.T, row []byte) {
		got, err := decodeServes(nil, row)
		if err != nil {
			return
		}
		if len(got) == 0 || len(got) > maxServed {
			t.Fatalf("row %x has %d serves, want 1 to %d", row, len(got), maxServed)
		}
		if again := appendServes(nil, got); !bytes.Equal(again, row) {
			t.Fatalf("row %x decodes to serves that encode to %x, want the same bytes", row, again)
		}

		// A merge keeps each item once.
		hasDuplicates := false
		for i, s := range got {
			if slices.ContainsFunc(got[:i], func(o serve) bool { return bytes.Equal(o.item, s.item) }) {
				hasDuplicates = true
			}
		}
		merged, err := mergeServes(nil, [][]byte{row, row})
		if err != nil {
			t.Fatalf("merge %x with itself: %v", row, err)
		}
		if unchanged := bytes.Equal(merged, row); unchanged == hasDuplicates {
			t.Fatalf("merge %x with itself: got %x, want the same bytes: %v", row, merged, !hasDuplicates)
		}
	})
}

// FuzzPlan checks that bytes are either no plan, or the only row of one.
func FuzzPlan(f *testing.F) {
	f.Add(plan{{671, 0}}.appendRow(nil))
	f.Add(plan{{670, 3}, {671, 8192}, {lastMonth, 1 << 40}}.appendRow(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		p, err := decodePlan(row)
		if err != nil {
			return
		}
		if again := p.appendRow(nil); !bytes.Equal(again, row) {
			t.Fatalf("row %x decodes to a plan that encodes to %x, want the same bytes", row, again)
		}
	})
}
