package events

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The conversions follow kindTable by reflection. That costs 0.1 to 1 µs more per event than code for each kind would, of the 20 µs and
// more that it costs to publish an event. Readers of the log do not convert: they have the decoder.

// FromProto checks a message with [Validate] and returns its flat form, without sequence and slot. Time is the
// occurred_at of a backfill, not yet held against the log's, and 0 for a live event. Items and attributes are
// shared with the message.
func FromProto(msg *skeinv1.Event) (Event, *Rejection) {
	ev, raw := flatten(msg)
	if r := check(&ev, &raw); r != nil {
		return Event{}, r
	}
	ev.setTimes(&raw)
	ev.Complete()
	return ev, nil
}

// FromLog is [FromProto] for an event that the log holds, as a change feed gives it, and for callers to whom a bad event is as good as
// any. It is not checked: what is left in the log of an erased user could not be published. It returns false if the message is of an
// unknown kind.
func FromLog(msg *skeinv1.Event) (Event, bool) {
	ev, raw := flatten(msg)
	ev.setTimes(&raw)
	ev.Complete()
	return ev, ev.Kind != 0
}

// rawFields is what [check] must know of a message beyond its flat form.
type rawFields struct {
	occurred, read *timestamppb.Timestamp
	// required are the fields that may not be empty.
	required FieldSet
}

// flatten copies the fields of a message, good or bad, without filling in anything.
func flatten(msg *skeinv1.Event) (ev Event, raw rawFields) {
	ev.ID = msg.GetEventId()
	ev.Source, ev.Offset, ev.Backfill = msg.GetSource(), msg.GetOffset(), msg.GetSource() != ""
	raw.occurred = msg.GetOccurredAt()
	if ev.Kind = KindOf(msg); ev.Kind != 0 {
		kind := &kindShapes[ev.Kind]
		raw.flatten(msg.ProtoReflect().Get(kind.descriptor).Message(), &kind.messageShape, &ev)
	}
	return ev, raw
}

// flatten copies the fields of a message that is part of an event.
func (raw *rawFields) flatten(m protoreflect.Message, shape *messageShape, ev *Event) {
	raw.required |= shape.required
	for i := range shape.byNumber {
		f := &shape.byNumber[i]
		if f.tag == 0 {
			continue
		}
		switch f.form {
		case formMessage:
			// A message that is missing has empty fields. Only those of one that must be there are missed.
			if m.Has(f.descriptor) {
				raw.flatten(m.Get(f.descriptor).Message(), f.message, ev)
			}
		case formID, formTitle:
			// A backfill_closed has no source of its own: it is live. If it has one, Backfill still tells check so.
			if f.field != FieldSource || !ev.Backfill {
				*ev.Text(f.field) = m.Get(f.descriptor).String()
			}
		case formAttributes:
			if data := m.Get(f.descriptor).Bytes(); len(data) > 0 {
				ev.Attributes = data
			}
		case formItems:
			items := m.Get(f.descriptor).List()
			for at := range items.Len() {
				ev.Items = append(ev.Items, items.Get(at).String())
			}
		case formScore:
			ev.Score = m.Get(f.descriptor).Int()
		case formTime:
			raw.read, _ = m.Get(f.descriptor).Message().Interface().(*timestamppb.Timestamp)
		}
	}
}

// setTimes copies the times of a message, which may be bad.
func (ev *Event) setTimes(raw *rawFields) {
	if ev.Backfill {
		ev.Time = microsOf(raw.occurred.GetSeconds(), raw.occurred.GetNanos())
	}
	if ev.Kind.Fields().Has(FieldRead) {
		ev.Read = microsOf(raw.read.GetSeconds(), raw.read.GetNanos())
	}
}

// Complete fills in what follows from the other fields: the item of a pin that names none, and Encoded.
func (ev *Event) Complete() {
	if ev.Kind == PinCreated && ev.Item == "" {
		ev.Item = ev.Pin
	}
	if ev.Backfill && kindTable[ev.Kind].encoded {
		ev.Encoded = ev.Canonical()
	}
}

