package counters

import (
	"github.com/skein-feed/skein/events"
)

// Route delivers an event to the homes of the users, pins and items that it names. Whatever a user or board has may be anywhere when it
// ends, and every store has the lives of the boards that were deleted.
func (*Counters) Route(ev *events.Event, to *events.Partitions) {
	switch ev.Kind {
	case events.BoardCreated, events.BoardDeleted, events.UserDeleted:
		to.AddAll()
	case events.PinMoved, events.PinDeleted:
		to.AddHome(ev.User)
	case events.PinCreated, events.Played:
		to.AddHome(ev.User)
		to.AddHome(ev.Item)
	default: // likes and scores
		to.AddHome(ev.Item)
	}
}
