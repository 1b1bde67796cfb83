package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds the partitions whose rows the event may change. Each user and each item has a home, which is one partition. The runtime calls
// Route only for the kinds that [Counters.Kinds] lists.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// A user's reactions are stored at the homes of the items, which the event does not name. Every partition also records the
		// deletion, because the homes of items need it to decide which pins and reactions no longer count.
		partitions.AddAll()

	case events.BoardCreated:
		// The event brings back a board that was deleted before, so the record of that deletion must be updated in every partition.
		// Whether there is such a record is known only there.
		partitions.AddAll()

	case events.PinCreated, events.Played:
		// The pin is a row at the home of its owner, as is the count of a user's plays. The home of the item records who
		// named it, and counts its plays and re-pins.
		partitions.AddHome(ev.User)
		partitions.AddHome(ev.Item)

	case events.PinMoved, events.PinDeleted:
		// These events do not name the item, so its home cannot get them. It does not need them: pages ask the home of the
		// owner which items a living pin shows.
		partitions.AddHome(ev.User)

	case events.Reacted, events.Unreacted:
		// All rows of a reaction are at the home of the item, also those of the list of the user's reactions (tagReactedItem). The
		// user's home stores nothing about them, and the pin on which the user reacted changes nothing here.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		partitions.AddHome(ev.Item)
	}
}
