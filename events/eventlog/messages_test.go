package eventlog

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// mustEncode encodes events as one envelope.
func mustEncode(tb testing.TB, msgs ...*skeinv1.Event) []byte {
	tb.Helper()
	data, err := events.EncodeEnvelope(msgs)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// newLike returns a like of an item.
func newLike(user, item, id string) *skeinv1.Event {
	return &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
}

// newMalformedLike returns an event that can be decoded but is rejected, because it names no item.
func newMalformedLike(user, id string) *skeinv1.Event { return newLike(user, "", id) }

// equalEnvelopes compares two envelopes. Nil and empty lists of events are equal.
func equalEnvelopes(a, b *events.Envelope) bool {
	if len(a.Events)+len(b.Events) == 0 {
		x, y := *a, *b
		x.Events, y.Events = nil, nil
		return reflect.DeepEqual(x, y)
	}
	return reflect.DeepEqual(a, b)
}

// asBackfill returns a copy of the event as a backfill of 2019.
func asBackfill(msg *skeinv1.Event, offset uint64) *skeinv1.Event {
	msg = proto.CloneOf(msg)
	msg.Source, msg.Offset = "old-redis", offset
	msg.OccurredAt = timestamppb.New(time.Date(2019, 5, 17, 8, 30, 0, 123_456_789, time.UTC))
	return msg
}

// reportEvents reports the rate of a benchmark that handles perOp events per operation.
func reportEvents(b *testing.B, perOp int) {
	b.ReportMetric(float64(perOp)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// newPin returns a reference to a pin.
func newPin(owner, id string) *skeinv1.Pin { return &skeinv1.Pin{OwnerId: owner, PinId: id} }
