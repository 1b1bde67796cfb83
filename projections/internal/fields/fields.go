// Package fields is the form of the fields in values and marks that projections write: varints, and bytes with their length
// before them; and of rows of counts (counts.go).
package fields

import "encoding/binary"

// AppendText appends the length of a text and the text.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Reader reads fields one after the other, and remembers whether all were there.
type Reader struct {
	// Rest is what was not read yet. Nothing is left once Bad.
	Rest []byte
	// Bad is set once a field was missing. All fields read afterwards are zero.
	Bad bool
}

// Uvarint reads a varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Bad, r.Rest = true, nil
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes reads a length and so many bytes, which are not copied.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Bad, r.Rest = true, nil
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Text reads a length and so many bytes as a text.
func (r *Reader) Text() string { return string(r.Bytes()) }
