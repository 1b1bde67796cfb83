package events

import (
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestEventsOfErasedUserConvert demands that FromLog converts events of an erased user, as a change
// feed returns them, although no caller can publish such events.
func TestEventsOfErasedUserConvert(t *testing.T) {
	name := NewKeyedHash(LogID{1}).Pseudonym("somebody")
	msg := &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: name}}}
	if _, bad := FromProto(msg); bad == nil {
		t.Error("FromProto of an event with a pseudonym: got no rejection, want one")
	}
	if ev, ok := FromLog(msg); !ok || ev.Kind != Served || ev.User != name {
		t.Errorf("FromLog of an event with a pseudonym: got %+v (%v), want a serving to it", ev, ok)
	}
	if ev, ok := FromLog(&skeinv1.Event{EventId: "e"}); ok {
		t.Errorf("FromLog of an event without kind: got %+v, want none", ev)
	}
	pin := &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: "ann", PinId: "p"},
	}}}
	good, bad := FromProto(pin)
	if ev, ok := FromLog(pin); bad != nil || !ok || ev.Item != "p" || ev.Item != good.Item {
		t.Errorf("FromLog of a pin: got %+v, want the item of %+v (rejection %v)", ev, good, bad)
	}
}
