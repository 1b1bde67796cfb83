package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds every partition whose rows the event may change. It may add too many, because it sees
// only the event and cannot read rows.
//
// Each user and each item has a home partition. The home of a user has the user's pins, boards and
// numbers of pins and plays. The home of an item has the item's plays, reactions, re-pins and heat,
// and the users who have pinned it. Tombstones of deleted users and boards are in every partition.
//
// Route must have a case for every kind that [Counters.Kinds] lists: an event without a partition
// is not folded. The conformance suite tests this.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// The homes of items that a user has reacted to take these reactions back. Besides, the
		// home of an item must refuse later events by a deleted user or on a deleted board, for
		// example from an import. The event names no items, so it goes to every partition.
		partitions.AddAll()

	case events.BoardCreated:
		// The event may create a deleted board again, and then changes the tombstone of the board
		// in every partition. The event alone does not say whether the board is new.
		partitions.AddAll()

	case events.PinCreated, events.Played:
		// A pin is stored at the home of the user. The home of the item records that the user has
		// pinned the item, and counts the pin if it is a re-pin. A play is counted at both homes.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Item)

	case events.PinMoved, events.PinDeleted:
		// Nothing changes at the home of the item: re-pins of an item are counted for ever, and a
		// user who has pinned an item once stays recorded there.
		partitions.AddHome(ev.User)

	case events.Reacted, events.Unreacted:
		// All rows of a reaction are at the home of the item, also those that list the reactions of
		// a user: a query merges them from all partitions.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		// The heat of an item includes the score that the application has set.
		partitions.AddHome(ev.Item)
	}
}
