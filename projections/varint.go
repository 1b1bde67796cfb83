package projections

import "encoding/binary"

// Uvarint decodes the varint at the start of b, and returns its size in bytes, like
// [binary.Uvarint]. The size is at most 0 if b has no complete varint, and 0 if the varint is not
// in its shortest form. No fold writes another form, so a row that has one is corrupt.
func Uvarint(b []byte) (v uint64, size int) {
	v, size = binary.Uvarint(b)
	if size > 1 && b[size-1] == 0 {
		return 0, 0
	}
	return v, size
}

// Varint is Uvarint for a signed number, which [binary.AppendVarint] wrote.
func Varint(b []byte) (v int64, size int) {
	v, size = binary.Varint(b)
	if size > 1 && b[size-1] == 0 {
		return 0, 0
	}
	return v, size
}
