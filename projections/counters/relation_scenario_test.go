package counters

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestBarredUntilUnblocked: what is followed and excluded while an imported block stands comes back with its end, also where
// no more history is to come.
func TestBarredUntilUnblocked(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := &relationLog{}
		l.add(events.Event{
			Kind: events.UserBlocked, User: "bob", Peer: "ann", Backfill: true, Source: "old", Offset: 1, Time: 5,
		})
		if closed {
			l.add(events.Event{Kind: events.BackfillClosed})
		}
		l.add(
			events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
			events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: "art"},
			events.Event{Kind: events.BoardFollowed, User: "ann", Peer: "bob", Board: "9"},
			events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: ""},
		)
		s := relationStore(t, projections.Bounds{})
		foldRelations(t, s, l.list)
		compareRelations(t, s, l.list)
		n := len(l.list)
		l.add(events.Event{Kind: events.UserUnblocked, User: "bob", Peer: "ann"})
		foldRelations(t, s, l.list[n:])
		compareRelations(t, s, l.list)
		v := relationView(t, s)
		var got UserCounts
		if err := Query(v).userRelations("ann", &got); err != nil || got.ExcludedBoards != 2 || got.FollowedBoards != 1 {
			t.Errorf("closed %v: %+v: %v", closed, got, err)
		}
		v.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
