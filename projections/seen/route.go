package seen

import (
	"github.com/skein-feed/skein/events"
)

// Route delivers an event to the user who acts.
func (*Seen) Route(ev *events.Event, to *events.Partitions) { to.AddHome(ev.User) }
