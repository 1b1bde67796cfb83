package counters

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// relationCost folds some events one by one, and tells of the last how many rows about relations it changed, and how much it
// allocated: each row that a sweep meets is copied, so that tells how many it read.
func relationCost(t *testing.T, l *relationLog, last events.Event) (rows, allocations int) {
	t.Helper()
	s := relationStore(t, projections.Bounds{})
	defer s.Close()
	foldRelations(t, s, l.list)
	before := relationRows(t, s)
	l.add(last)
	var from, to runtime.MemStats
	runtime.ReadMemStats(&from)
	foldRelations(t, s, l.list[len(l.list)-1:])
	runtime.ReadMemStats(&to)
	after := relationRows(t, s)
	for key, value := range before {
		if now, ok := after[key]; !ok || now != value {
			rows++
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok {
			rows++
		}
	}
	return rows, int(to.Mallocs - from.Mallocs)
}

// TestRelationCost: what an event does costs the same whether there are few relations or many, unless it changes them.
func TestRelationCost(t *testing.T) {
	imported := func(kind events.Kind, board string, offset uint64) events.Event {
		return events.Event{Kind: kind, User: "ann", Peer: "bob", Board: board, Backfill: true, Source: "old", Offset: offset, Time: 5}
	}
	boards := func(l *relationLog, n int, kind events.Kind) {
		for i := range n {
			l.add(events.Event{Kind: kind, User: "ann", Peer: "bob", Board: fmt.Sprint(i)})
		}
	}
	for _, x := range []struct {
		name string
		make func(l *relationLog, n int)
		last events.Event
		rows int
	}{
		{"a follow of one with many followers", func(l *relationLog, n int) {
			for i := range n {
				l.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprint("fan", i), Peer: "bob"})
			}
		}, events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}, 4},
		{"a follow beside unfollowed boards", func(l *relationLog, n int) {
			boards(l, n, events.BoardUnfollowed)
		}, events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}, 3},
		{"a follow of a board beside many", func(l *relationLog, n int) {
			boards(l, n, events.BoardFollowed)
		}, events.Event{Kind: events.BoardFollowed, User: "ann", Peer: "bob"}, 6},
		{"an exclusion beside many", func(l *relationLog, n int) {
			l.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
			boards(l, n, events.BoardUnfollowed)
		}, events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob"}, 6},
		{"a repeated follow of one with excluded boards", func(l *relationLog, n int) {
			l.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
			boards(l, n, events.BoardUnfollowed)
		}, events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}, 0},
		{"an imported unfollow of one with followed boards", func(l *relationLog, n int) {
			boards(l, n, events.BoardFollowed)
		}, imported(events.UserUnfollowed, "", 1), 1},
		{"an imported block of one with boards that were followed before", func(l *relationLog, n int) {
			for i := range n {
				l.add(imported(events.BoardFollowed, fmt.Sprint(i), uint64(i+1)))
			}
			l.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
		}, imported(events.UserBlocked, "", 1), 3},
		{"the end of a board beside many", func(l *relationLog, n int) {
			boards(l, n, events.BoardFollowed)
			l.add(events.Event{Kind: events.BoardFollowed, User: "cid", Peer: "bob", Board: "last"})
		}, events.Event{Kind: events.BoardDeleted, User: "bob", Board: "last"}, 8},
	} {
		var rows, allocations [2]int
		for i, n := range []int{10, 3000} {
			l := &relationLog{}
			x.make(l, n)
			rows[i], allocations[i] = relationCost(t, l, x.last)
		}
		if rows[0] != x.rows || rows[1] != x.rows {
			t.Errorf("%s: changes %d and %d rows, want %d", x.name, rows[0], rows[1], x.rows)
		}
		if more := allocations[1] - allocations[0]; more > 500 {
			t.Errorf("%s: %d allocations beside few, %d beside many", x.name, allocations[0], allocations[1])
		}
	}
}
