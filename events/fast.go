package events

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/skein-feed/skein/proto/protoscan"
)

// The fast path of the decoder: protobuf wire format straight into the flat event, checked on the way. Every
// function works on a range [i, end) of the body and returns false, or a negative offset, for anything that is
// malformed or merely unusual: the standard decoder then judges the event.

// Tags of the fields of Event and of Timestamp: number and wire type.
const (
	tagEventID    = 1<<3 | uint32(protowire.BytesType)
	tagOccurredAt = 2<<3 | uint32(protowire.BytesType)
	tagSource     = 3<<3 | uint32(protowire.BytesType)
	tagOffset     = 4<<3 | uint32(protowire.VarintType)
	tagFirstKind  = uint32(firstKind)<<3 | uint32(protowire.BytesType)
	tagLastKind   = uint32(lastKind)<<3 | uint32(protowire.BytesType)

	tagSeconds = 1<<3 | uint32(protowire.VarintType)
	tagNanos   = 2<<3 | uint32(protowire.VarintType)
)

// maxSeconds is the last second of the year 9999, where valid timestamps end.
const maxSeconds = 253402300799

// fastEvent decodes and checks one event.
func (b *body) fastEvent(i, end int, ev *Event) bool {
	var payload, occurred span
	for i < end {
		tag, at := protoscan.Tag(b.data, i, end)
		if at < 0 {
			return false
		}
		if tag == tagOffset {
			if ev.Offset, i = protoscan.Varint(b.data, at, end); i < 0 {
				return false
			}
			continue
		}
		from, to := protoscan.Bytes(b.data, tag, at, end)
		if from < 0 {
			return false
		}
		i = to
		switch {
		case tag >= tagFirstKind && tag <= tagLastKind:
			if ev.Kind != 0 {
				return false // the second of two kinds wins, two of the same merge
			}
			ev.Kind, payload = Kind(tag>>3), span{from, to}
		case tag == tagEventID:
			if !b.plain(from, to, MaxEventIDBytes) {
				return false
			}
			ev.ID = b.text[from:to]
		case tag == tagOccurredAt:
			if occurred.from != 0 {
				return false // two of a message merge
			}
			occurred = span{from, to}
		case tag == tagSource:
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
		tag, at := protoscan.Tag(b.data, i, s.to)
		if at < 0 {
			return 0, false
		}
		switch tag {
		case tagSeconds:
			seconds, i = protoscan.Varint(b.data, at, s.to)
		case tagNanos:
			nanos, i = protoscan.Varint(b.data, at, s.to)
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
	kind := &kindShapes[ev.Kind]
	filled, ok := b.fastFields(p, &kind.messageShape, ev)
	if !ok || kind.fields == 0 || kind.fields.Has(FieldPeer) && ev.User == ev.Peer {
		return false
	}
	if kind.completes {
		ev.Complete()
	}
	return kind.required&^filled == 0
}

// fastFields decodes and checks the fields of a message. filled are those that are not empty.
func (b *body) fastFields(p span, shape *messageShape, ev *Event) (filled FieldSet, ok bool) {
	messages := uint32(0) // a bit for the number of each message that was read
	for i := p.from; i < p.to; {
		tag, at := protoscan.Tag(b.data, i, p.to)
		if at < 0 {
			return 0, false
		}
		f := &shape.byNumber[tag>>3&maxFieldNumber]
		from, to := protoscan.Bytes(b.data, tag, at, p.to)
		if from < 0 {
			if tag != f.tag || f.form != formScore {
				return 0, false
			}
			var v uint64
			if v, i = protoscan.Varint(b.data, at, p.to); i < 0 {
				return 0, false
			}
			ev.Score = protowire.DecodeZigZag(v)
			continue
		}
		i = to
		if tag != f.tag {
			continue // of a later version
		}
		if f.form == formID {
			if !b.plain(from, to, f.limit) {
				return 0, false
			}
			text := &ev.User
			if f.field != FieldUser {
				text = ev.Text(f.field)
			}
			*text = b.text[from:to]
			// The last of several counts.
			if filled |= f.bit; from == to {
				filled &^= f.bit
			}
			continue
		}
		if f.form == formMessage || f.form == formTime {
			if messages>>(tag>>3)&1 == 1 {
				return 0, false // two of a message merge
			}
			messages |= 1 << (tag >> 3)
		}
		inValue, isGood := b.fastValue(span{from, to}, p.to, f, ev)
		if !isGood {
			return 0, false
		}
		filled |= inValue
	}
	return filled, true
}

// fastValue decodes and checks a value of the rarer forms. The message that it is in ends at end.
func (b *body) fastValue(v span, end int, f *fieldShape, ev *Event) (filled FieldSet, ok bool) {
	switch f.form {
	case formMessage:
		filled, ok = b.fastFields(v, f.message, ev)
		return filled, ok && f.message.required&^filled == 0
	case formTitle:
		ev.Title = b.text[v.from:v.to]
		return 0, len(ev.Title) <= MaxTitleBytes && utf8.ValidString(ev.Title)
	case formAttributes:
		ev.Attributes = append([]byte(nil), b.data[v.from:v.to]...)
		return 0, len(ev.Attributes) <= MaxAttributesBytes
	case formItems:
		if v.from == v.to || len(ev.Items) == MaxServedItems || !b.plain(v.from, v.to, MaxIDBytes) {
			return 0, false
		}
		if ev.Items == nil {
			// A bound on the number of items: each takes at least three bytes.
			ev.Items = make([]string, 0, min(MaxServedItems, 1+(end-v.to)/3))
		}
		ev.Items = append(ev.Items, b.text[v.from:v.to])
		return 1 << FieldItems, true
	case formTime:
		ev.Read, ok = b.timestamp(v)
		return 1 << FieldRead, ok
	default:
		return 0, false
	}
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
