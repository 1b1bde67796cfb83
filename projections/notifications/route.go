package notifications

import "github.com/skein-feed/skein/events"

// Route adds the home of the recipient, whom the event names as the owner of a pin. An event that
// names no pin of another user changes no row. The rows of a deleted user, who is the actor of
// facts everywhere, may be in any partition.
func (*Notifications) Route(ev *events.Event, partitions *events.Partitions) {
	switch ev.Kind {
	case events.UserDeleted:
		partitions.AddAll()
	case events.NotificationsSeen, events.NotificationsRead:
		partitions.AddHome(ev.User)
	case events.Reacted, events.Unreacted, events.PinCreated, events.PinDeleted:
		if _, ok := factOf(ev); ok {
			partitions.AddHome(ev.RepinUser)
		}
	}
}
