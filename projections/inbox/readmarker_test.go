package inbox_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

func newFeedRead(user string, at events.Micros) events.Event {
	return events.Event{Kind: events.FeedRead, User: user, Read: at}
}

// TestReadMarkerOnlyMovesForward checks that the read marker only moves forward, never past the log,
// and ends with its user.
func TestReadMarkerOnlyMovesForward(t *testing.T) {
	s := newCheckedLog(t, inbox.DefaultSettings())
	s.addChecked(newFollow("ann", "bob"), newPin("bob", "p1"), newPin("bob", "p2"))
	firstPin := s.history[len(s.history)-2].Time
	s.addChecked(newFeedRead("ann", firstPin), newFeedRead("ann", firstPin-1), newPin("bob", "p3"))

	// An earlier time, and one that the log has not reached.
	s.addChecked(newFeedRead("ann", s.cursor.LastTime), newFeedRead("ann", firstPin))
	s.addChecked(newFeedRead("ann", s.cursor.LastTime+1<<40), newPin("bob", "p4"))

	s.addChecked(events.Event{Kind: events.UserDeleted, User: "ann"}, newFollow("ann", "bob"), newFeedRead("ann", firstPin))
}
