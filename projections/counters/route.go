package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route adds the partitions of the homes whose rows the event may change. It adds none for a kind that [Counters.Kinds] does
// not list: the runtime does not fold such events here.
func (*Counters) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted, events.BoardDeleted:
		// Every store has a row that says that the user or board was deleted: the homes of items must know it, too, to decide
		// which pins and likes are void. Besides, a user's likes are at the homes of the items, which the event does not name.
		partitions.AddAll()

	case events.BoardCreated:
		// The board may have been deleted before. Every store has a row that says so, and must update it.
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

	case events.Liked, events.Unliked:
		// All rows of a like are at the home of the item, also those of the list of what the user likes (tagLikedItem). The
		// user's home stores nothing about likes.
		partitions.AddHome(ev.Item)

	case events.ItemScored:
		partitions.AddHome(ev.Item)
	}
}
