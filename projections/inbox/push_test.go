package inbox_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// TestPinMovedBeforeItsHistoryReachesFeed moves a pin to a board that a reader follows. History then
// says that the pin was created later than the move, on another board. History comes first in the
// order of facts, so the pin is on the followed board, and at a time after all that the move made
// the reader's inbox read.
func TestPinMovedBeforeItsHistoryReachesFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := newCheckedLog(t, set)
		s.addChecked(newBoardEvent(events.BoardFollowed, "ann", "bob", "b"))
		s.addChecked(events.Event{Kind: events.PinMoved, User: "bob", Pin: "p", Board: "b"}, newPin("cid", "x"))
		s.addChecked(newImported(newPinOn("bob", "a", "p"), 1, s.cursor.LastTime))
	}
}
