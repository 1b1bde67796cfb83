package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// ServedItems is how many items [Graph.Served] lists at most.
const ServedItems = 100

// isSeenKind reports whether facts of a kind decide what the acting user has seen.
func isSeenKind(k events.Kind) bool { return k == events.Played || k == events.Served }

// isCleared reports whether the play or serve at an index of the log says nothing about what its user has seen, because the
// user's seen were cleared: later, or, if it is a backfill, at any time.
func isCleared(log []loggedEvent, at int) bool {
	ev := log[at]
	return isSeenKind(ev.Kind) && (hasClearing(log[at+1:], ev.User) || ev.Backfill && hasClearing(log[:at], ev.User))
}

// hasClearing reports whether the seen of a user is cleared in a part of the log.
func hasClearing(log []loggedEvent, user string) bool {
	return slices.ContainsFunc(log, func(ev loggedEvent) bool { return ev.Kind == events.SeenCleared && ev.User == user })
}

// countedSeen returns what says what a user has seen: the plays or serves that nothing has emptied.
func (g *Graph) countedSeen(user string, k events.Kind) facts {
	return g.seenFacts[user].of(k).where(func(f *fact) bool { return !f.isCleared })
}

// monthNumber numbers the months of the calendar in UTC.
func monthNumber(t events.Micros) int {
	year, month, _ := t.Time().Date()
	return 12*year + int(month)
}

// Played reports which items a user has played in a window of some months that ends with that of the time now: the log time
// of the position.
func (g *Graph) Played(user string, now events.Micros, window int) map[string]bool {
	played := map[string]bool{}
	for _, f := range g.countedSeen(user, events.Played) {
		if m := monthNumber(f.Time); monthNumber(now)-window < m && m <= monthNumber(now) {
			played[f.Item] = true
		}
	}
	return played
}

// serve is one item of a serve, and its index there.
type serve struct {
	*fact
	index int
	item  string
}

// Served lists the items that a user was served last, each where it was served last, newest first.
func (g *Graph) Served(user string) []string {
	var serves []serve
	for _, f := range g.countedSeen(user, events.Served) {
		for index, item := range f.Items {
			serves = append(serves, serve{f, index, item})
		}
	}
	slices.SortFunc(serves, compareServes)
	var items []string
	for _, s := range serves {
		if len(items) < ServedItems && !slices.Contains(items, s.item) {
			items = append(items, s.item)
		}
	}
	return items
}

// compareServes puts the newer of two first: live serves before backfilled ones, live ones by log order, backfilled ones by
// time, and the first item of a serve before the next. Which of two backfilled serves of one moment arrived first says
// nothing, so their items stand by index and id.
func compareServes(x, y serve) int {
	switch {
	case x.Backfill && y.Backfill:
		return cmp.Or(cmp.Compare(y.Time, x.Time), cmp.Compare(x.index, y.index), events.CompareIDs(x.item, y.item))
	case x.Backfill:
		return 1
	case y.Backfill:
		return -1
	}
	return cmp.Or(cmp.Compare(y.rank, x.rank), cmp.Compare(x.index, y.index))
}
