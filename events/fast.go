package events

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fast path of the decoder: protobuf wire format straight into the flat event, checked on the way. Every
// function works on a range [i, end) of the body and returns false, or a negative offset, for anything that is
// malformed or merely unusual: the standard decoder then judges the event.

// Tags of the fields that are read: number and wire type.
const (
	bytes1 = 1<<3 | uint32(protowire.BytesType)
	bytes2 = 2<<3 | uint32(protowire.BytesType)
	bytes3 = 3<<3 | uint32(protowire.BytesType)
	bytes4 = 4<<3 | uint32(protowire.BytesType)
	bytes5 = 5<<3 | uint32(protowire.BytesType)

	varint1 = 1<<3 | uint32(protowire.VarintType)
	varint2 = 2<<3 | uint32(protowire.VarintType)
	varint4 = 4<<3 | uint32(protowire.VarintType)

	bytesFirstKind = uint32(firstKind)<<3 | uint32(protowire.BytesType)
	bytesLastKind  = uint32(lastKind)<<3 | uint32(protowire.BytesType)
)

// maxSeconds is the last second of the year 9999, where valid timestamps end.
const maxSeconds = 253402300799

// fastEvent decodes and checks one event.
func (b *body) fastEvent(i, end int, ev *Event) bool {
	var payload, occurred span
	for i < end {
		tag, at := b.tag(i, end)
		if at < 0 {
			return false
		}
		if tag == varint4 {
			if ev.Offset, i = b.varint(at, end); i < 0 {
				return false
			}
			continue
		}
		from, to := b.bytes(tag, at, end)
		if from < 0 {
			return false
		}
		i = to
		switch {
		case tag >= bytesFirstKind && tag <= bytesLastKind:
			if ev.Kind != 0 {
				return false // the second of two kinds wins, two of the same merge
			}
			ev.Kind, payload = Kind(tag>>3), span{from, to}
		case tag == bytes1:
			if !b.plain(from, to, MaxEventIDBytes) {
				return false
			}
			ev.ID = b.text[from:to]
		case tag == bytes2:
			if occurred.from != 0 {
				return false // two of a message merge
			}
			occurred = span{from, to}
		case tag == bytes3:
			if !b.plain(from, to, MaxSourceBytes) {
				return false
			}
			ev.Source = b.text[from:to]
		}
	}
	return b.fastBackfill(occurred, ev) && b.fastKind(payload, ev)
}

// fastBackfill checks source, offset and occurred_at. A span is never at offset 0, where the envelope's own first
// tag stands.
func (b *body) fastBackfill(occurred span, ev *Event) bool {
	if ev.Source == "" {
		return ev.Offset == 0 && occurred.from == 0
	}
	if ev.Offset == 0 || occurred.from == 0 || !ev.Kind.Backfillable() {
		return false
	}
	at, ok := b.timestamp(occurred)
	ev.Backfill, ev.Time = true, at
	return ok
}

// timestamp decodes a Timestamp from 1970 to 9999, toward the past.
func (b *body) timestamp(s span) (at Micros, ok bool) {
	var seconds, nanos uint64
	for i := s.from; i < s.to; {
		tag, at := b.tag(i, s.to)
		if at < 0 {
			return 0, false
		}
		switch tag {
		case varint1:
			seconds, i = b.varint(at, s.to)
		case varint2:
			nanos, i = b.varint(at, s.to)
		default:
			return 0, false
		}
		if i < 0 {
			return 0, false
		}
	}
	if seconds > maxSeconds || nanos >= 1e9 {
		return 0, false
	}
	return microsOf(int64(seconds), int32(nanos)), true
}

// fastKind decodes and checks the message of the event's kind.
func (b *body) fastKind(p span, ev *Event) bool {
	switch ev.Kind {
	case UserFollowed, UserUnfollowed, UserBlocked, UserUnblocked, UserMuted, UserUnmuted, RepinsHidden, RepinsShown:
		return b.pair(p, &ev.User, &ev.Peer) && ev.User != "" && ev.Peer != "" && ev.User != ev.Peer
	case Liked, Unliked, Played:
		return b.pair(p, &ev.User, &ev.Item) && ev.User != "" && ev.Item != ""
	case UserDeleted, SeenCleared:
		return b.pair(p, &ev.User, nil) && ev.User != ""
	case BoardFollowed, BoardUnfollowed:
		return b.fastBoardFollow(p, ev) && ev.User != "" && ev.Peer != "" && ev.User != ev.Peer
	case BoardCreated, BoardDeleted:
		return b.fastBoard(p, ev) && ev.User != "" && ev.Board != ""
	case PinCreated, PinMoved, PinDeleted:
		return b.fastPin(p, ev) && ev.User != "" && ev.Pin != ""
	case Served:
		return b.fastServed(p, ev) && ev.User != "" && len(ev.Items) > 0
	case ItemScored:
		return b.fastScore(p, ev) && ev.Item != ""
	case FeedRead:
		return b.fastRead(p, ev) && ev.User != ""
	}
	return false // none, or rare
}

// pair decodes a message with ids in fields 1 and 2, as most are; a nil second: in field 1 only.
func (b *body) pair(p span, first, second *string) bool {
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		dst := first
		if tag != bytes1 {
			if tag != bytes2 || second == nil {
				continue
			}
			dst = second
		}
		if !b.plain(from, to, MaxIDBytes) {
			return false
		}
		*dst = b.text[from:to]
	}
	return true
}

func (b *body) fastBoardFollow(p span, ev *Event) bool {
	seen := false
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		switch tag {
		case bytes1:
			if !b.plain(from, to, MaxIDBytes) {
				return false
			}
			ev.User = b.text[from:to]
		case bytes2:
			if seen || !b.pair(span{from, to}, &ev.Peer, &ev.Board) {
				return false
			}
			seen = true
		}
	}
	return true
}

