package histories

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// playWeights are the weights of histories with [Options.Plays]: what users see, what is counted
// for items, and pins that show some of the items.
var playWeights = []weight{
	{events.Played, 32, true},
	{events.Served, 20, true},
	{events.SeenCleared, 4, false},
	{events.Reacted, 10, false},
	{events.Unreacted, 6, false},
	{events.ItemScored, 4, false},
	{events.PinCreated, 20, true},
	{events.PinMoved, 4, false},
	{events.PinDeleted, 7, false},
	{events.BoardDeleted, 3, false},
	{events.BoardCreated, 2, false},
	{events.UserDeleted, 1, false},
	{events.BackfillClosed, 1, false},
	{events.ItemHidden, 6, false},
	{events.ItemShown, 4, false},
}

// playedIDs has ids of every form. The first ones are drawn more often.
var playedIDs = [...]string{
	"i1", "7", "i2", "i3", "6ba7b812-9dad-11d1-80b4-00c04fd430c8", "i4", "42", "i5", "i6", "007", "i7", "i8",
	"18446744073709551615", "6ba7b813-9dad-11d1-80b4-00c04fd430c8",
}

const (
	hour events.Micros = 3600 * 1_000_000
	day                = 24 * hour
)

// playPauses are the pauses between envelopes. Some are so long that plays leave the window,
// because months pass within one history.
var playPauses = [...]events.Micros{
	0, 0, 0, 40, 40, 1_000_000, hour, hour, day, day, 7 * day, 7 * day, 7 * day, 31 * day, 31 * day, 182 * day,
}

// setPlayFields sets the fields of events about plays, serves and counts. It returns false for
// kinds that it does not know.
func (g generator) setPlayFields(d chooser, ev *events.Event) bool {
	switch ev.Kind {
	case events.Reacted, events.Unreacted:
		ev.Item = g.randomPlayedItem(d)
		if d.choose(2, "whose reaction") == 0 {
			ev.User, ev.Item = userIDs[0], playedIDs[0]
		}
		g.setReaction(d, ev)
	case events.Played, events.ItemHidden, events.ItemShown:
		ev.Item = g.randomPlayedItem(d)
	case events.Served:
		ev.Items = g.randomServedItems(d)
	case events.ItemScored:
		ev.User = ""
		ev.Item = g.randomPlayedItem(d)
		// Scores below those of all items that are played, zero, and among them with a half-life of
		// a day and of a second.
		ev.Score = [...]int64{-5, 0, 1_705_000_000 / 86400 * 65536, 1_705_000_000 * 65536}[d.choose(4, "score")]
	case events.PinCreated:
		g.setFeedFields(d, ev)
		if d.choose(4, "shows what is played") > 0 {
			ev.Item = g.randomPlayedItem(d)
		}
	case events.PinMoved, events.PinDeleted:
		return g.setFeedFields(d, ev)
	default:
		return false
	}
	return true
}

// setReaction sets the kind of a reaction, mostly a like, and sometimes the pin on which the user
// reacted.
func (g generator) setReaction(d chooser, ev *events.Event) {
	ev.Reaction = [...]string{"", "", "", "save", "_bookmark"}[d.choose(5, "reaction")]
	if d.choose(3, "on a pin") == 2 {
		ev.RepinUser, ev.RepinPin = g.randomUser(d), g.randomPin(d)
	}
}

// randomPlayedItem draws an item, the first ones more often.
func (generator) randomPlayedItem(d chooser) string {
	n := len(playedIDs)
	return playedIDs[min(d.choose(n, "item"), d.choose(n, "item"))]
}

// randomServedItems draws the items of one served event. Usually these are a few items, perhaps
// with repeats. Sometimes there are so many that they push all or nearly all earlier items out of
// the last hundred.
func (g generator) randomServedItems(d chooser) (items []string) {
	if d.choose(5, "many are served") < 4 {
		for range 1 + d.choose(4, "served") {
			items = append(items, g.randomPlayedItem(d))
		}
		return items
	}
	first := 20 * d.choose(6, "first served")
	for i := range [...]int{33, 60, 95, 100}[d.choose(4, "served")] {
		items = append(items, fmt.Sprint("s", first+i))
	}
	return items
}

// spreadOverMonths gives a step times over several months.
func (g generator) spreadOverMonths(d chooser, s *step) {
	s.pause = playPauses[d.choose(len(playPauses), "pause")]
	s.isEndOfMonth = d.choose(8, "end of the month") == 7
	if !s.event.Backfill || d.choose(4, "in a month") == 0 {
		return
	}
	if s.event.Kind == events.Served && d.choose(3, "at the time of others") == 2 {
		s.event.Time = Start - 10
		return
	}
	// The first moment of a month, its last, or one between.
	s.event.Time = [...]events.Micros{1, 0, 11*day + 5*hour}[d.choose(3, "time of the month")]
	s.monthsAgo = 1 + d.choose(9, "months ago")
}

// timeInMonth returns a time in an earlier month, but not after now. monthsAgo is 1 for the month
// of now, 2 for the month before it, and so on. elapsed is the time since the month began, where 1
// means its first moment and 0 its last.
func timeInMonth(now events.Micros, monthsAgo int, elapsed events.Micros) events.Micros {
	if elapsed == 0 {
		return min(monthStart(now, 2-monthsAgo)-1, now)
	}
	return min(monthStart(now, 1-monthsAgo)+elapsed-1, now)
}

// monthStart returns the first moment of the month that is the given number of months after the
// month of now.
func monthStart(now events.Micros, months int) events.Micros {
	t := now.Time()
	some := events.Micros(t.AddDate(0, months, 1-t.Day()).UnixMicro())
	return some - some%day
}
