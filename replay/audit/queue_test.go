package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
		{Kind: events.Played, User: "ann", Item: "film"}, // not queued: no two audited stores have plays
	}}
	checkStatus := func(step string, wantQueued int, wantDropped uint64) {
		t.Helper()
		if s := a.Status(); s.Queued != wantQueued || s.Dropped != wantDropped {
			t.Errorf("%s: got %d queued and %d dropped entities, expected %d and %d",
				step, s.Queued, s.Dropped, wantQueued, wantDropped)
		}
	}

	a.enqueue([]*events.Envelope{follow, follow, follow})
	checkStatus("after the same follows three times", 4, 0)

	// The queue is full, so one of the two users of a mute is dropped: the other one is queued already.
	a.enqueue([]*events.Envelope{{Events: []events.Event{{Kind: events.UserMuted, User: "cid", Peer: "dee"}}}})
	checkStatus("after a mute", 4, 1)

	first := a.takeQueued(3)
	want := []Entity{{User: "bob"}, {User: "ann"}, {User: "bob", Board: "art", OfBoard: true}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first entities of the queue (-want +got):\n%s", diff)
	}

	// Entities that were taken may be queued again.
	a.enqueue([]*events.Envelope{follow})
	checkStatus("after the follows once more", 4, 1)
}
