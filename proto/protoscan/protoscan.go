// Package protoscan reads fields of encoded protobuf messages in place, without decoding into a
// generated message. It returns where values start and end; the caller knows what a field means.
//
// [Next] accepts every encoding that a protobuf library accepts. [Tag], [Bytes] and [Varint] are
// for code that must be fast. They accept only the encodings that libraries usually write; the
// caller must pass everything else to a library. All of them take offsets into one slice, so that
// the caller can take all strings of a message from a single copy of it. [Cursor] combines the
// three and keeps the offset, for messages whose fields are all known.
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

// Next reads the field that starts at offset i of an encoded message, which ends where data ends.
// next is the offset after the field. It is negative if the field is malformed.
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

// TagOf returns the tag of a field, which combines its number and its wire type.
func TagOf(number protowire.Number, wireType protowire.Type) uint32 {
	return uint32(number)<<3 | uint32(wireType)
}

// Tag reads the tag at offset i, which must be before end. next is negative if the tag has more
// than two bytes. Tags of fields up to number 2047 have at most two.
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

// Bytes reads the value at offset i, which follows the given tag, and returns its range. Both
// offsets are negative if the wire type is not [protowire.BytesType], if the value extends beyond
// end, or if the field number is 0.
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

// Varint reads the number at offset i. next is negative if the number is malformed or extends
// beyond end.
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

// Cursor reads an encoded message from start to end. After malformed input it returns only zero
// values, so the caller needs to check [Cursor.OK] only once, at the end.
type Cursor struct {
	data    []byte
	text    string // a copy of data; all returned strings are parts of it
	at, end int
	failed  bool
}

// NewCursor returns a cursor at the start of a message.
func NewCursor(data []byte) Cursor { return Cursor{data: data, text: string(data), end: len(data)} }

// More reports whether there is another field. It returns false after malformed input.
func (c *Cursor) More() bool { return c.at < c.end && !c.failed }

// OK reports whether all input so far was well formed.
func (c *Cursor) OK() bool { return !c.failed }

// Tag reads a tag. The caller must read the value next.
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

// Message reads the message that follows the given tag, and returns a cursor at the start of that
// message.
func (c *Cursor) Message(tag uint32) Cursor {
	from, to := Bytes(c.data, tag, c.at, c.end)
	c.moveTo(to)
	inner := *c
	inner.at, inner.end = from, to
	return inner
}

// Text reads the text that follows the given tag. A text that is not valid UTF-8 is malformed.
func (c *Cursor) Text(tag uint32) string {
	from, to := Bytes(c.data, tag, c.at, c.end)
	if c.moveTo(to); c.failed {
		return ""
	}
	s := c.text[from:to]
	c.failed = !utf8.ValidString(s)
	return s
}

// Count returns how many of the remaining fields have the given tag. All of them must be numbers or
// length-delimited.
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

// moveTo sets the offset to the one that a read returned. A negative offset marks the input as
// malformed.
func (c *Cursor) moveTo(next int) {
	if next < 0 {
		c.failed = true
		return
	}
	c.at = next
}
