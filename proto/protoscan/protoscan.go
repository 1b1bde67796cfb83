// Package protoscan reads the fields of encoded protobuf messages where they lie, without a generated message to decode into. It says
// where values begin and end; what a field means is left to its callers.
//
// [Next] accepts every encoding that a protobuf library accepts. [Tag], [Bytes] and [Varint] are for code that must be fast: they accept
// the encodings that libraries write, and fail on the rest, which the caller then leaves to a library. All work on a range of one slice,
// by offsets, so that a caller can cut strings out of one copy of the message instead of allocating each.
package protoscan

import "google.golang.org/protobuf/encoding/protowire"

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
