package counters

import (
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestDeletionRowsStayWhileHistoryMayNeedThem demands that rows about deleted users and boards stay
// as long as history or a live pin may need them, and no longer.
func TestDeletionRowsStayWhileHistoryMayNeedThem(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	check := func(when string, stones, boards int) {
		t.Helper()
		if got := countRows(t, l.s); got[tagTombstone] != stones || got[tagBoardDeletion] != boards {
			t.Errorf("%s: %d tombstones, %d boards", when, got[tagTombstone], got[tagBoardDeletion])
		}
	}
	board := func(kind events.Kind, owner, id string) events.Event {
		return events.Event{Kind: kind, User: owner, Board: id}
	}
	l.add(board(events.BoardDeleted, "ann", "art"), board(events.BoardDeleted, "ann", "tea"), board(events.BoardDeleted, "bob", "art"))
	check("deleted", 0, 3)
	l.add(newPinCreated("ann", "p", "art", "i"), newPinCreated("bob", "p", "tea", "i"))
	l.add(board(events.BoardCreated, "ann", "art"), board(events.BoardCreated, "ann", "new"))
	check("made again", 0, 3)
	l.add(newPinCreated("ann", "p", "art", "j"))
	v := mustView(t, l.s)
	for item, want := range map[string]int64{"i": 0, "j": 1} {
		if n, err := NewQueries(v).CountPinsShowing(item, "ann", nil); n != want || err != nil {
			t.Errorf("%d pins of ann show %s: %v", n, item, err)
		}
	}
	v.Close()
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("ann is gone", 1, 1)
	l.add(events.Event{Kind: events.BackfillClosed})
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("no history comes", 0, 1)
	l.add(board(events.BoardCreated, "bob", "art"))
	check("no board is missing", 0, 0)
}
