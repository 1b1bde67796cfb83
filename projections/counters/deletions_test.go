package counters

import (
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestDeletionRowsStayWhileHistoryMayNeedThem checks that rows about deleted users and boards stay as
// long as history or an existing pin may need them, and no longer.
func TestDeletionRowsStayWhileHistoryMayNeedThem(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	check := func(when string, tombstones, boards int) {
		t.Helper()
		if got := countRows(t, l.s); got[tagTombstone] != tombstones || got[tagBoardDeletion] != boards {
			t.Errorf("%s: got %d tombstones and %d deleted boards, want %d and %d",
				when, got[tagTombstone], got[tagBoardDeletion], tombstones, boards)
		}
	}
	board := func(kind events.Kind, owner, id string) events.Event {
		return events.Event{Kind: kind, User: owner, Board: id}
	}

	// Boards that are deleted, and pins on boards that are created again or not.
	l.add(board(events.BoardDeleted, "ann", "art"), board(events.BoardDeleted, "ann", "tea"), board(events.BoardDeleted, "bob", "art"))
	check("boards deleted", 0, 3)
	l.add(newPinCreated("ann", "p", "art", "i"), newPinCreated("bob", "p", "tea", "i"))
	l.add(board(events.BoardCreated, "ann", "art"), board(events.BoardCreated, "ann", "new"))
	check("boards created again", 0, 3)

	l.add(newPinCreated("ann", "p", "art", "j"))
	v := mustView(t, l.s)
	for item, want := range map[string]int64{"i": 0, "j": 1} {
		n, err := NewQueries(v).CountPinsShowing(item, "ann", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n != want {
			t.Errorf("%d pins of ann show %s, want %d", n, item, want)
		}
	}
	v.Close()

	// A deleted user leaves a tombstone until the backfill is closed.
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("ann deleted", 1, 1)
	l.add(events.Event{Kind: events.BackfillClosed})
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("backfill closed", 0, 1)
	l.add(board(events.BoardCreated, "bob", "art"))
	check("last deleted board created again", 0, 0)
}
