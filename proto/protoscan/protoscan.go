// Package protoscan reads the fields of encoded protobuf messages where they lie, without a generated message to decode into. It says
// where values begin and end; what a field means is left to its callers.
//
// [Next] accepts every encoding that a protobuf library accepts. [Tag], [Bytes] and [Varint] are for code that must be fast: they accept
// the encodings that libraries write, and fail on the rest, which the caller then leaves to a library. All work on a range of one slice,
// by offsets, so that a caller can cut strings out of one copy of the message instead of allocating each. [Cursor] is those three with
// the offsets kept, for messages whose fields are all known.
package protoscan

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is a field of an encoded message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// From and To are the range of the value. A length before the value is not part of the range.
	From, To int
}

// Next reads the field that begins at offset i of an encoded message, which ends with data. It returns a negative offset if the field is
// malformed, and otherwise the offset after the field.
func Next(data []byte, i int) (f Field, next int) {
	number, wireType, n := protowire.ConsumeTag(data[i:])
	if n < 0 || number > protowire.MaxValidNumber {
		return Field{}, -1
	}
	i += n
	if n = protowire.ConsumeFieldValue(number, wireType, data[i:]); n < 0 {
		return Field{}, -1
	}
	f = Field{Number: number, Type: wireType, From: i, To: i + n}
	if wireType == protowire.BytesType {
		value, _ := protowire.ConsumeBytes(data[i:])
		f.From = f.To - len(value)
	}
	return f, f.To
}

// TagOf returns the tag of a field: its number and wire type in one number.
func TagOf(number protowire.Number, wireType protowire.Type) uint32 {
	return uint32(number)<<3 | uint32(wireType)
}

// Tag reads the tag at offset i, which must be before end. It returns a negative offset if the tag has more than two bytes, which
// those of fields up to number 2047 do not.
func Tag(data []byte, i, end int) (tag uint32, next int) {
	c := data[i]
	if c < 0x80 {
		return uint32(c), i + 1
	}
	if i+1 < end && data[i+1] < 0x80 {
		return uint32(c&0x7f) | uint32(data[i+1])<<7, i + 2
	}
	return 0, -1
}

// Bytes reads the value at offset i, behind a tag, and returns its range. The range is negative if the value has another wire type than
// [protowire.BytesType], does not end before end, or belongs to field 0.
func Bytes(data []byte, tag uint32, i, end int) (from, to int) {
	if tag&7 != uint32(protowire.BytesType) || tag>>3 == 0 {
		return -1, -1
	}
	n, i := Varint(data, i, end)
	if i < 0 || n > uint64(end-i) {
		return -1, -1
	}
	return i, i + int(n)
}

// Varint reads a number at offset i. It returns a negative offset if the number is malformed or does not end before end.
func Varint(data []byte, i, end int) (v uint64, next int) {
	if i < end && data[i] < 0x80 {
		return uint64(data[i]), i + 1
	}
	v, n := protowire.ConsumeVarint(data[min(i, end):end])
	if n < 0 {
		return 0, -1
	}
	return v, i + n
}

// Cursor reads an encoded message from its beginning to its end. After something malformed it returns only zero values, so a caller checks
// [Cursor.OK] once, at the end.
type Cursor struct {
	data    []byte
	text    string // the same bytes, of which all strings are parts
	at, end int
	failed  bool
}

// NewCursor returns a cursor at the beginning of a message.
func NewCursor(data []byte) Cursor { return Cursor{data: data, text: string(data), end: len(data)} }

// More reports whether there is another field.
func (c *Cursor) More() bool { return c.at < c.end && !c.failed }

// OK reports whether everything so far was well formed.
func (c *Cursor) OK() bool { return !c.failed }

// Tag reads a tag, which the value must follow.
func (c *Cursor) Tag() uint32 {
	if !c.More() {
		c.failed = true
		return 0
	}
	tag, next := Tag(c.data, c.at, c.end)
	c.moveTo(next)
	return tag
}

// Varint reads a number.
func (c *Cursor) Varint() uint64 {
	v, next := Varint(c.data, c.at, c.end)
	c.moveTo(next)
	return v
}

// Message reads a message behind its tag, and returns a cursor at its beginning.
func (c *Cursor) Message(tag uint32) Cursor {
	from, to := Bytes(c.data, tag, c.at, c.end)
	c.moveTo(to)
	inner := *c
	inner.at, inner.end = from, to
	return inner
}

// Text reads a text behind its tag. One that is no UTF-8 is malformed.
func (c *Cursor) Text(tag uint32) string {
	from, to := Bytes(c.data, tag, c.at, c.end)
	if c.moveTo(to); c.failed {
		return ""
	}
	s := c.text[from:to]
	c.failed = !utf8.ValidString(s)
	return s
}

// Count returns how many fields of the rest have a tag, if every field is a number or has its length before it.
func (c Cursor) Count(tag uint32) (n int) {
	for c.More() {
		t := c.Tag()
		if t == tag {
			n++
		}
		if t&7 == uint32(protowire.VarintType) {
			c.Varint()
		} else {
			c.Message(t)
		}
	}
	return n
}

// moveTo continues at an offset that a read returned.
func (c *Cursor) moveTo(next int) {
	if next < 0 {
		c.failed = true
		return
	}
	c.at = next
}
