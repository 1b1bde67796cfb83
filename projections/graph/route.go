package graph

import (
	"github.com/skein-feed/skein/events"
)

// Route delivers an event to the ends of the edges that it is about. The end of a user or a board concerns all its followers, and the
// event does not name them. So does the creation of a board, since it may have been deleted before.
func (*Graph) Route(ev *events.Event, to *events.Partitions) {
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
