package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Route delivers an event to the ends of the edges that it is about. What ends a user or a board concerns whoever follows
// them, whom the event does not name; so does a board that is made, since it may have been deleted before.
func (*Graph) Route(ev *events.Event, to *projections.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted, events.BoardCreated:
		to.AddAll()
		return
	case events.UserMuted, events.UserUnmuted, events.RepinsHidden, events.RepinsShown:
	default:
		if ev.Peer != "" {
			to.AddHome(ev.Peer)
		}
	}
	to.AddHome(ev.User)
}
