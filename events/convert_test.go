package events

import (
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestEventsOfErasedUserConvert demands that FromLog converts events of an erased user, as a change
// feed returns them, although no caller can publish such events.
func TestEventsOfErasedUserConvert(t *testing.T) {
	pseudonym := NewKeyedHash(LogID{1}).Pseudonym("somebody")
	msg := &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: pseudonym}}}
	if _, rejection := FromProto(msg); rejection == nil {
		t.Error("FromProto of an event with a pseudonym: got no rejection, want one")
	}
	if ev, ok := FromLog(msg); !ok || ev.Kind != Served || ev.User != pseudonym {
		t.Errorf("FromLog of an event with a pseudonym: got %+v (%v), want served with user %s", ev, ok, pseudonym)
	}

	if ev, ok := FromLog(&skeinv1.Event{EventId: "e"}); ok {
		t.Errorf("FromLog of an event without kind: got %+v, want none", ev)
	}

	pin := &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: "ann", PinId: "p"},
	}}}
	fromProto, rejection := FromProto(pin)
	if rejection != nil {
		t.Fatalf("FromProto of a pin: got rejection %v, want none", rejection)
	}
	if ev, ok := FromLog(pin); !ok || ev.Item != "p" || ev.Item != fromProto.Item {
		t.Errorf("FromLog of a pin: got %+v (%v), want item p like %+v", ev, ok, fromProto)
	}
}
