package graph

import (
	"github.com/skein-feed/skein/events"
)

// Route adds to partitions every partition whose rows the event may change. The home of a user is
// the one partition that has the user's rows; the rows of a board are at the home of its owner. The
// store calls Route only for the kinds that [Graph.Kinds] lists, so every kind that is listed there
// has a case here.
func (*Graph) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.UserBlocked, events.UserUnblocked:
		// A follow or a block is stored twice, once at the home of each user. In an event about a
		// board, Peer is the owner of the board.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Peer)

	case events.UserMuted, events.UserUnmuted, events.FollowSettingsSet:
		// Only User can read whom User mutes and the settings of User's follows, so the home of
		// Peer has no row of them.
		partitions.AddHome(ev.User)

	case events.PinCreated, events.PinMoved:
		// User owns the pin and the board on which the pin is afterwards. The event can create this
		// board, but it cannot bring back a deleted one. So, unlike BoardCreated, it changes no
		// record of a deletion.
		partitions.AddHome(ev.User)

	case events.UserDeleted, events.BoardDeleted:
		// The event ends relations of users whom it does not name, and the homes of these users can
		// be any partitions. Every partition also records the deletion, and from then on refuses
		// imported history about the user or board.
		partitions.AddAll()

	case events.BoardCreated:
		// The event may bring back a board that was deleted, and every partition has a record of
		// the deletion, which then changes. Route sees no rows, so it cannot tell such an event
		// from the creation of a new board.
		partitions.AddAll()
	}
}
