package request

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The encoders of the answers of frequent calls (see wire.go). The encoding of a text or message
// begins with its length, which the functions named sizeOf… compute: they return how many bytes the
// append function of the same name appends.

func appendCheckFollows(dst []byte, m *skeinv1.CheckFollowsResponse) []byte {
	dst = appendPacked(dst, tagText1, m.GetKinds())
	for _, f := range m.GetFollowTimes() {
		followTime := f.GetTime()
		dst = append(dst, tagText2, byte(sizeOfTime(followTime)))
		if followTime != nil {
			dst = appendTime(dst, tagText1, followTime)
		}
	}
	return appendText(dst, tagText3, m.GetPosition())
}

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
		followTime := e.GetFollowTime()
		dst = append(dst, tagText1)
		settings := e.GetSettings()
		size := sizeOfText(e.GetUserId()) + sizeOfNumber(uint64(e.GetKind())) + sizeOfTime(followTime) + sizeOfSettings(settings)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = appendText(dst, tagText1, e.GetUserId())
		dst = appendNumber(dst, tagVarint2, uint64(e.GetKind()))
		if followTime != nil {
			dst = appendTime(dst, tagText3, followTime)
		}
		if settings != nil {
			dst = appendSettings(dst, tagText4, settings)
		}
	}
	dst = appendText(dst, tagText2, m.GetNextPageToken())
	dst = appendNumber(dst, tagVarint3, uint64(m.GetTotalSize()))
	return appendText(dst, tagText4, m.GetPosition()), true
}

// appendSettings appends the settings of a follow. Their message is always shorter than 128 bytes,
// so one byte is enough for its length.
func appendSettings(dst []byte, tag byte, s *skeinv1.FollowSettings) []byte {
	dst = append(dst, tag, byte(sizeOfSettings(s)-2))
	dst = appendNumber(dst, tagVarint1, protowire.EncodeBool(s.GetHideRepins()))
	dst = appendNumber(dst, tagVarint2, protowire.EncodeBool(s.GetNotify()))
	return appendNumber(dst, tagVarint3, protowire.EncodeBool(s.GetFavorite()))
}

// sizeOfSettings returns the size of what appendSettings appends, with tag and length.
func sizeOfSettings(s *skeinv1.FollowSettings) int {
	if s == nil {
		return 0
	}
	size := 2
	for _, on := range []bool{s.GetHideRepins(), s.GetNotify(), s.GetFavorite()} {
		size += sizeOfNumber(protowire.EncodeBool(on))
	}
	return size
}

// appendPacked appends a packed list of numbers. It appends nothing for an empty list.
func appendPacked[N ~int32 | ~uint32](dst []byte, tag byte, ns []N) []byte {
	if len(ns) == 0 {
		return dst
	}
	var size int
	for _, n := range ns {
		size += protowire.SizeVarint(uint64(n))
	}
	dst = protowire.AppendVarint(append(dst, tag), uint64(size))
	for _, n := range ns {
		dst = protowire.AppendVarint(dst, uint64(n))
	}
	return dst
}

// appendText appends a text field. It appends nothing for "".
func appendText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	return append(protowire.AppendVarint(append(dst, tag), uint64(len(s))), s...)
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

// appendTime appends a field with a timestamp. Its message is always shorter than 128 bytes, so one
// byte is enough for its length.
func appendTime(dst []byte, tag byte, t *timestamppb.Timestamp) []byte {
	size := sizeOfNumber(uint64(t.GetSeconds())) + sizeOfNumber(uint64(t.GetNanos()))
	dst = append(dst, tag, byte(size))
	dst = appendNumber(dst, tagVarint1, uint64(t.GetSeconds()))
	return appendNumber(dst, tagVarint2, uint64(t.GetNanos()))
}

// sizeOfTime returns the size of what appendTime appends, or 0 for nil.
func sizeOfTime(t *timestamppb.Timestamp) int {
	if t == nil {
		return 0
	}
	return 2 + sizeOfNumber(uint64(t.GetSeconds())) + sizeOfNumber(uint64(t.GetNanos()))
}
