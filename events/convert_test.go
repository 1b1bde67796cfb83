package events

import (
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A change feed returns events of an erased user, though no caller can publish such events.
func TestEventsOfErasedUserConvert(t *testing.T) {
	name := NewKeyedHash(LogID{1}).Pseudonym("somebody")
	msg := &skeinv1.Event{Kind: &skeinv1.Event_Served{Served: &skeinv1.Served{UserId: name}}}
	if _, bad := FromProto(msg); bad == nil {
		t.Error("anybody can publish it")
	}
	if ev, ok := FromLog(msg); !ok || ev.Kind != Served || ev.User != name {
		t.Errorf("%+v, %v", ev, ok)
	}
	if ev, ok := FromLog(&skeinv1.Event{EventId: "e"}); ok {
		t.Errorf("of no kind: %+v", ev)
	}
	pin := &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: "ann", PinId: "p"},
	}}}
	good, bad := FromProto(pin)
	if ev, ok := FromLog(pin); bad != nil || !ok || ev.Item != "p" || ev.Item != good.Item {
		t.Errorf("%+v, %v; %+v", ev, bad, good)
	}
}
