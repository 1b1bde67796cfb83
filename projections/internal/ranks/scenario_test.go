package ranks

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/model/histories"
)

// relationLog makes events of one envelope each, a second apart.
type relationLog struct{ list []events.Event }

func (l *relationLog) add(list ...events.Event) {
	for _, ev := range list {
		n := len(l.list) + 1
		if ev.Seq = uint64(n); !ev.Backfill {
			ev.Time = histories.Start + events.Micros(n)*1_000_000
		}
		l.list = append(l.list, ev)
	}
}

// TestEndOfImportedBlockRestoresNothing: what is followed and excluded while an imported block stands does not come back with its end,
// also where no more history is to come.
func TestEndOfImportedBlockRestoresNothing(t *testing.T) {
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
		got, err := Query(v).User("ann")
		if err != nil || got != (UserCounts{}) {
			t.Errorf("backfills closed %v: got %+v, %v, expected no relations", closed, got, err)
		}
		v.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
