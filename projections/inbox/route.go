package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// Route delivers an event to the user whose relations it changes or who owns the pin. Pins that begin or move concern all
// followers, whom the event does not name, and so does the end of a user or board.
func (f *Inbox) Route(ev *events.Event, to *events.Partitions) {
	switch ev.Kind {
	case events.PinCreated, events.PinMoved, events.BoardCreated, events.BoardDeleted, events.UserDeleted:
		to.AddAll()
	case events.UserBlocked, events.UserUnblocked:
		to.AddHome(ev.User)
		to.AddHome(ev.Peer)
	default:
		to.AddHome(ev.User)
	}
}

// RowsAtHome is part of [projections.Homed]: elsewhere a pin is pushed to inboxes, which are in memory.
func (*Inbox) RowsAtHome(ev *events.Event) bool {
	return ev.Kind == events.PinCreated || ev.Kind == events.PinMoved
}

// Regions is part of [projections.Regional].
func (f *Inbox) Regions() []projections.Tag { return append(f.graph.Regions(), tagPulledOwner) }

// RegionHome is part of [projections.Regional]: the regions are those of the graph, and where owners are pulled.
func (*Inbox) RegionHome(key []byte) (partition uint8, ok bool) {
	if projections.Tag(key[2]) != tagPulledOwner {
		return graph.RegionHome(key)
	}
	_, rest, err := events.CutID(key[3:])
	if err != nil || len(rest) == 0 {
		return 0, false
	}
	return rest[0], true
}