func (b *body) fastBoard(p span, ev *Event) bool {
	seen := false
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		switch {
		case tag == bytes1:
			if seen || !b.pair(span{from, to}, &ev.User, &ev.Board) {
				return false
			}
			seen = true
		case tag == bytes2 && ev.Kind == BoardCreated:
			if ev.Title = b.text[from:to]; len(ev.Title) > MaxTitleBytes || !utf8.ValidString(ev.Title) {
				return false
			}
		}
	}
	if ev.Backfill && ev.Kind == BoardCreated {
		ev.complete()
	}
	return true
}

// fastPin decodes the kinds about a pin: each has the first fields of PinCreated.
func (b *body) fastPin(p span, ev *Event) bool {
	var pin, repin bool
	last := bytes1
	switch ev.Kind {
	case PinCreated:
		last = bytes5
	case PinMoved:
		last = bytes2
	}
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		if tag > last {
			continue
		}
		ok := false
		switch tag {
		case bytes1:
			ok = !pin && b.pair(span{from, to}, &ev.User, &ev.Pin)
			pin = true
		case bytes2:
			ok = b.plain(from, to, MaxIDBytes)
			ev.Board = b.text[from:to]
		case bytes3:
			ok = b.plain(from, to, MaxIDBytes)
			ev.Item = b.text[from:to]
		case bytes4:
			ok = !repin && b.pair(span{from, to}, &ev.RepinUser, &ev.RepinPin) &&
				ev.RepinUser != "" && ev.RepinPin != ""
			repin = true
		case bytes5:
			ok = to-from <= MaxAttributesBytes
			ev.Attributes = append([]byte(nil), b.data[from:to]...)
		}
		if !ok {
			return false
		}
	}
	ev.complete()
	return true
}

func (b *body) fastServed(p span, ev *Event) bool {
	// A bound on the number of items: each takes at least three bytes.
	ev.Items = make([]string, 0, min(MaxServedItems, (p.to-p.from)/3))
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		if tag != bytes1 && tag != bytes2 {
			continue
		}
		if !b.plain(from, to, MaxIDBytes) {
			return false
		}
		if tag == bytes1 {
			ev.User = b.text[from:to]
			continue
		}
		if from == to || len(ev.Items) == MaxServedItems {
			return false
		}
		ev.Items = append(ev.Items, b.text[from:to])
	}
	return true
}

func (b *body) fastScore(p span, ev *Event) bool {
	for i := p.from; i < p.to; {
		tag, at := b.tag(i, p.to)
		if at < 0 {
			return false
		}
		if tag == varint2 {
			v, next := b.varint(at, p.to)
			if next < 0 {
				return false
			}
			ev.Score, i = protowire.DecodeZigZag(v), next
			continue
		}
		from, to := b.bytes(tag, at, p.to)
		if from < 0 || (tag == bytes1 && !b.plain(from, to, MaxIDBytes)) {
			return false
		}
		if tag == bytes1 {
			ev.Item = b.text[from:to]
		}
		i = to
	}
	return true
}

func (b *body) fastRead(p span, ev *Event) (ok bool) {
	for i := p.from; i < p.to; {
		tag, from, to := b.field(i, p.to)
		if from < 0 {
			return false
		}
		i = to
		switch tag {
		case bytes1:
			if !b.plain(from, to, MaxIDBytes) {
				return false
			}
			ev.User = b.text[from:to]
		case bytes2:
			if ok { // two of a message merge
				return false
			}
			if ev.Read, ok = b.timestamp(span{from, to}); !ok {
				return false
			}
		}
	}
	return ok
}

// field reads a tag and the range of a length-delimited value, as nearly all fields are.
func (b *body) field(i, end int) (tag uint32, from, to int) {
	tag, i = b.tag(i, end)
	if i < 0 {
		return 0, -1, -1
	}
	from, to = b.bytes(tag, i, end)
	return tag, from, to
}

// tag reads a tag of one or two bytes, which all fields up to number 2047 have.
func (b *body) tag(i, end int) (tag uint32, next int) {
	c := b.data[i]
	if c < 0x80 {
		return uint32(c), i + 1
	}
	if i+1 < end && b.data[i+1] < 0x80 {
		return uint32(c&0x7f) | uint32(b.data[i+1])<<7, i + 2
	}
	return 0, -1
}

// bytes returns the range of a length-delimited value; a negative one for any other wire type and for field 0.
func (b *body) bytes(tag uint32, i, end int) (from, to int) {
	if tag&7 != uint32(protowire.BytesType) || tag>>3 == 0 {
		return -1, -1
	}
	n, i := b.varint(i, end)
	if i < 0 || n > uint64(end-i) {
		return -1, -1
	}
	return i, i + int(n)
}

func (b *body) varint(i, end int) (v uint64, next int) {
	if i < end && b.data[i] < 0x80 {
		return uint64(b.data[i]), i + 1
	}
	v, n := protowire.ConsumeVarint(b.data[min(i, end):end])
	if n < 0 {
		return 0, -1
	}
	return v, i + n
}

// plain reports whether a range is empty or a valid id (or event id, or source) of at most limit bytes.
func (b *body) plain(from, to, limit int) bool {
	if to-from > limit {
		return false
	}
	s := b.data[from:to]
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		// All eight bytes at once: is one above '~', or not above ' '?
		x := binary.LittleEndian.Uint64(s)
		if (x|(x+ones)|^(x+ones*(0x80-'!')))&high != 0 {
			return validateText(b.text[from:to], limit) == nil
		}
		s = s[8:]
	}
	for _, c := range s {
		if c < '!' || c > '~' {
			return validateText(b.text[from:to], limit) == nil
		}
	}
	return true
}
