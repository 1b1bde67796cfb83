package histories

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// notificationWeights are the weights of histories with [Options.Notifications]: what users do to
// each other's pins, and what hides it.
var notificationWeights = []weight{
	{events.Reacted, 24, true},
	{events.PinCreated, 24, true},
	{events.UserFollowed, 6, true},
	{events.Unreacted, 10, false},
	{events.PinDeleted, 8, false},
	{events.NotificationsSeen, 5, false},
	{events.NotificationsRead, 7, false},
	{events.UserUnfollowed, 2, false},
	{events.BoardFollowed, 3, false},
	{events.PinMoved, 2, false},
	{events.BoardDeleted, 1, false},
	{events.BoardCreated, 2, false},
	{events.UserBlocked, 2, false},
	{events.UserUnblocked, 3, false},
	{events.UserMuted, 3, false},
	{events.UserUnmuted, 3, false},
	{events.UserDeleted, 1, false},
	{events.BackfillClosed, 1, false},
}

// setNotificationFields sets the fields of events about pins, reactions and markers. It returns
// false for kinds that it does not know.
func (g generator) setNotificationFields(d chooser, ev *events.Event) bool {
	switch ev.Kind {
	case events.PinCreated:
		ev.Board = g.randomBoard(d)
		ev.User, ev.Pin = g.randomOwnedPin(d)
		ev.Item = [...]string{ev.Pin, "i", "i"}[d.choose(3, "item")]
		if d.choose(2, "re-pin") == 1 {
			ev.RepinUser, ev.RepinPin = g.randomOwnedPin(d)
		}
	case events.PinDeleted:
		ev.User, ev.Pin = g.randomOwnedPin(d)
		if d.choose(3, "names the original") > 0 {
			ev.RepinUser, ev.RepinPin = g.randomOwnedPin(d)
		}
	case events.PinMoved:
		ev.Board = g.randomBoard(d)
		ev.User, ev.Pin = g.randomOwnedPin(d)
	case events.Reacted, events.Unreacted:
		ev.Item = [...]string{"i", "i", "p1", "8"}[d.choose(4, "item")]
		ev.Reaction = [...]string{"", "", "wow", "_bookmark"}[d.choose(4, "kind of reaction")]
		if d.choose(6, "names a pin") > 0 {
			ev.RepinUser, ev.RepinPin = g.randomOwnedPin(d)
		}
	case events.NotificationsSeen, events.NotificationsRead:
		const day = 24 * 3600 * 1_000_000
		// Times before all live events, about now, and in the future.
		ev.Read = [...]events.Micros{Start - 10, Start + 5, Start + 60, Start + day, Start + 2*day, 1 << 53}[d.choose(6, "time")]
		if ev.Kind == events.NotificationsRead && d.choose(3, "one group") > 0 {
			ev.Group = fmt.Sprint("r", Start/day+events.Micros(d.choose(3, "day")), ":p1")
		}
	default:
		return false
	}
	return true
}

// spreadOverDays makes a day pass, now and then.
func (g generator) spreadOverDays(d chooser, s *step) {
	if d.choose(12, "a day passes") == 11 {
		s.pause = 20 * 3600 * 1_000_000
	}
}
