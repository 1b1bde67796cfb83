package events

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/skein-feed/skein/proto/protoscan"
)

// This file is the fast path of the decoder. It decodes the protobuf wire format directly into an
// event, and checks the event on the way. The functions work on a range of the body. They return
// false for everything malformed or unusual; then the standard decoder and [Validate] decide about
// the event.

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

// maxSeconds is the last second of the year 9999, after which no timestamp is valid.
const maxSeconds = 253402300799

// decodeEventFast decodes and checks the event in [i, end).
func (b *body) decodeEventFast(i, end int, ev *Event) bool {
	var payload, occurred span // the message of the kind, and occurred_at

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
				return false // of two kinds the second counts, and two messages of the same kind are merged
			}
			ev.Kind, payload = Kind(tag>>3), span{from, to}
		case tag == tagEventID:
			if !b.isPlainText(from, to, MaxEventIDBytes) {
				return false
			}
			ev.ID = b.text[from:to]
		case tag == tagOccurredAt:
			if occurred.from != 0 {
				return false // two occurrences of a message are merged
			}
			occurred = span{from, to}
		case tag == tagSource:
			if !b.isPlainText(from, to, MaxSourceBytes) {
				return false
			}
			ev.Source = b.text[from:to]
		}
	}
	return b.checkBackfillFast(occurred, ev) && b.decodeKindFast(payload, ev)
}

// checkBackfillFast checks source, offset and occurred_at, and sets the time of a backfill. A span
// that begins at 0 is missing, because the first byte of an envelope is a tag of the envelope
// itself.
func (b *body) checkBackfillFast(occurred span, ev *Event) bool {
	if ev.Source == "" {
		return ev.Offset == 0 && occurred.from == 0
	}
	if ev.Offset == 0 || occurred.from == 0 || !ev.Kind.Backfillable() {
		return false
	}

	at, ok := b.decodeTimestamp(occurred)
	ev.Backfill = true
	ev.Time = at
	return ok
}

// decodeTimestamp decodes a Timestamp from 1970 to 9999, and rounds it down to microseconds.
func (b *body) decodeTimestamp(s span) (at Micros, ok bool) {
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
	return microsFromTimestamp(int64(seconds), int32(nanos)), true
}

// decodeKindFast decodes and checks the message of the event's kind.
func (b *body) decodeKindFast(p span, ev *Event) bool {
	kind := &kindShapes[ev.Kind]
	filled, ok := b.decodeFieldsFast(p, &kind.messageShape, ev)
	if !ok || kind.fields == 0 || kind.fields.Has(FieldPeer) && ev.User == ev.Peer {
		return false
	}
	if kind.hasDerivedFields {
		ev.FillDerivedFields()
	}
	return kind.required&^filled == 0
}

// decodeFieldsFast decodes and checks the fields of a message. filled are the fields that are not
// empty.
func (b *body) decodeFieldsFast(p span, shape *messageShape, ev *Event) (filled FieldSet, ok bool) {
	messagesRead := uint32(0) // bit n is set if the message with field number n was read, or the time
	for i := p.from; i < p.to; {
		tag, at := protoscan.Tag(b.data, i, p.to)
		if at < 0 {
			return 0, false
		}

		f := &shape.byNumber[tag>>3&maxFieldNumber]
		from, to := protoscan.Bytes(b.data, tag, at, p.to)
		if from < 0 {
			// The only fields that are not length-delimited are the score and the settings.
			if tag != f.tag || f.form != formScore && f.form != formSetting {
				return 0, false
			}
			var v uint64
			if v, i = protoscan.Varint(b.data, at, p.to); i < 0 {
				return 0, false
			}
			if f.form == formScore {
				ev.Score = protowire.DecodeZigZag(v)
				continue
			}
			// Of several occurrences the last one counts.
			if ev.Settings |= f.setting; v == 0 {
				ev.Settings &^= f.setting
			}
			continue
		}
		i = to
		if tag != f.tag {
			continue // a field of a later version
		}

		if f.form == formID {
			if !b.isPlainText(from, to, f.limit) {
				return 0, false
			}
			text := &ev.User // the most frequent field does not need the switch in Text
			if f.field != FieldUser {
				text = ev.TextField(f.field)
			}
			*text = b.text[from:to]
			// Of several occurrences the last one counts.
			if filled |= f.bit; from == to {
				filled &^= f.bit
			}
			continue
		}

		if f.form == formMessage || f.form == formTime {
			if messagesRead>>(tag>>3)&1 == 1 {
				return 0, false // two occurrences of a message are merged
			}
			messagesRead |= 1 << (tag >> 3)
		}
		filledByValue, ok := b.decodeValueFast(span{from, to}, p.to, f, ev)
		if !ok {
			return 0, false
		}
		filled |= filledByValue
	}
	return filled, true
}

// decodeValueFast decodes and checks a value that is no id. end is the end of the message that
// contains the value.
func (b *body) decodeValueFast(v span, end int, f *fieldShape, ev *Event) (filled FieldSet, ok bool) {
	switch f.form {
	case formMessage:
		filled, ok = b.decodeFieldsFast(v, f.message, ev)
		return filled, ok && f.message.required&^filled == 0
	case formReaction:
		ev.Reaction = ReactionOf(b.text[v.from:v.to])
		return 0, IsReaction(ev.Reaction)
	case formTitle:
		ev.Title = b.text[v.from:v.to]
		return 0, len(ev.Title) <= MaxTitleBytes && utf8.ValidString(ev.Title)
	case formAttributes:
		ev.Attributes = append([]byte(nil), b.data[v.from:v.to]...)
		return 0, len(ev.Attributes) <= MaxAttributesBytes
	case formItems:
		if v.from == v.to || len(ev.Items) == MaxServedItems || !b.isPlainText(v.from, v.to, MaxIDBytes) {
			return 0, false
		}
		if ev.Items == nil {
			// Each further item takes at least three bytes: tag, length and one character.
			ev.Items = make([]string, 0, min(MaxServedItems, 1+(end-v.to)/3))
		}
		ev.Items = append(ev.Items, b.text[v.from:v.to])
		return 1 << FieldItems, true
	case formTime:
		at, ok := b.decodeTimestamp(v)
		*ev.timeField(f.field) = at
		return f.bit, ok && (at != 0 || !f.optional)
	default:
		return 0, false
	}
}

// isPlainText reports whether a range is empty or a valid id, event id or source of at most limit
// bytes.
func (b *body) isPlainText(from, to, limit int) bool {
	if to-from > limit {
		return false
	}

	// Most ids are ASCII. Those bytes are checked eight at a time; any other byte leaves the
	// decision to validateText.
	s := b.data[from:to]
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		// The high bit of a byte of the sum is set if that byte is above '~', or is not above ' '.
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
