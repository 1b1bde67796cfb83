package counters

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestPagesOfALargeBoard: a page of a board of 100 000 items reads as many rows as it has items, the hundredth as well, also
// where many scores have changed.
func TestPagesOfALargeBoard(t *testing.T) {
	const size = 50
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	l := newItemLog(t, DefaultSettings())
	defer l.close()
	var all []events.Event
	for i := range n {
		item := fmt.Sprint(i)
		all = append(all, creates("ann", item, "art", item), scores(item, int64(i*7919%n)))
	}
	l.addAll(all)
	art := "art"
	for _, s := range []Scope{{}, {Owner: "ann"}, {Owner: "ann", Board: &art}} {
		checkPages(t, l, s, size, 2*size)
	}
	// Every tenth gets another score near the top: what ended is passed over until it is dropped.
	all = all[:0]
	for i := range n / 10 {
		all = append(all, scores(fmt.Sprint(i*10), int64(n-1-i%100)))
	}
	l.addAll(all)
	l.pass(SessionLife + 1)
	plays := make([]events.Event, n/10/pruneMost+1)
	for i := range plays {
		plays[i] = events.Event{Kind: events.Played, User: "bob", Item: "another"}
	}
	l.addAll(plays)
	checkPages(t, l, Scope{Owner: "ann", Board: &art}, size, 2*size)
	if got := countRows(t, l.s); got[tagVersion] > n+40 || got[tagBoardTop] != n || got[tagEnded] > 40 {
		t.Errorf("rows by tag: %v", got)
	}
}

// checkPages reads a hundred pages, of which none reads more rows than told.
func checkPages(t *testing.T, l *itemLog, s Scope, size, most int) {
	t.Helper()
	v := viewOf(t, l.s)
	defer v.Close()
	q := Query(v)
	var after Mark
	var last *TrendingItem
	for i := range 100 {
		page, next, err := q.Hot(context.Background(), s, after, size)
		if err != nil || len(page) != size || next == nil || q.RowsRead() > most {
			t.Fatalf("page %d of %+v: %d items, %d rows read: %v", i, s, len(page), q.RowsRead(), err)
		}
		for _, h := range page {
			if last != nil && (h.Score > last.Score || h.Score == last.Score && events.CompareIDs(h.Item, last.Item) <= 0) {
				t.Fatalf("page %d of %+v: %v comes after %v", i, s, h, *last)
			}
			last = &h
		}
		after = next
	}
}

// countRows counts rows by tag.
func countRows(t *testing.T, s *projections.Store) map[projections.Tag]int {
	t.Helper()
	n := map[projections.Tag]int{}
	for key := range readRows(t, s) {
		n[tagOf([]byte(key))]++
	}
	return n
}

// TestItemOfManyPlays: 100 000 plays of one item are counted, and it moves seldom in the lists.
func TestItemOfManyPlays(t *testing.T) {
	const n = 100_000
	l := newItemLog(t, DefaultSettings())
	defer l.close()
	all := []events.Event{creates("ann", "p", "", "i")}
	for i := range n {
		all = append(all, events.Event{Kind: events.Played, User: fmt.Sprint("user", i%100), Item: "i"})
	}
	l.addAll(all)
	v := viewOf(t, l.s)
	defer v.Close()
	q := Query(v)
	item, err := q.Item("i")
	user, err2 := q.User("user7")
	if err != nil || err2 != nil || item != (ItemCounts{Plays: n}) || user.Plays != n/100 {
		t.Errorf("%+v, %+v: %v %v", item, user, err, err2)
	}
	// 16 versions a doubling, of which one envelope keeps the last.
	if rows := countRows(t, l.s); rows[tagVersion] > 16*17 || rows[tagOwnerTop] != rows[tagVersion] || rows[tagEnded] != rows[tagVersion]-1 {
		t.Errorf("rows by tag: %v", rows)
	}
	if got := list(t, q, Scope{Owner: "ann"}, 5); len(got) != 1 || q.RowsRead() > 16*17 {
		t.Errorf("list %v, %d rows read", got, q.RowsRead())
	}
}

