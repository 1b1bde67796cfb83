package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// ServedItems is the greatest number of items that [Graph.Served] returns.
const ServedItems = 100

// isSeenKind reports whether events of a kind decide what the acting user has seen.
func isSeenKind(k events.Kind) bool { return k == events.Played || k == events.Served }

// isCleared reports whether a seen_cleared has removed the play or serve at an index of the log. A
// live one is removed by a later seen_cleared, and a backfill by any seen_cleared of its user.
func isCleared(log []loggedEvent, at int) bool {
	ev := &log[at]
	return isSeenKind(ev.Kind) && (hasClearing(log[at+1:], ev.User) || ev.Backfill && hasClearing(log[:at], ev.User))
}

// hasClearing reports whether a part of the log has a seen_cleared of the user.
func hasClearing(log []loggedEvent, user string) bool {
	for i := range log {
		if ev := &log[i]; ev.Kind == events.SeenCleared && ev.User == user {
			return true
		}
	}
	return false
}

// countedSeen returns the plays or the serves of a user that no seen_cleared has removed.
func (g *Graph) countedSeen(user string, k events.Kind) facts {
	return g.seenFacts[user].of(k).where(func(f *fact) bool { return !f.isCleared })
}

// monthNumber returns the number of a calendar month in UTC. The numbers of consecutive months are
// consecutive.
func monthNumber(t events.Micros) int {
	year, month, _ := t.Time().Date()
	return 12*year + int(month)
}

// Played returns the items that a user has played in a window of some months. The window ends with
// the month of now, the log time of the position.
func (g *Graph) Played(user string, now events.Micros, window int) map[string]bool {
	played := map[string]bool{}
	for _, f := range g.countedSeen(user, events.Played) {
		if m := monthNumber(f.Time); monthNumber(now)-window < m && m <= monthNumber(now) {
			played[f.Item] = true
		}
	}
	return played
}

// serve is one item of a served event, with its index in the event.
type serve struct {
	*fact
	index int
	item  string
}

// Served returns the items that a user was served last, the newest first. Each item stands only
// where it was served last.
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

// compareServes puts the newer one of two serves first. Live serves come before backfilled ones.
// Live serves are ordered by the log, backfilled ones by time, and the items of one event by index.
// Backfilled serves of the same time are ordered by index and id, because their order of arrival
// must not matter.
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
