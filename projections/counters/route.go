package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Route delivers an event to whom it names. A change of an item's heat concerns the lists of all owners that show it, and a pin that
// moves or ends an item, none of which the event names.
func (*Counters) Route(ev *events.Event, to *projections.Partitions) {
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed, events.UserBlocked, events.UserUnblocked:
		to.AddHome(ev.User)
		to.AddHome(ev.Peer)
	default:
		to.AddAll()
	}
}

// Crossing are all tags: a like reads where the item is shown, a follow who else follows.
func (*Counters) Crossing() []projections.Tag {
	return append(projections.Tags(tagUserRelations, tagTombstone), projections.Tags(tagPin, tagFirstEnded)...)
}
