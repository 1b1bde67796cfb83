package seen

import (
	"github.com/skein-feed/skein/events"
)

// Route delivers an event to the partition of the user who acts: plays and serves are rows of that
// user.
func (*Seen) Route(ev *events.Event, to *events.Partitions) { to.AddHome(ev.User) }
