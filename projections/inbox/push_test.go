package inbox_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// TestPinMovedBeforeItsHistoryReachesFeed: a pin is moved to a board that a reader follows, and
// history says afterwards that it was created later than that, on another board. History comes
// first in the order of facts, so the pin is on the board, above all that the move made the reader
// look for.
func TestPinMovedBeforeItsHistoryReachesFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := newStory(t, set)
		s.do(onBoard(events.BoardFollowed, "ann", "bob", "b"))
		s.do(events.Event{Kind: events.PinMoved, User: "bob", Pin: "p", Board: "b"}, posts("cid", "x"))
		late := postsOn("bob", "a", "p")
		late.Backfill, late.Source, late.Offset, late.Time = true, "old", 1, s.cursor.LastTime
		s.do(late)
	}
}
