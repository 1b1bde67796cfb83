package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds every partition whose rows the event may change. It may add too many, because it sees
// only the event and cannot read rows.
//
// Each user and each item has a home partition. Pins, boards and the counts of a user are at the
// home of the user; plays, reactions, re-pins and heat of an item are at the home of the item.
// Records of deletions are in every partition.
//
// Route must have a case for every kind that [Counters.Kinds] lists: an event without a partition
// is not folded. The conformance suite tests this.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// The home of an item ignores plays, re-pins and reactions by a deleted user, and re-pins
		// onto a deleted board, and takes back the reactions that the user has. The event does not
		// name these items, so every partition records every deletion.
		partitions.AddAll()

	case events.BoardCreated:
		// The event may create a deleted board again. Then every partition must remove its record
		// of the deletion. The event alone does not say whether the board is new.
		partitions.AddAll()

	case events.PinCreated, events.Played:
		// The home of the user stores the pin, or counts the play. The home of the item counts the
		// play or, if the pin repeats another pin, the re-pin. It also records that the user has
		// pinned the item.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Item)

	case events.PinMoved, events.PinDeleted:
		// Nothing changes at the home of the item. Its count of re-pins never falls, and its record
		// of the users who have ever pinned the item stays: a query for the hottest items asks the
		// homes of these users whether the pin still exists, and on which board.
		partitions.AddHome(ev.User)

	case events.Reacted, events.Unreacted:
		// All rows of a reaction are at the home of the item. A query for the reactions of a user
		// merges rows from all partitions. The counts do not depend on the pin that the user was
		// looking at, so the home of its owner has no row.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		// The heat of an item includes the score that the application has set.
		partitions.AddHome(ev.Item)
	}
}
