package fields

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestFieldsSurviveEncoding checks that fields are read as they were written, and that a truncated
// row is bad.
func TestFieldsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "number")
		text := rapid.String().Draw(t, "text")
		row := append(AppendText(binary.AppendUvarint(nil, n), text), "more"...)

		r := Reader{Rest: row}
		if got := r.Uvarint(); got != n || r.Bad {
			t.Fatalf("got number %d, Bad %v, want %d, false", got, r.Bad, n)
		}
		if got := r.Text(); got != text || r.Bad || string(r.Rest) != "more" {
			t.Fatalf("got text %q before %q, Bad %v, want %q before \"more\", false", got, r.Rest, r.Bad, text)
		}

		// Truncated anywhere, the row is bad, and all further fields are zero.
		cut := Reader{Rest: row[:rapid.IntRange(0, len(row)-len("more")-1).Draw(t, "cut")]}
		_, _ = cut.Uvarint(), cut.Bytes()
		if !cut.Bad || cut.Rest != nil || cut.Uvarint() != 0 || len(cut.Bytes()) != 0 {
			t.Fatalf("truncated row: got %+v, want Bad", cut)
		}
	})
}

// TestBadVarintIsReported checks that a varint with too many bits is bad.
func TestBadVarintIsReported(t *testing.T) {
	if r := (Reader{Rest: bytes.Repeat([]byte{0xff}, 11)}); r.Uvarint() != 0 || !r.Bad {
		t.Errorf("varint of 77 bits: got %+v, want Bad", r)
	}
}
