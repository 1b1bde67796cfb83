package events

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The conversions between messages and events follow kindTable by reflection. That costs 0.1 to 1
// µs more per event than code for each kind would, while publishing an event costs 20 µs and more.
// Readers of the log use the fast path of the decoder instead.

// FromProto checks a message as [Validate] does and converts it to an event, without sequence and
// slot. The time of a backfill is its occurred_at, which may be later than its log time will be;
// the time of a live event is 0. The event shares Items and Attributes with the message.
func FromProto(msg *skeinv1.Event) (Event, *Rejection) {
	ev, raw := flattenEvent(msg)
	if r := checkEvent(&ev, &raw); r != nil {
		return Event{}, r
	}
	ev.setTimes(&raw)
	ev.FillDerivedFields()
	return ev, nil
}

// FromLog converts a message that the log holds, such as one from a change feed, like [FromProto]
// but without checking it. Events in the log need not be valid: the pseudonym of an erased user
// could not be published. It returns false if this version does not know the kind.
func FromLog(msg *skeinv1.Event) (Event, bool) {
	ev, raw := flattenEvent(msg)
	ev.setTimes(&raw)
	ev.FillDerivedFields()
	return ev, ev.Kind != 0
}

// rawFields holds what [checkEvent] needs of a message besides the event.
type rawFields struct {
	occurred *timestamppb.Timestamp // occurred_at
	read     *timestamppb.Timestamp // the time of a FeedRead
	until    *timestamppb.Timestamp // the end of a UserMuted
	// required are the fields that must not be empty.
	required FieldSet
}

// flattenEvent copies the fields of a message, which may be invalid, into an event. It sets neither
// times nor derived fields.
func flattenEvent(msg *skeinv1.Event) (ev Event, raw rawFields) {
	ev.ID = msg.GetEventId()
	ev.Source = msg.GetSource()
	ev.Offset = msg.GetOffset()
	ev.Backfill = msg.GetSource() != ""
	raw.occurred = msg.GetOccurredAt()

	if ev.Kind = KindOf(msg); ev.Kind != 0 {
		kind := &kindShapes[ev.Kind]
		raw.copyFields(msg.ProtoReflect().Get(kind.descriptor).Message(), &kind.messageShape, &ev)
	}
	return ev, raw
}

