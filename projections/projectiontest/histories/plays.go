package histories

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// playWeights are those of histories with [Options.Plays]: what users see and what is counted of items, and as many pins as
// show some of them.
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

// playedIDs are of every form. Early ones are drawn more often.
var playedIDs = [...]string{
	"i1", "7", "i2", "i3", "6ba7b812-9dad-11d1-80b4-00c04fd430c8", "i4", "42", "i5", "i6", "007", "i7", "i8",
	"18446744073709551615", "6ba7b813-9dad-11d1-80b4-00c04fd430c8",
}

const (
	hour events.Micros = 3600 * 1_000_000
	day                = 24 * hour
)

// playPauses are some moments, and as long as it takes for plays to grow old: months pass within one history.
var playPauses = [...]events.Micros{
	0, 0, 0, 40, 40, 1_000_000, hour, hour, day, day, 7 * day, 7 * day, 7 * day, 31 * day, 31 * day, 182 * day,
}

// setPlayFields fills in what is played, served and counted. It returns false for the kinds about which it knows nothing.
func (w world) setPlayFields(d chooser, ev *events.Event) bool {
	switch ev.Kind {
	case events.Reacted, events.Unreacted:
		ev.Item = w.randomPlayedItem(d)
		if d.choose(2, "whose reaction") == 0 {
			ev.User, ev.Item = userIDs[0], playedIDs[0]
		}
		w.setReaction(d, ev)
	case events.Played, events.ItemHidden, events.ItemShown:
		ev.Item = w.randomPlayedItem(d)
	case events.Served:
		ev.Items = w.randomServedItems(d)
	case events.ItemScored:
		ev.User = ""
		ev.Item = w.randomPlayedItem(d)
		// Below those of all items that are played, none, and among them with a half-life of a day and of a second.
		ev.Score = [...]int64{-5, 0, 1_705_000_000 / 86400 * 65536, 1_705_000_000 * 65536}[d.choose(4, "score")]
	case events.PinCreated:
		w.setFeedFields(d, ev)
		if d.choose(4, "shows what is played") > 0 {
			ev.Item = w.randomPlayedItem(d)
		}
	case events.PinMoved, events.PinDeleted:
		return w.setFeedFields(d, ev)
	default:
		return false
	}
	return true
}

// setReaction draws the kind of a reaction, mostly a like, and sometimes the pin on which the user reacted.
func (w world) setReaction(d chooser, ev *events.Event) {
	ev.Reaction = [...]string{"", "", "", "save", "_bookmark"}[d.choose(5, "reaction")]
	if d.choose(3, "on a pin") == 2 {
		ev.RepinUser, ev.RepinPin = w.randomUser(d), w.randomPin(d)
	}
}

// randomPlayedItem draws an item, early ones more often.
func (world) randomPlayedItem(d chooser) string {
	n := len(playedIDs)
	return playedIDs[min(d.choose(n, "item"), d.choose(n, "item"))]
}

// randomServedItems draws what is served at once: usually a few items, the same again among them; now and then so many that those of
// before fall out of the last hundred, or nearly.
func (w world) randomServedItems(d chooser) (items []string) {
	if d.choose(5, "many are served") < 4 {
		for range 1 + d.choose(4, "served") {
			items = append(items, w.randomPlayedItem(d))
		}
		return items
	}
	first := 20 * d.choose(6, "first served")
	for i := range [...]int{33, 60, 95, 100}[d.choose(4, "served")] {
		items = append(items, fmt.Sprint("s", first+i))
	}
	return items
}

// spreadOverMonths gives a step the times of a history with months.
func (w world) spreadOverMonths(d chooser, s *step) {
	s.pause = playPauses[d.choose(len(playPauses), "pause")]
	s.isEndOfMonth = d.choose(8, "eve") == 7
	if !s.event.Backfill || d.choose(4, "in a month") == 0 {
		return
	}
	if s.event.Kind == events.Served && d.choose(3, "at the time of others") == 2 {
		s.event.Time = Start - 10
		return
	}
	// As many months ago, at its first moment, its last or between.
	s.event.Time = [...]events.Micros{1, 0, 11*day + 5*hour}[d.choose(3, "time of the month")]
	s.monthsAgo = 1 + d.choose(9, "months ago")
}

// timeInMonth returns the time of a backfill that occurred some months ago, counted from 1 for the month of now: elapsed is what
// is past of the month, 1 for its first moment, 0 for its last.
func timeInMonth(now events.Micros, monthsAgo int, elapsed events.Micros) events.Micros {
	if elapsed == 0 {
		return min(monthStart(now, 2-monthsAgo)-1, now)
	}
	return min(monthStart(now, 1-monthsAgo)+elapsed-1, now)
}

// monthStart returns the first moment of the month that is some months from that of a time.
func monthStart(now events.Micros, months int) events.Micros {
	t := now.Time()
	some := events.Micros(t.AddDate(0, months, 1-t.Day()).UnixMicro())
	return some - some%day
}
