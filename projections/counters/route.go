package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds to partitions every partition whose rows the event may change. The home of a user or
// an item is the one partition that has its rows; pins and boards are at the home of their owner.
// The store calls Route only for the kinds that [Counters.Kinds] lists, so every kind that is
// listed there has a case here.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// The reactions of a deleted user are at the homes of items that the event does not name.
		// Besides, the home of an item counts the plays, re-pins and reactions of users from
		// everywhere, and must know which of these users and boards are deleted. So every partition
		// records every deletion.
		partitions.AddAll()

	case events.BoardCreated:
		// The event may bring back a board that was deleted, and every partition has a record of
		// the deletion, which then changes. Route sees no rows, so it cannot tell such an event
		// from the creation of a new board.
		partitions.AddAll()

	case events.PinCreated, events.Played:
		// The home of User has the pins of User, and counts the plays by User. The home of Item
		// counts the plays and re-pins of Item, and records which users have pinned it.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Item)

	case events.PinMoved, events.PinDeleted:
		// No row at the home of the item changes. It records which users have pinned the item, and
		// a list by heat asks the homes of these users whether a pin of the item still exists. The
		// item's count of re-pins includes deleted ones.
		partitions.AddHome(ev.User)

	case events.Reacted, events.Unreacted:
		// All rows of a reaction are at the home of the item, including those of the list of a
		// user's reactions. This list is merged from all partitions when it is read. The fold
		// ignores the pin on which the user reacted.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		// The score that the application has set is part of the heat of the item.
		partitions.AddHome(ev.Item)
	}
}
