// Package fields encodes the fields in values and page cursors that projections write: varints,
// bytes after their length, and rows of counts (counts.go).
package fields

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// AppendText appends the length of a text, as a varint, and the text.
func AppendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Reader reads fields one after the other. After an error all further fields are zero, so the
// caller checks Bad once, after the last field.
type Reader struct {
	// Rest has the bytes that are not read yet. It is nil once Bad is set.
	Rest []byte
	// Bad is set by the first field that is missing or incomplete.
	Bad bool
}

// Uvarint reads a varint.
func (r *Reader) Uvarint() uint64 {
	v, n := projections.Uvarint(r.Rest)
	if n <= 0 {
		r.Bad = true
		r.Rest = nil
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes reads a length and that many bytes. The result is a part of Rest, without its own memory.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Bad = true
		r.Rest = nil
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Text reads a length and that many bytes. The result has its own memory.
func (r *Reader) Text() string { return string(r.Bytes()) }
