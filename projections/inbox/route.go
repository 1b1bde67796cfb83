package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// Route delivers an event to the partition of the user who acts, who is the owner of a pin. A new
// or moved pin, and the end of a user or board, concern all followers. The event does not name
// them, so it goes to all partitions.
func (f *Inbox) Route(ev *events.Event, to *events.Partitions) {
	switch ev.Kind {
	case events.PinCreated, events.PinMoved, events.BoardCreated, events.BoardDeleted, events.UserDeleted:
		to.AddAll()
	case events.UserBlocked, events.UserUnblocked:
		// A block ends the follows in both directions.
		to.AddHome(ev.User)
		to.AddHome(ev.Peer)
	default:
		to.AddHome(ev.User)
	}
}

// ChangesOnlyHome reports whether an event writes rows only at the home of its user. In other
// partitions a new or moved pin changes only inboxes, which are in memory. It is part of
// [projections.HomeRouter].
func (*Inbox) ChangesOnlyHome(ev *events.Event) bool {
	return ev.Kind == events.PinCreated || ev.Kind == events.PinMoved
}

// Regions returns the tags of the regions. It is part of [projections.Regional].
func (f *Inbox) Regions() []projections.Tag {
	return append(f.graph.Regions(), tagPulledOwner, tagRepinOf)
}

// RegionHome returns the partition of a row in a region: a region of the graph, the rows that say
// where owners are pulled, or those that lead to the re-pins of a user's pins. It is part of
// [projections.Regional].
func (*Inbox) RegionHome(key []byte) (partition uint8, ok bool) {
	if tag := projections.Tag(key[2]); tag != tagPulledOwner && tag != tagRepinOf {
		return graph.RegionHome(key)
	}
	_, rest, err := events.CutID(key[3:])
	if err != nil || len(rest) == 0 {
		return 0, false
	}
	return rest[0], true
}
