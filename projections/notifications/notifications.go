package notifications

import (
	"fmt"
	"strconv"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Settings are the settings that the fold reads. They are part of the fingerprint (I4).
type Settings struct {
	// Keep is how many notifications of each kind are kept for a user, the newest ones. Default
	// 1000.
	Keep int
}

// MaxKeep is the greatest [Settings.Keep]. It bounds what a page reads, and the size of page
// tokens.
const MaxKeep = 2000

// DefaultSettings returns the defaults.
func DefaultSettings() Settings { return Settings{Keep: 1000} }

// Check returns an error that names a setting that is out of its bounds.
func (s Settings) Check() error {
	if s.Keep < 1 || s.Keep > MaxKeep {
		return fmt.Errorf("notifications: keep is %d, not 1 to %d notifications of each kind", s.Keep, MaxKeep)
	}
	return nil
}

// Notifications is the projection. It reuses buffers from event to event, so one Notifications
// folds into one store, from one goroutine.
type Notifications struct {
	settings Settings

	batch *projections.Batch
	ev    *events.Event
	// eventCopy is what ev points to. Copying the event costs less than allocating it for each call
	// of Apply.
	eventCopy events.Event
	// key and value are buffers, which may be reused after every call of the batch, because it
	// copies keys and values.
	key, value []byte
}

var (
	_ projections.Projection       = (*Notifications)(nil)
	_ projections.SettingsProvider = (*Notifications)(nil)
	_ projections.IteratedOnly     = (*Notifications)(nil)
)

// New returns the projection.
func New(s Settings) *Notifications { return &Notifications{settings: s} }

// Name returns "notifications".
func (*Notifications) Name() string { return "notifications" }

// Version returns the version of the fold and its rows.
func (*Notifications) Version() uint32 { return 2 }

// Settings returns the settings as they are part of the fingerprint.
func (n *Notifications) Settings() map[string]string {
	return map[string]string{"keep": fmt.Sprint(n.settings.Keep)}
}

// ParseSettings returns the settings of a fingerprint, which [Notifications.Settings] has made. It
// fails with [projections.ErrCorrupt].
func ParseSettings(settings map[string]string) (s Settings, err error) {
	s.Keep, err = strconv.Atoi(settings["keep"])
	if err != nil {
		return s, fmt.Errorf("%w: settings of the store of notifications: %w", projections.ErrCorrupt, err)
	}
	return s, nil
}

// Kinds returns the kinds of events that begin or end a notification, or move a marker.
func (*Notifications) Kinds() []events.Kind {
	return []events.Kind{
		events.PinCreated, events.PinDeleted, events.UserDeleted, events.Reacted, events.Unreacted,
		events.NotificationsSeen, events.NotificationsRead,
	}
}

// Apply folds one event.
func (n *Notifications) Apply(ev events.Event, b *projections.Batch) error {
	n.batch = b
	n.eventCopy = ev
	n.ev = &n.eventCopy

	switch ev.Kind {
	case events.UserDeleted:
		return n.eraseUser()
	case events.NotificationsSeen, events.NotificationsRead:
		if !b.Holds(ev.User) {
			return nil
		}
		return n.moveMarker()
	case events.Reacted, events.Unreacted, events.PinCreated, events.PinDeleted:
		id, ok := factOf(n.ev)
		if !ok || !b.Holds(id.recipient) {
			return nil
		}
		return n.applyFact(&id)
	}
	return fmt.Errorf("notifications: event of kind %s, which it does not read", ev.Kind)
}

// factOf returns the fact that an event begins or ends. It returns false if the event notifies
// nobody: it names no pin, a pin of the acting user, or a private reaction.
func factOf(ev *events.Event) (id factID, ok bool) {
	if ev.RepinUser == "" || ev.RepinUser == ev.User {
		return id, false
	}

	// An event about a reaction names in these fields the pin on which the user reacted.
	id = factID{recipient: ev.RepinUser, pin: ev.RepinPin, actor: ev.User}
	switch ev.Kind {
	case events.Reacted, events.Unreacted:
		id.kind = Reacted
		id.item = ev.Item
		id.reaction = ev.Reaction
		return id, !events.IsPrivateReaction(ev.Reaction)
	default: // pin_created and pin_deleted
		id.kind = Repinned
		id.repin = ev.Pin
		return id, true
	}
}