// TestBoardAgain: a board of 10 000 pins is deleted, in steps, and made again with the same pins.
func TestBoardAgain(t *testing.T) {
	const n = 10_000
	art := "art"
	for _, bounds := range someBounds {
		l := newItemLog(t, DefaultSettings())
		l.s.Close()
		l.s = openStore(t, DefaultSettings(), bounds)
		check := func(when string, want int) {
			t.Helper()
			v := viewOf(t, l.s)
			defer v.Close()
			q := Query(v)
			board, err := q.Board("ann", "art")
			user, err2 := q.User("ann")
			if err != nil || err2 != nil || board.Pins != int64(want) || user.Pins != int64(want)+1 {
				t.Errorf("%s: %+v, %+v: %v %v", when, board, user, err, err2)
			}
			if got := list(t, q, Scope{Owner: "ann", Board: &art}, 1000); len(got) != want/2 {
				t.Errorf("%s: the list of the board has %d items", when, len(got))
			}
			if got := list(t, q, Scope{Owner: "ann"}, 1000); len(got) != want/2+1 {
				t.Errorf("%s: the list of the owner has %d items", when, len(got))
			}
			if got := list(t, q, Scope{}, 1000); len(got) != n/2+1 {
				t.Errorf("%s: everybody's list has %d items", when, len(got))
			}
		}
		pins := []events.Event{creates("ann", "elsewhere", "", "x")}
		for i := range n {
			pins = append(pins, creates("ann", fmt.Sprint(i), art, fmt.Sprint(i)))
		}
		l.addAll(pins)
		l.add(scores("x", -1))
		for i := range n / 2 {
			pins = append(pins, scores(fmt.Sprint(2*i), int64(i)))
		}
		l.addAll(pins[n+1:])
		check("made", n)
		l.add(events.Event{Kind: events.BoardDeleted, User: "ann", Board: art})
		check("deleted", 0)
		l.add(events.Event{Kind: events.BoardCreated, User: "ann", Board: art})
		l.addAll(pins[:n+1])
		check("made again", n)
		l.close()
	}
}

// TestPinsAgain: a pin that is deleted and created again, each time to show another item and as a re-pin.
func TestPinsAgain(t *testing.T) {
	l := newItemLog(t, DefaultSettings())
	defer l.close()
	l.add(scores("i0", 5), scores("i1", 6))
	for i := range 10 {
		pin := creates("ann", "p", "", fmt.Sprint("i", i%2))
		pin.RepinUser, pin.RepinPin = "bob", "q"
		l.add(pin)
		l.add(pin) // it lives
		if got, _ := l.page(Scope{Owner: "ann"}, nil, 5); len(got) != 1 || got[0].Item != pin.Item {
			t.Errorf("%d: %v", i, got)
		}
		l.add(events.Event{Kind: events.PinDeleted, User: "ann", Pin: "p"})
		if got, _ := l.page(Scope{Owner: "ann"}, nil, 5); len(got) != 0 {
			t.Errorf("%d, deleted: %v", i, got)
		}
	}
	v := viewOf(t, l.s)
	defer v.Close()
	for _, id := range []string{"i0", "i1"} {
		if got, err := Query(v).Item(id); err != nil || got != (ItemCounts{Repins: 5}) {
			t.Errorf("%s: %+v: %v", id, got, err)
		}
	}
}

// TestDeadRowsAreDropped: versions that ended more than an hour ago go, also those of items that nobody touches any more, by
// whatever is folded then.
func TestDeadRowsAreDropped(t *testing.T) {
	const n = 2000
	for _, widespread := range []int{1, 64} {
		set := DefaultSettings()
		set.Widespread = widespread
		l := newItemLog(t, set)
		var all []events.Event
		for i := range n {
			all = append(all, creates("ann", fmt.Sprint(i), "a", fmt.Sprint(i)))
			if i%3 == 0 {
				all = append(all, creates("bob", fmt.Sprint(i), "b", fmt.Sprint(i)))
			}
		}
		l.addAll(all)
		for round := range 5 {
			all = all[:0]
			for i := range n {
				all = append(all, scores(fmt.Sprint(i), int64(i-round*n-1)))
			}
			l.addAll(all)
		}
		if got := countRows(t, l.s); got[tagVersion] != 5*n || got[tagEnded] != 4*n || got[tagTop] != 5*n {
			t.Errorf("widespread %d: rows by tag: %v", widespread, got)
		}
		l.pass(SessionLife + 1)
		follows := make([]events.Event, 4*n/pruneMost+1)
		for i := range follows {
			follows[i] = events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}
		}
		l.addAll(follows[:10])
		if got := countRows(t, l.s); got[tagEnded] != 4*n-10*pruneMost {
			t.Errorf("widespread %d: after ten events %v", widespread, got)
		}
		l.addAll(follows)
		got := countRows(t, l.s)
		if got[tagVersion] != n || got[tagEnded] != 0 || got[tagFirstEnded] != 0 || got[tagTop] != n {
			t.Errorf("widespread %d: at last %v", widespread, got)
		}
		if page, _ := l.page(Scope{Owner: "bob"}, nil, 1); !slices.Equal(page, []TrendingItem{{"1998", 1998 - 4*n - 1}}) {
			t.Errorf("widespread %d: %v", widespread, page)
		}
		l.close()
	}
}

