package graph

import (
	"github.com/skein-feed/skein/events"
)

// Route adds the partitions of the homes whose rows the event may change. It adds none for a kind that [Graph.Kinds] does not
// list: the runtime does not fold such events here.
func (*Graph) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.UserBlocked, events.UserUnblocked:
		// The edge between the two users has an end at each of their homes.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Peer)

	case events.UserMuted, events.UserUnmuted, events.RepinsHidden, events.RepinsShown:
		// Only the user's end of the edge has these facts. They change nothing for the other user.
		partitions.AddHome(ev.User)

	case events.PinCreated, events.PinMoved:
		// A pin can create the board that it is on, and boards are at the home of their owner.
		partitions.AddHome(ev.User)

	case events.UserDeleted, events.BoardDeleted:
		// The event does not name the followers whose edges it ends, and they can be at any home. Besides, every store has a
		// row that says that the user or board was deleted.
		partitions.AddAll()

	case events.BoardCreated:
		// The board may have been deleted before. Every store has a row that says so, and must update it.
		partitions.AddAll()
	}
}
