package eventlog

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func mustEncode(tb testing.TB, msgs ...*skeinv1.Event) []byte {
	tb.Helper()
	data, err := events.EncodeEnvelope(msgs)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func likedMsg(user, item, id string) *skeinv1.Event {
	return &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_Liked{Liked: &skeinv1.Liked{UserId: user, ItemId: item}}}
}

// malformedMsg is an event that decodes but is refused.
func malformedMsg(user, id string) *skeinv1.Event { return likedMsg(user, "", id) }

func sameEnvelope(a, b *events.Envelope) bool {
	if len(a.Events)+len(b.Events) == 0 {
		x, y := *a, *b
		x.Events, y.Events = nil, nil
		return reflect.DeepEqual(x, y)
	}
	return reflect.DeepEqual(a, b)
}

// backfilled returns the event as history of 2019.
func backfilled(msg *skeinv1.Event, offset uint64) *skeinv1.Event {
	msg = proto.CloneOf(msg)
	msg.Source, msg.Offset = "old-redis", offset
	msg.OccurredAt = timestamppb.New(time.Date(2019, 5, 17, 8, 30, 0, 123_456_789, time.UTC))
	return msg
}

// everyKind returns an event of each kind, with a value in each field.
func everyKind() (evs []*skeinv1.Event) {
	kinds := (&skeinv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		msg := &skeinv1.Event{EventId: fmt.Sprint("event", i), Source: "old-redis", Offset: uint64(i + 1), OccurredAt: timestamppb.New(time.Unix(1e9, 0))}
		fill(msg.ProtoReflect().Mutable(kinds.Get(i)).Message())
		evs = append(evs, msg)
	}
	return evs
}

// fill gives every field of a message a value.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); f.Kind() {
		case protoreflect.MessageKind:
			if f.IsList() {
				fill(m.Mutable(f).List().AppendMutable().Message())
			} else {
				fill(m.Mutable(f).Message())
			}
		case protoreflect.StringKind:
			if f.IsList() {
				m.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
			} else {
				m.Set(f, protoreflect.ValueOfString("x"))
			}
		case protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte("x")))
		case protoreflect.EnumKind:
			m.Set(f, protoreflect.ValueOfEnum(1))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case protoreflect.Int32Kind:
			m.Set(f, protoreflect.ValueOfInt32(7))
		case protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(7))
		case protoreflect.Int64Kind, protoreflect.Sint64Kind:
			m.Set(f, protoreflect.ValueOfInt64(7))
		case protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOfUint64(7))
		default:
			panic(fmt.Sprintf("%s is of kind %v: give it a value here", f.FullName(), f.Kind()))
		}
	}
}

func reportEvents(b *testing.B, perOp int) {
	b.ReportMetric(float64(perOp)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func pin(owner, id string) *skeinv1.Pin { return &skeinv1.Pin{OwnerId: owner, PinId: id} }
