package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds every partition whose rows the event may change to partitions. Route sees only the
// event and cannot read rows, so it may add some whose rows stay as they are, which only costs time.
//
// Each user and each item has a home partition. The home of a user has the user's pins and boards,
// and the counts of pins and plays. The home of an item has its counts of plays, reactions and
// re-pins, its heat, the reactions themselves, and who has ever pinned it. Tombstones of deleted
// users and boards are in every partition.
//
// Route must have a case for every kind that [Counters.Kinds] lists, because an event for which
// Route adds no partition changes nothing. The conformance suite tests that there is a case for each
// kind.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// Every partition gets a tombstone, with which it refuses events by the user or on the board
		// that come later in the log, for example from an import. A deleted user's reactions also
		// end, and they can be in any partition.
		partitions.AddAll()

	case events.BoardCreated:
		// If the board was deleted before, the event creates it again, and its tombstone changes in
		// every partition. The event alone does not say whether the board is new.
		partitions.AddAll()

	case events.PinCreated, events.Played:
		// A pin is stored at the home of the user. The home of the item records that the user has
		// pinned the item, and counts the pin if it is a re-pin, which means that the event names
		// the pin of somebody else. A play is counted at both homes.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Item)

	case events.PinMoved, events.PinDeleted:
		// Nothing changes at the home of the item: its count of re-pins never goes down, and it
		// remembers a user who has ever pinned the item.
		partitions.AddHome(ev.User)

	case events.Reacted, events.Unreacted:
		// All rows of a reaction are at the home of the item. This includes the row in the list of
		// the user's reactions, so that a query for this list reads all partitions.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		// The score that the application sets replaces the heat of the item.
		partitions.AddHome(ev.Item)
	}
}
