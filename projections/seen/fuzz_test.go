package seen

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzFingerprints: bytes are no row of fingerprints, or the only row of their set.
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
			t.Fatalf("%d bytes take space for %d fingerprints", len(row), cap(got))
		}
		if err != nil {
			return
		}
		mustRise(t, got)
		if again := appendFingerprints(nil, got); !bytes.Equal(again, row) {
			t.Fatalf("%x is read as the set of %x", row, again)
		}
		if merged, err := union(nil, [][]byte{row, row}); err != nil || !bytes.Equal(merged, row) {
			t.Fatalf("%x merged with itself is %x: %v", row, merged, err)
		}
	})
}

func mustRise(t *testing.T, set []uint64) {
	t.Helper()
	for i, p := range set {
		if p >= 1<<fingerprintBits || i > 0 && p <= set[i-1] {
			t.Fatalf("%x do not rise, or have more than %d bits", set, fingerprintBits)
		}
	}
}

// FuzzBloom: bytes are no filter, or one that reports of each print whether it is in it.
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
		if again = append(again, b.bits...); !bytes.Equal(again, row) {
			t.Fatalf("%x is read as %x", row, again)
		}
		if b.n < 1 || b.n > 8*len(row) || len(b.bits) == 0 {
			t.Fatalf("%d fingerprints in %d bytes", b.n, len(row))
		}
		probed &= 1<<fingerprintBits - 1
		want := true
		pos := positions(spreadFingerprint(probed))
		for range b.k {
			at := pos.next(uint64(len(b.bits)) * 8)
			want = want && b.bits[at/8]>>(at%8)&1 != 0
		}
		if b.has(spreadFingerprint(probed)) != want {
			t.Fatalf("%x: print %x is in the filter: %v, want %v", row, probed, !want, want)
		}
	})
}

// FuzzServes: bytes are no row of serves, or the only one of these serves.
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
			t.Fatalf("%x has %d serves", row, len(got))
		}
		twice := false
		for i, s := range got {
			twice = twice || slices.ContainsFunc(got[:i], func(o serve) bool { return bytes.Equal(o.item, s.item) })
		}
		if again := appendServes(nil, got); !bytes.Equal(again, row) {
			t.Fatalf("%x is read as the serves of %x", row, again)
		}
		if merged, err := mergeServes(nil, [][]byte{row, row}); err != nil || bytes.Equal(merged, row) == twice {
			t.Fatalf("%x merged with itself is %x: %v", row, merged, err)
		}
	})
}

// FuzzPlan: bytes are no plan, or the only row of one.
func FuzzPlan(f *testing.F) {
	f.Add(plan{{671, 0}}.appendRow(nil))
	f.Add(plan{{670, 3}, {671, 8192}, {lastMonth, 1 << 40}}.appendRow(nil))
	f.Fuzz(func(t *testing.T, row []byte) {
		p, err := decodePlan(row)
		if err != nil {
			return
		}
		if again := p.appendRow(nil); !bytes.Equal(again, row) {
			t.Fatalf("%x is read as the plan of %x", row, again)
		}
	})
}
