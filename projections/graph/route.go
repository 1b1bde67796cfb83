package graph

import (
	"github.com/skein-feed/skein/events"
)

// Route adds every partition whose rows the event may change to partitions. Route sees only the
// event and cannot read rows, so it may add some whose rows stay as they are, which only costs time.
//
// Each user has a home partition, which has the rows of the user and of the user's boards.
// Tombstones of deleted users and boards are rows in every partition.
//
// Route must have a case for every kind that [Graph.Kinds] lists, because an event for which Route
// adds no partition changes nothing. The conformance suite tests that there is a case for each kind.
func (*Graph) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.UserBlocked, events.UserUnblocked:
		// Follows and blocks have rows at the homes of both users. For a follow of a board, Peer is
		// the owner of the board.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Peer)

	case events.UserMuted, events.UserUnmuted, events.FollowSettingsSet:
		// A query about mutes or follow settings names the user who made them, so the home of the
		// other user needs no row.
		partitions.AddHome(ev.User)

	case events.PinCreated, events.PinMoved:
		// A user pins only to own boards. A pin begins a board that does not exist yet, but has no
		// effect on a deleted one, so tombstones in other partitions stay.
		partitions.AddHome(ev.User)

	case events.UserDeleted, events.BoardDeleted:
		// The event ends relations of users whom it does not name, and any partition may be their
		// home. Every partition also gets a tombstone, because later events of an import must not
		// bring back relations that are older than the deletion.
		partitions.AddAll()

	case events.BoardCreated:
		// If the board was deleted before, the event creates it again, and its tombstone changes in
		// every partition. The event alone does not say whether the board is new.
		partitions.AddAll()
	}
}
