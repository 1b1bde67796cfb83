package histories

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// notificationWeights are those of histories with [Options.Notifications]: what users do to each other's pins, and what hides it.
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

// notificationEvent fills in what happens to pins and items. It returns false for the kinds about which it knows nothing.
func (w world) notificationEvent(d dice, ev *events.Event) bool {
	switch ev.Kind {
	case events.PinCreated:
		ev.Board = w.board(d)
		ev.User, ev.Pin = w.owned(d)
		ev.Item = [...]string{ev.Pin, "i", "i"}[d.roll(3, "item")]
		if d.roll(2, "re-pin") == 1 {
			ev.RepinUser, ev.RepinPin = w.owned(d)
		}
	case events.PinDeleted:
		ev.User, ev.Pin = w.owned(d)
		if d.roll(3, "names the original") > 0 {
			ev.RepinUser, ev.RepinPin = w.owned(d)
		}
	case events.PinMoved:
		ev.Board = w.board(d)
		ev.User, ev.Pin = w.owned(d)
	case events.Reacted, events.Unreacted:
		ev.Item = [...]string{"i", "i", "p1", "8"}[d.roll(4, "item")]
		ev.Reaction = [...]string{"", "", "wow", "_bookmark"}[d.roll(4, "kind of reaction")]
		if d.roll(6, "names a pin") > 0 {
			ev.RepinUser, ev.RepinPin = w.owned(d)
		}
	case events.NotificationsSeen, events.NotificationsRead:
		const day = 24 * 3600 * 1_000_000
		// In history, about now, and in the future.
		ev.Read = [...]events.Micros{Start - 10, Start + 5, Start + 60, Start + day, Start + 2*day, 1 << 53}[d.roll(6, "time")]
		if ev.Kind == events.NotificationsRead && d.roll(3, "one group") > 0 {
			ev.Group = fmt.Sprint("r", Start/day+events.Micros(d.roll(3, "day")), ":p1")
		}
	default:
		return false
	}
	return true
}

// spreadOverDays makes a day pass, now and then.
func (w world) spreadOverDays(d dice, s *step) {
	if d.roll(12, "a day passes") == 11 {
		s.pause = 20 * 3600 * 1_000_000
	}
}