// Proto returns the message that [FromProto] flattens to ev, but for sequence, slot and the time of a live event,
// which a message has no fields for. An item_id that repeats the pin id is left out.
func (ev Event) Proto() *skeinv1.Event {
	msg := &skeinv1.Event{EventId: ev.ID}
	if ev.Backfill {
		msg.Source, msg.Offset = ev.Source, ev.Offset
		msg.OccurredAt = timestamppb.New(ev.Time.Time())
	}
	if ev.Kind.Valid() {
		kind := &kindShapes[ev.Kind]
		kind.fill(msg.ProtoReflect().Mutable(kind.descriptor).Message(), &ev)
	}
	return msg
}

// fill sets the fields of an empty message that is part of an event.
func (shape *messageShape) fill(m protoreflect.Message, ev *Event) {
	for i := range shape.byNumber {
		f := &shape.byNumber[i]
		if f.tag == 0 {
			continue
		}
		switch f.form {
		case formMessage:
			if !f.optional || f.message.isPresent(ev) {
				f.message.fill(m.Mutable(f.descriptor).Message(), ev)
			}
		case formID, formTitle:
			if s := ev.messageText(f.field); s != "" {
				m.Set(f.descriptor, protoreflect.ValueOfString(s))
			}
		case formAttributes:
			if len(ev.Attributes) > 0 {
				m.Set(f.descriptor, protoreflect.ValueOfBytes(ev.Attributes))
			}
		case formItems:
			items := m.Mutable(f.descriptor).List()
			for _, item := range ev.Items {
				items.Append(protoreflect.ValueOfString(item))
			}
		case formScore:
			m.Set(f.descriptor, protoreflect.ValueOfInt64(ev.Score))
		case formTime:
			m.Set(f.descriptor, protoreflect.ValueOfMessage(timestamppb.New(ev.Read.Time()).ProtoReflect()))
		}
	}
}

// isPresent reports whether an event has an optional message, which has no empty fields only.
func (shape *messageShape) isPresent(ev *Event) bool {
	for i := range shape.byNumber {
		if f := &shape.byNumber[i]; f.tag != 0 && *ev.Text(f.field) != "" {
			return true
		}
	}
	return false
}

// messageText returns a text as it stands in the message: the item_id is empty for an item with the pin's id.
func (ev *Event) messageText(f Field) string {
	if f == FieldItem && ev.Item == ev.Pin {
		return ""
	}
	return *ev.Text(f)
}

// Canonical returns what Encoded is of a backfill: the canonical encoding of the kind's message, with the fields that are not empty, by
// number, and nothing unknown. Every protobuf library writes that, but it depends on the flat event alone, however its producer spelled
// it. The owner of a pin that is re-pinned is left out: nothing depends on it, and a fold that compares by it would have to keep the id of
// a user in a row that is not about them.
func (ev *Event) Canonical() []byte {
	const tagsAndLengths = 24 // and more than the largest message has of both
	size := len(ev.User) + len(ev.Board) + len(ev.Pin) + len(ev.Item) + len(ev.RepinPin) + len(ev.Title) + len(ev.Attributes)
	return kindShapes[ev.Kind].appendCanonical(make([]byte, 0, size+tagsAndLengths), ev)
}

func (shape *messageShape) appendCanonical(b []byte, ev *Event) []byte {
	for i := range shape.byNumber {
		f := &shape.byNumber[i]
		number := protowire.Number(i)
		switch {
		case f.tag == 0 || f.field == FieldRepinUser:
		case f.form == formMessage:
			begin := len(b)
			b = f.message.appendCanonical(protowire.AppendTag(b, number, protowire.BytesType), ev)
			content := begin + protowire.SizeTag(number)
			if len(b) == content && f.optional {
				b = b[:begin]
				continue
			}
			// The length stands before the content.
			var length [binary.MaxVarintLen64]byte
			n := binary.PutUvarint(length[:], uint64(len(b)-content))
			b = slices.Insert(b, content, length[:n]...)
		case f.form == formAttributes:
			if len(ev.Attributes) > 0 {
				b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), ev.Attributes)
			}
		case f.form == formID, f.form == formTitle:
			b = appendText(b, number, ev.messageText(f.field))
		}
	}
	return b
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}
