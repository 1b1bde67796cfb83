package projections

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestVarintsAreInShortestForm checks that numbers are read as they were written, and that longer
// forms of the same numbers and incomplete ones are refused.
func TestVarintsAreInShortestForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unsigned := rapid.Uint64().Draw(t, "unsigned")
		b := binary.AppendUvarint(nil, unsigned)
		if got, size := Uvarint(b); got != unsigned || size != len(b) {
			t.Errorf("got %d of %d bytes, want %d of %d", got, size, unsigned, len(b))
		}
		if _, size := Uvarint(lengthen(b)); size > 0 {
			t.Errorf("%x was read as %d bytes, want an error", lengthen(b), size)
		}
		if _, size := Uvarint(b[:len(b)-1]); size > 0 {
			t.Errorf("%x was read as %d bytes, want an error", b[:len(b)-1], size)
		}

		signed := rapid.Int64().Draw(t, "signed")
		b = binary.AppendVarint(nil, signed)
		if got, size := Varint(b); got != signed || size != len(b) {
			t.Errorf("got %d of %d bytes, want %d of %d", got, size, signed, len(b))
		}
		if _, size := Varint(lengthen(b)); size > 0 {
			t.Errorf("%x was read as %d bytes, want an error", lengthen(b), size)
		}
	})
}

// lengthen returns the same number with one more byte, which is zero.
func lengthen(varint []byte) []byte {
	longer := append([]byte(nil), varint...)
	longer[len(longer)-1] |= 0x80
	return append(longer, 0)
}