// TestWidespreadCosts: an item on 10 000 boards gets another score by a few rows, whoever has how many such items pays for them
// on a page, and an item on the threshold is written once.
func TestWidespreadCosts(t *testing.T) {
	l := newItemLog(t, DefaultSettings())
	defer l.close()
	var all []events.Event
	for i := range 10_000 {
		all = append(all, creates(fmt.Sprint("user", i), "p", "", "viral"))
	}
	for i := range 200 {
		all = append(all, creates("user7", fmt.Sprint(i), "", fmt.Sprint(i)), scores(fmt.Sprint(i), int64(i)))
	}
	l.addAll(append(all, scores("viral", 100)))
	changed := func(ev events.Event) (n int) {
		before := readRows(t, l.s)
		l.add(ev)
		after := readRows(t, l.s)
		for key, value := range after {
			if was, ok := before[key]; !ok || was != value {
				n++
			}
			delete(before, key)
		}
		return n + len(before)
	}
	if n := changed(scores("viral", 150)); n > 8 {
		t.Errorf("a score changes %d rows", n)
	}
	if n := changed(events.Event{Kind: events.PinDeleted, User: "user9999", Pin: "p"}); n > 10 {
		t.Errorf("a pin that goes changes %d rows", n)
	}
	v := viewOf(t, l.s)
	defer v.Close()
	q := Query(v)
	page, _, err := q.Hot(context.Background(), Scope{Owner: "user7"}, nil, 55)
	if err != nil || len(page) != 55 || page[49] != (TrendingItem{"150", 150}) || page[50] != (TrendingItem{"viral", 150}) || q.RowsRead() > 60 {
		t.Errorf("%d rows read for %v: %v", q.RowsRead(), page, err)
	}
}

// TestThreshold: an item becomes widespread above the threshold, and is it until no more than half as many boards show it.
func TestThreshold(t *testing.T) {
	set := DefaultSettings()
	set.Widespread = 4
	l := newItemLog(t, set)
	defer l.close()
	l.add(scores("i", 1))
	l.add(scores("i", 2))
	board := func(i int) string { return fmt.Sprint("b", i) }
	wide := func(boards int, want bool) {
		t.Helper()
		rows := countRows(t, l.s)
		if got := rows[tagBoardTop]; want && got != boards || !want && got != 2*boards {
			t.Errorf("on %d boards, widespread %v: %d rows in their lists", boards, want, got)
		}
		for i := range boards {
			name := board(i)
			if page, _ := l.page(Scope{Owner: "ann", Board: &name}, nil, 5); !slices.Equal(page, []TrendingItem{{"i", 2}}) {
				t.Errorf("on %d boards: the list of %s is %v", boards, name, page)
			}
		}
	}
	for i := range 6 {
		l.add(creates("ann", fmt.Sprint("p", i), board(i), "i"))
		wide(i+1, i+1 > 4)
	}
	for i := 5; i > 0; i-- {
		l.add(events.Event{Kind: events.PinDeleted, User: "ann", Pin: fmt.Sprint("p", i)})
		wide(i, i > 2)
	}
	l.add(creates("ann", "p1", board(1), "i"), creates("ann", "p2", board(2), "i"), creates("ann", "p3", board(3), "i"))
	wide(4, false)
}