// copyFields copies the fields of a message that is part of an event: the message of its kind, or a
// message within that one.
func (raw *rawFields) copyFields(m protoreflect.Message, shape *messageShape, ev *Event) {
	raw.required |= shape.required
	for i := range shape.byNumber {
		f := &shape.byNumber[i]
		if f.tag == 0 {
			continue
		}
		switch f.form {
		case formMessage:
			// The required fields of a missing message are required only if the message itself is.
			// Then they are among those of shape, so the check finds them empty.
			if m.Has(f.descriptor) {
				raw.copyFields(m.Get(f.descriptor).Message(), f.message, ev)
			}
		case formID, formTitle:
			// FieldSource is the source that a BackfillClosed ends. The event itself must be live
			// and have no source. If it has one anyway, that source stays in the event, and
			// Backfill makes checkEvent refuse it.
			if f.field != FieldSource || !ev.Backfill {
				*ev.TextField(f.field) = m.Get(f.descriptor).String()
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
		case formReaction:
			ev.Reaction = ReactionOf(m.Get(f.descriptor).String())
		case formScore:
			ev.Score = m.Get(f.descriptor).Int()
		case formSetting:
			if m.Get(f.descriptor).Bool() {
				ev.Settings |= f.setting
			}
		case formTime:
			if m.Has(f.descriptor) {
				*raw.timeField(f.field), _ = m.Get(f.descriptor).Message().Interface().(*timestamppb.Timestamp)
			}
		}
	}
}

// timeField returns a pointer to the timestamp of a field of formTime.
func (raw *rawFields) timeField(f Field) **timestamppb.Timestamp {
	if f == FieldUntil {
		return &raw.until
	}
	return &raw.read
}

// timeField returns a pointer to a field of formTime.
func (ev *Event) timeField(f Field) *Micros {
	if f == FieldUntil {
		return &ev.Until
	}
	return &ev.Read
}

// setTimes copies the times of a message, which may be invalid.
func (ev *Event) setTimes(raw *rawFields) {
	if ev.Backfill {
		ev.Time = microsFromTimestamp(raw.occurred.GetSeconds(), raw.occurred.GetNanos())
	}
	if raw.read != nil {
		ev.Read = microsFromTimestamp(raw.read.GetSeconds(), raw.read.GetNanos())
	}
	if raw.until != nil {
		ev.Until = microsFromTimestamp(raw.until.GetSeconds(), raw.until.GetNanos())
	}
}

// FillDerivedFields sets the fields that follow from others: the item of a PinCreated that names
// none, and Encoded.
func (ev *Event) FillDerivedFields() {
	if ev.Kind == PinCreated && ev.Item == "" {
		ev.Item = ev.Pin
	}
	if ev.Backfill && kindTable[ev.Kind].comparesEncoding {
		ev.Encoded = ev.Canonical()
	}
}

// Proto returns the message that [FromProto] converts to ev. Sequence, slot and the time of a live
// event are lost, because the message has no fields for them. An item_id that equals the pin id is
// left out.
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

// fill sets the fields of an empty message that is part of an event, from the event.
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
		case formID, formTitle, formReaction:
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
		case formSetting:
			if ev.Settings.Has(f.setting) {
				m.Set(f.descriptor, protoreflect.ValueOfBool(true))
			}
		case formTime:
			if at := *ev.timeField(f.field); at != 0 || !f.optional {
				m.Set(f.descriptor, protoreflect.ValueOfMessage(timestamppb.New(at.Time()).ProtoReflect()))
			}
		}
	}
}

// isPresent reports whether an event has an optional message, that is, whether one of its fields is
// not empty.
func (shape *messageShape) isPresent(ev *Event) bool {
	for i := range shape.byNumber {
		if f := &shape.byNumber[i]; f.tag != 0 && *ev.TextField(f.field) != "" {
			return true
		}
	}
	return false
}

// messageText returns the text of a field of the message. It differs from that of the event for an
// item with the id of its pin: the item_id of the message is then empty.
func (ev *Event) messageText(f Field) string {
	if f == FieldItem && ev.Item == ev.Pin {
		return ""
	}
	return *ev.TextField(f)
}

// Canonical returns the canonical encoding of the message of the event's kind, which is the Encoded
// of a backfill: the fields that are not empty, in order of their numbers, without unknown fields.
// It depends on the event alone, however the producer encoded the message.
//
// The owner of a pin that is re-pinned is left out. No order depends on it, and a fold that
// compares encodings would otherwise have to store the id of that user in a row that is not about
// them.
func (ev *Event) Canonical() []byte {
	const tagsAndLengths = 24 // more bytes than the largest message needs for them
	size := len(ev.User) + len(ev.Board) + len(ev.Pin) + len(ev.Item) + len(ev.RepinPin) + len(ev.Title) + len(ev.Attributes)
	return kindShapes[ev.Kind].appendCanonical(make([]byte, 0, size+tagsAndLengths), ev)
}

// appendCanonical appends the canonical encoding of a message that is part of an event.
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
			// The length precedes the content, and is known only now.
			var length [binary.MaxVarintLen64]byte
			n := binary.PutUvarint(length[:], uint64(len(b)-content))
			b = slices.Insert(b, content, length[:n]...)
		case f.form == formAttributes:
			if len(ev.Attributes) > 0 {
				b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), ev.Attributes)
			}
		case f.form == formID, f.form == formTitle, f.form == formReaction:
			b = appendText(b, number, ev.messageText(f.field))
		}
	}
	return b
}

// appendText appends a field with a text, unless the text is empty.
func appendText(b []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}
