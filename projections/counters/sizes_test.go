package counters

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// A page of a board with 100,000 items reads two rows per item: the entry, and whether a pin shows
// it. The hundredth page reads no more, even where many scores have changed.
func TestPagesOfLargeBoardReadFewRows(t *testing.T) {
	const size = 50
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	l := newItemLog(t, defaultSizes())
	defer l.close()
	var all []events.Event
	for i := range n {
		item := fmt.Sprint(i)
		all = append(all, creates("ann", item, "art", item), scores(item, int64(i*7919%n)))
	}
	l.addAll(all)
	art := "art"
	for _, s := range []Scope{{}, {Owner: "ann"}, {Owner: "ann", Board: &art}} {
		checkPages(t, l, s, size, 3*size)
	}
	// Every tenth gets another score near the top: what ended is passed over until it is dropped.
	all = all[:0]
	for i := range n / 10 {
		all = append(all, scores(fmt.Sprint(i*10), int64(n-1-i%100)))
	}
	l.addAll(all)
	l.advanceTime(SessionLifetime + 1)
	all = all[:0]
	for i := range n / 10 {
		all = append(all, plays(fmt.Sprint(i*10)))
	}
	l.addAll(all)
	checkPages(t, l, Scope{Owner: "ann", Board: &art}, size, 3*size)
	if got := countRows(t, l.s); got[tagItem] != n || got[tagOwnerList] != n || got[tagEndedVersion] != 0 {
		t.Errorf("rows by tag: %v", got)
	}
}

func plays(item string) events.Event {
	return events.Event{Kind: events.Played, User: "bob", Item: item}
}

