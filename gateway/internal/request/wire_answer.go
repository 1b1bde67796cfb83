package request

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// This file has the encoders of the answers of frequent calls (see wire.go).
//
// The encoding of a nested message begins with its length, so the length must be known before the
// fields are appended. A function named sizeOf… returns how many bytes the append… function for the
// same kind of field will append.

// tagAndLength is the size of what precedes the fields of a nested message that is shorter than 128
// bytes: one byte each for its tag and for its length.
const tagAndLength = 2

// appendCheckFollows encodes an answer of CheckFollows.
func appendCheckFollows(dst []byte, m *skeinv1.CheckFollowsResponse) []byte {
	dst = appendPacked(dst, tagText1, m.GetKinds())
	for _, f := range m.GetFollowTimes() {
		// A FollowTime contains only a timestamp, so it is always shorter than 128 bytes, and one
		// byte is enough for its length.
		dst = append(dst, tagText2, byte(sizeOfTime(f.GetTime())))
		dst = appendTime(dst, tagText1, f.GetTime())
	}
	return appendText(dst, tagText3, m.GetPosition())
}

// appendFilterFollowed encodes an answer of FilterFollowed.
func appendFilterFollowed(dst []byte, m *skeinv1.FilterFollowedResponse) []byte {
	dst = appendPacked(dst, tagText1, m.GetIndexes())
	return appendText(dst, tagText2, m.GetPosition())
}

// followList is a page of ListFollowers or of ListFollowing, which have the same fields.
type followList interface {
	GetEntries() []*skeinv1.FollowEntry
	GetNextPageToken() string
	GetTotalSize() uint32
	GetPosition() string
}

// appendFollowList encodes a page. It returns false if an id is not valid UTF-8, because only the
// general encoder reports that error.
func appendFollowList(dst []byte, m followList) ([]byte, bool) {
	for _, e := range m.GetEntries() {
		if !utf8.ValidString(e.GetUserId()) {
			return dst, false
		}

		size := sizeOfText(e.GetUserId()) + sizeOfNumber(uint64(e.GetKind())) +
			sizeOfTime(e.GetFollowTime()) + sizeOfSettings(e.GetSettings())
		dst = append(dst, tagText1)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = appendText(dst, tagText1, e.GetUserId())
		dst = appendNumber(dst, tagVarint2, uint64(e.GetKind()))
		dst = appendTime(dst, tagText3, e.GetFollowTime())
		dst = appendSettings(dst, tagText4, e.GetSettings())
	}

	dst = appendText(dst, tagText2, m.GetNextPageToken())
	dst = appendNumber(dst, tagVarint3, uint64(m.GetTotalSize()))
	return appendText(dst, tagText4, m.GetPosition()), true
}

// appendSettings appends a field with the settings of a follow. It appends nothing for nil. Their
// message is always shorter than 128 bytes, so one byte is enough for its length.
func appendSettings(dst []byte, tag byte, s *skeinv1.FollowSettings) []byte {
	if s == nil {
		return dst
	}
	dst = append(dst, tag, byte(sizeOfSettings(s)-tagAndLength))
	dst = appendNumber(dst, tagVarint1, protowire.EncodeBool(s.GetHideRepins()))
	dst = appendNumber(dst, tagVarint2, protowire.EncodeBool(s.GetNotify()))
	return appendNumber(dst, tagVarint3, protowire.EncodeBool(s.GetFavorite()))
}

// sizeOfSettings returns the size of what appendSettings appends.
func sizeOfSettings(s *skeinv1.FollowSettings) int {
	if s == nil {
		return 0
	}
	size := tagAndLength
	for _, isOn := range []bool{s.GetHideRepins(), s.GetNotify(), s.GetFavorite()} {
		size += sizeOfNumber(protowire.EncodeBool(isOn))
	}
	return size
}

// appendPacked appends a list of numbers as one packed field. It appends nothing for an empty list.
func appendPacked[N ~int32 | ~uint32](dst []byte, tag byte, numbers []N) []byte {
	if len(numbers) == 0 {
		return dst
	}
	size := 0
	for _, n := range numbers {
		size += protowire.SizeVarint(uint64(n))
	}
	dst = append(dst, tag)
	dst = protowire.AppendVarint(dst, uint64(size))
	for _, n := range numbers {
		dst = protowire.AppendVarint(dst, uint64(n))
	}
	return dst
}

// appendText appends a text field. It appends nothing for "".
func appendText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	dst = append(dst, tag)
	return protowire.AppendString(dst, s)
}

// sizeOfText returns the size of what appendText appends.
func sizeOfText(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendNumber appends a varint field. It appends nothing for 0.
func appendNumber(dst []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(append(dst, tag), n)
}

// sizeOfNumber returns the size of what appendNumber appends.
func sizeOfNumber(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(n)
}

// appendTime appends a field with a timestamp. It appends nothing for nil. The message is always
// shorter than 128 bytes, so one byte is enough for its length.
func appendTime(dst []byte, tag byte, t *timestamppb.Timestamp) []byte {
	if t == nil {
		return dst
	}
	dst = append(dst, tag, byte(sizeOfTime(t)-tagAndLength))
	dst = appendNumber(dst, tagVarint1, uint64(t.GetSeconds()))
	return appendNumber(dst, tagVarint2, uint64(t.GetNanos()))
}

// sizeOfTime returns the size of what appendTime appends.
func sizeOfTime(t *timestamppb.Timestamp) int {
	if t == nil {
		return 0
	}
	return tagAndLength + sizeOfNumber(uint64(t.GetSeconds())) + sizeOfNumber(uint64(t.GetNanos()))
}
