package audit

import (
	"testing"

	"github.com/skein-feed/skein/events"
)

// An entity is in the queue only once, however often it is written, and the queue does not exceed
// its limit.
func TestQueueHoldsEachEntityOnce(t *testing.T) {
	a := NewAuditor(Config{Queue: 4})
	follow := &events.Envelope{Events: []events.Event{
		{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		{Kind: events.BoardFollowed, User: "ann", Peer: "bob", Board: "art"},
		{Kind: events.UserFollowed, User: "ann", Peer: "dee"},
		{Kind: events.Played, User: "ann", Item: "film"}, // no two stores have it
	}}
	a.enqueue([]*events.Envelope{follow, follow, follow})
	if s := a.Status(); s.Queued != 4 || s.Dropped != 0 {
		t.Errorf("%d wait, %d are dropped", s.Queued, s.Dropped)
	}
	a.enqueue([]*events.Envelope{{Events: []events.Event{{Kind: events.UserMuted, User: "cid", Peer: "dee"}}}})
	if s := a.Status(); s.Queued != 4 || s.Dropped != 1 {
		t.Errorf("%d wait, %d are dropped", s.Queued, s.Dropped)
	}
	first := a.takeQueued(3)
	want := []Entity{{User: "bob"}, {User: "ann"}, {User: "bob", Board: "art", OfBoard: true}}
	for i := range want {
		if first[i] != want[i] {
			t.Errorf("%v comes first, not %v", first[i], want[i])
		}
	}
	a.enqueue([]*events.Envelope{follow})
	if s := a.Status(); s.Queued != 4 || s.Dropped != 1 {
		t.Errorf("what was taken may come again: %d wait, %d are dropped", s.Queued, s.Dropped)
	}
}
