package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Route delivers what concerns one user to that user. All else concerns the inboxes of all followers, whom the event does not name:
// a pin is written there, and a follow may be the one from which on it is not.
func (f *Inbox) Route(ev *events.Event, to *projections.Partitions) {
	switch ev.Kind {
	case events.PinDeleted, events.ReaderActive:
		to.AddHome(ev.User)
	case events.UserMuted, events.UserUnmuted:
		f.graph.Route(ev, to)
	default:
		to.AddAll()
	}
}

// Crossing are all tags, those of the graph among them: a pin is written to inboxes.
func (f *Inbox) Crossing() []projections.Tag {
	return append(f.graph.Crossing(), projections.Tags(tagPin, tagBoardSource)...)
}
