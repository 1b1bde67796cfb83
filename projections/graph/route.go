package graph

import (
	"github.com/skein-feed/skein/events"
)

// Route adds the partitions whose rows the event may change. Each user has a home, which is one partition. A board is kept at the home of
// its owner. The runtime calls Route only for the kinds that [Graph.Kinds] lists.
func (*Graph) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.UserBlocked, events.UserUnblocked:
		// What one user is to the other is stored twice, once at the home of each. Peer owns the board that is followed.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Peer)

	case events.UserMuted, events.UserUnmuted, events.FollowSettingsSet:
		// These are settings of the user alone. They are not stored at the home of the other user.
		partitions.AddHome(ev.User)

	case events.PinCreated, events.PinMoved:
		// The user is the owner of the pin and of its board. If the board has never been mentioned before, the event creates it. It never
		// brings back a deleted board.
		partitions.AddHome(ev.User)

	case events.UserDeleted, events.BoardDeleted:
		// The event ends relations of users that it does not name, and their homes can be any partitions. Every partition also records the
		// deletion, so that it can refuse imported history about the user or board that arrives later.
		partitions.AddAll()

	case events.BoardCreated:
		// The event brings back a board that was deleted before, so the record of that deletion must be updated in every partition.
		// Whether there is such a record is known only there.
		partitions.AddAll()
	}
}
