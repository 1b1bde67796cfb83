package seen

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Route delivers an event to the user who acts.
func (*Seen) Route(ev *events.Event, to *projections.Partitions) { to.AddHome(ev.User) }