// checkPages reads a hundred pages, and checks their order and that none reads more than most rows.
func checkPages(t *testing.T, l *itemLog, s Scope, size, most int) {
	t.Helper()
	v := viewOf(t, l.s)
	defer v.Close()
	q := NewQueries(v)
	var after PageCursor
	var last *TrendingItem
	for i := range 100 {
		page, next, err := q.Trending(context.Background(), s, after, size)
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
func countRows(t *testing.T, s *store.Store) map[projections.Tag]int {
	t.Helper()
	n := map[projections.Tag]int{}
	for key := range readRows(t, s) {
		n[tagOfKey([]byte(key))]++
	}
	return n
}

// 100,000 plays of one item are all counted, and the item seldom moves in the lists.
func TestManyPlaysWriteFewVersions(t *testing.T) {
	const n = 100_000
	set := defaultSizes()
	set.maxPinsByName, set.maxComputedPins, set.maxRowsPerPin = 0, 0, 0
	l := newItemLog(t, set)
	defer l.close()
	all := []events.Event{creates("ann", "p", "", "i")}
	for i := range n {
		all = append(all, events.Event{Kind: events.Played, User: fmt.Sprint("user", i%100), Item: "i"})
	}
	l.addAll(all)
	v := viewOf(t, l.s)
	defer v.Close()
	q := set.query(v)
	item, err := q.ItemCounts("i")
	user, err2 := q.UserCounts("user7")
	if err != nil || err2 != nil || item != (ItemCounts{Plays: n}) || user.Plays != n/100 {
		t.Errorf("%+v, %+v: %v %v", item, user, err, err2)
	}
	// 4 versions a doubling, of which one envelope keeps the last.
	if rows := countRows(t, l.s); rows[tagOwnerList] > 4*17 || rows[tagEndedVersion] != rows[tagOwnerList]-1 {
		t.Errorf("rows by tag: %v", rows)
	}
	if got := readList(t, q, Scope{Owner: "ann"}, 5); len(got) != 1 || q.RowsRead() > 4*17 {
		t.Errorf("list %v, %d rows read", got, q.RowsRead())
	}
}

// A board of 10,000 pins is deleted, in steps, and created again with the same pins.
func TestLargeBoardIsDeletedAndCreatedAgain(t *testing.T) {
	const n = 10_000
	art := "art"
	for _, bounds := range someBounds {
		l := newItemLog(t, defaultSizes())
		l.s.Close()
		l.s = openStore(t, defaultSizes(), bounds)
		check := func(when string, want int) {
			t.Helper()
			v := viewOf(t, l.s)
			defer v.Close()
			q := NewQueries(v)
			board, err := q.BoardPins("ann", "art")
			user, err2 := q.UserCounts("ann")
			if err != nil || err2 != nil || board != int64(want) || user.Pins != int64(want)+1 {
				t.Errorf("%s: %+v, %+v: %v %v", when, board, user, err, err2)
			}
			if got := readList(t, q, Scope{Owner: "ann", Board: &art}, 1000); len(got) != want/2 {
				t.Errorf("%s: the list of the board has %d items", when, len(got))
			}
			if got := readList(t, q, Scope{Owner: "ann"}, 1000); len(got) != want/2+1 {
				t.Errorf("%s: the list of the owner has %d items", when, len(got))
			}
			if got := readList(t, q, Scope{}, 1000); len(got) != n/2+1 {
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

// A pin that is deleted and created again counts as one re-pin of each item that it showed.
func TestRecreatedPinCountsOneRepinPerItem(t *testing.T) {
	l := newItemLog(t, defaultSizes())
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
		if got, err := NewQueries(v).ItemCounts(id); err != nil || got != (ItemCounts{Repins: 1}) {
			t.Errorf("%s: %+v: %v", id, got, err)
		}
	}
}

// Versions that ended more than an hour ago are dropped by the next events about any item of their
// partition, even if there is none about their own item.
func TestExpiredVersionsAreDropped(t *testing.T) {
	const n = 2000
	for _, named := range []int{0, 1, 64} {
		set := defaultSizes()
		set.maxPinsByName = named
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
		if got := countRows(t, l.s); got[tagEndedVersion] != 4*n || got[tagGlobalList] != 5*n {
			t.Errorf("named %d: rows by tag: %v", named, got)
		}
		l.advanceTime(SessionLifetime + 1)
		all = all[:0]
		for i := range n {
			all = append(all, plays(fmt.Sprint(i)))
		}
		l.addAll(all[:10])
		if got := countRows(t, l.s); got[tagEndedVersion] != 4*n-10*maxDropsPerEvent {
			t.Errorf("named %d: after ten events %v", named, got)
		}
		l.addAll(all[10:])
		got := countRows(t, l.s)
		if got[tagEndedVersion] != 0 || got[tagGlobalList] != n {
			t.Errorf("named %d: at last %v", named, got)
		}
		if page, _ := l.page(Scope{Owner: "bob"}, nil, 1); !slices.Equal(page, []TrendingItem{{"1998", 1998 - 4*n - 1}}) {
			t.Errorf("named %d: %v", named, page)
		}
		l.close()
	}
}

// A new score of an item that 10,000 owners show writes few rows: short lists have the item by
// name, and only a limited number of long ones have it by score.
func TestScoreChangeWritesFewRows(t *testing.T) {
	for _, set := range everyWay() {
		l := newItemLog(t, set)
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
		most := 5 // the item, its queue and everybody's list
		if set.maxPinsByName < 64 {
			most += 2 * maxListsByScore
		}
		if n := changed(scores("viral", 150)); n > most {
			t.Errorf("%+v: a score changes %d rows", set, n)
		}
		if n := changed(events.Event{Kind: events.PinDeleted, User: "user9999", Pin: "p"}); n > 5 {
			t.Errorf("%+v: a pin that goes changes %d rows", set, n)
		}
		v := viewOf(t, l.s)
		q := set.query(v)
		page, _, err := q.Trending(context.Background(), Scope{Owner: "user7"}, nil, 55)
		if err != nil || len(page) != 55 || page[49] != (TrendingItem{"150", 150}) || page[50] != (TrendingItem{"viral", 150}) || q.RowsRead() > 3*201 {
			t.Errorf("%+v: %d rows read for %v: %v", set, q.RowsRead(), page, err)
		}
		v.Close()
		l.close()
	}
}

// neighbors returns n items of one partition.
func neighbors(n int) (items []string) {
	for i := 0; len(items) < n; i++ {
		if item := fmt.Sprint("item", i); itemPartition(item) == 7 {
			items = append(items, item)
		}
	}
	return items
}

// entries counts the entries by name and by score in all lists of owners.
func entries(t *testing.T, s *store.Store) (byName, byScore int) {
	t.Helper()
	for key := range readRows(t, s) {
		if tagOfKey([]byte(key)) != tagOwnerList {
			continue
		}
		if _, rest, err := events.CutID([]byte(key)[3:]); err != nil {
			t.Fatal(err)
		} else if rest[0] == entryByName {
			byName++
		} else {
			byScore++
		}
	}
	return byName, byScore
}

// The list of an owner has items by name while few of the owner's pins named items of their
// partition. After that it has all of them by score, with all versions, in whatever order they
// came, until the owner is deleted.
func TestManyPinsInPartitionAreListedByScore(t *testing.T) {
	set := defaultSizes()
	set.maxComputedPins, set.maxRowsPerPin = 0, 0
	l := newItemLog(t, set)
	defer l.close()
	items := neighbors(6)
	for i, item := range items {
		l.add(scores(item, 1))
		l.add(scores(item, int64(100-i)))
		l.add(creates("ann", item, "", item), creates("bob", fmt.Sprint(i), "", items[0]))
		wantName, wantScore := i+1, 0
		if wantName > maxPinsByName {
			wantName, wantScore = 0, 2*wantName
		}
		// Those of bob are pins of one item.
		if i+1 > maxPinsByName {
			wantScore += 2
		} else {
			wantName++
		}
		if byName, byScore := entries(t, l.s); byName != wantName || byScore != wantScore {
			t.Errorf("%d items: %d entries by name, %d by score", i+1, byName, byScore)
		}
		if page, _ := l.page(Scope{Owner: "ann"}, nil, 10); len(page) != i+1 || page[0] != (TrendingItem{items[0], 100}) {
			t.Errorf("%d items: %v", i+1, page)
		}
	}
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"}, events.Event{Kind: events.UserDeleted, User: "bob"})
	if byName, byScore := entries(t, l.s); byName != 0 || byScore != 0 {
		t.Errorf("%d and %d entries of users who are gone", byName, byScore)
	}
	l.add(creates("ann", "p", "", items[0]))
	if byName, byScore := entries(t, l.s); byName != 1 || byScore != 0 {
		t.Errorf("begun again, %d entries by name, %d by score", byName, byScore)
	}
}

// An item that the largest number of lists have by score is in further lists by name, until there
// is room.
func TestItemIsListedByScoreInLimitedLists(t *testing.T) {
	set := defaultSizes()
	set.maxPinsByName, set.maxListsByScore, set.maxComputedPins = 0, 2, 0
	l := newItemLog(t, set)
	defer l.close()
	l.add(scores("i", 5))
	check := func(when string, wantName, wantScore int) {
		t.Helper()
		if byName, byScore := entries(t, l.s); byName != wantName || byScore != wantScore {
			t.Errorf("%s: %d entries by name, %d by score", when, byName, byScore)
		}
		if page, _ := l.page(Scope{Owner: "cid"}, nil, 10); !slices.Equal(page, []TrendingItem{{"i", 5}}) {
			t.Errorf("%s: the list of cid is %v", when, page)
		}
	}
	l.add(creates("ann", "p", "", "i"), creates("bob", "p", "", "i"), creates("cid", "p", "", "i"))
	check("three", 1, 2)
	l.add(creates("cid", "q", "", "i"))
	check("another pin", 1, 2)
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("one less", 1, 1)
	l.add(creates("cid", "r", "", "i"))
	check("there is room", 0, 2)
}

// If most items that an owner ever named are not shown, or are on other boards, a page costs no
// more than a few lookups for each pin.
func TestPageCostIsBoundedWhenFewItemsAreShown(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	const n = 300
	var all []events.Event
	for i := range 10 * n {
		item := fmt.Sprint(i)
		all = append(all, creates("ann", item, "old", item), scores(item, int64(20*n-i)))
	}
	for i := range n {
		item := fmt.Sprint("new", i)
		all = append(all, creates("ann", item, "new", item), scores(item, int64(n-i)))
	}
	l.addAll(all)
	board := "new"
	check := func(s Scope) {
		t.Helper()
		v := viewOf(t, l.s)
		defer v.Close()
		q := NewQueries(v)
		page, _, err := q.Trending(context.Background(), s, nil, 10)
		if err != nil || len(page) != 10 || page[9] != (TrendingItem{"new9", n - 9}) || q.RowsRead() > (maxRowsPerPin+3)*n {
			t.Errorf("%d rows read for %v: %v", q.RowsRead(), page, err)
		}
	}
	check(Scope{Owner: "ann", Board: &board})
	l.add(events.Event{Kind: events.BoardDeleted, User: "ann", Board: "old"})
	check(Scope{Owner: "ann"})
}
