package inbox_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

func reads(user string, at events.Micros) events.Event {
	return events.Event{Kind: events.FeedRead, User: user, Read: at}
}

// TestReadMarkerOnlyMovesForward: the read marker moves forward alone, never ahead of the log, and
// ends with its user.
func TestReadMarkerOnlyMovesForward(t *testing.T) {
	s := newStory(t, inbox.DefaultSettings())
	s.do(follows("ann", "bob"), posts("bob", "p1"), posts("bob", "p2"))
	one := s.history[len(s.history)-2].Time
	s.do(reads("ann", one), reads("ann", one-1), posts("bob", "p3"))
	s.do(reads("ann", s.cursor.LastTime), reads("ann", one), reads("ann", s.cursor.LastTime+1<<40), posts("bob", "p4"))
	s.do(events.Event{Kind: events.UserDeleted, User: "ann"}, follows("ann", "bob"), reads("ann", one))
}
