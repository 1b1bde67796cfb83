package request

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The answers of the frequent calls, encoded by hand: see wire.go. Lengths that stand before what they count are computed first,
// by the functions named …Bytes.

func appendCheckFollows(dst []byte, m *skeinv1.CheckFollowsResponse) []byte {
	dst = appendPacked(dst, tagText1, m.GetKinds())
	for _, f := range m.GetFollowTimes() {
		at := f.GetTime()
		if dst = append(dst, tagText2, byte(timeBytes(at))); at != nil {
			dst = appendTime(dst, tagText1, at)
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

// appendFollowList reports whether the ids in the list are text, which only the general encoder refuses.
func appendFollowList(dst []byte, m followList) ([]byte, bool) {
	for _, e := range m.GetEntries() {
		if !utf8.ValidString(e.GetUserId()) {
			return dst, false
		}
		at := e.GetFollowTime()
		dst = append(dst, tagText1)
		dst = protowire.AppendVarint(dst, uint64(textBytes(e.GetUserId())+numberBytes(uint64(e.GetKind()))+timeBytes(at)))
		dst = appendText(dst, tagText1, e.GetUserId())
		dst = appendNumber(dst, tagVarint2, uint64(e.GetKind()))
		if at != nil {
			dst = appendTime(dst, tagText3, at)
		}
	}
	dst = appendText(dst, tagText2, m.GetNextPageToken())
	dst = appendNumber(dst, tagVarint3, uint64(m.GetTotalSize()))
	return appendText(dst, tagText4, m.GetPosition()), true
}

// appendPacked appends numbers, unless there are none.
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

// appendText appends a text, unless it is empty.
func appendText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	return append(protowire.AppendVarint(append(dst, tag), uint64(len(s))), s...)
}

func textBytes(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// appendNumber appends a number, unless it is 0.
func appendNumber(dst []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(append(dst, tag), n)
}

func numberBytes(n uint64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(n)
}

func appendTime(dst []byte, tag byte, t *timestamppb.Timestamp) []byte {
	size := numberBytes(uint64(t.GetSeconds())) + numberBytes(uint64(t.GetNanos()))
	dst = append(dst, tag, byte(size))
	dst = appendNumber(dst, tagVarint1, uint64(t.GetSeconds()))
	return appendNumber(dst, tagVarint2, uint64(t.GetNanos()))
}

func timeBytes(t *timestamppb.Timestamp) int {
	if t == nil {
		return 0
	}
	return 2 + numberBytes(uint64(t.GetSeconds())) + numberBytes(uint64(t.GetNanos()))
}
