package counters

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// TestPagesOfLargeBoardReadFewRows checks that a page of a board with 100,000 items reads two rows
// per item: the entry, and whether a pin shows it. The hundredth page must read no more, even where
// many scores have changed.
func TestPagesOfLargeBoardReadFewRows(t *testing.T) {
	const size = 50
	n := 100_000
	if testing.Short() {
		n = 6000 // a hundred pages have 5000 items
	}
	l := newItemLog(t, defaultSizes())
	defer l.close()

	var all []events.Event
	for i := range n {
		item := fmt.Sprint(i)
		all = append(all, newPinCreated("ann", item, "art", item), newItemScored(item, int64(i*7919%n)))
	}
	l.addAll(all)

	art := "art"
	for _, s := range []Scope{{}, {Owner: "ann"}, {Owner: "ann", Board: &art}} {
		checkPages(t, l, s, size, 3*size)
	}

	// Every tenth item gets another score near the top. Reads skip ended versions until they are dropped.
	all = all[:0]
	for i := range n / 10 {
		all = append(all, newItemScored(fmt.Sprint(i*10), int64(n-1-i%100)))
	}
	l.addAll(all)

	// More than an hour later, plays drop the ended versions.
	l.advanceTime(SessionLifetime + 1)
	all = all[:0]
	for i := range n / 10 {
		all = append(all, newPlayed(fmt.Sprint(i*10)))
	}
	l.addAll(all)
	checkPages(t, l, Scope{Owner: "ann", Board: &art}, size, 3*size)

	got := countRows(t, l.s)
	if got[tagItem] != n || got[tagOwnerList] != n {
		t.Errorf("got %v rows by tag, want %d items and %d entries of the owner's list", got, n, n)
	}
	if got[tagEndedVersion] != 0 {
		t.Errorf("got %d ended versions after the plays, want none", got[tagEndedVersion])
	}
}

func newPlayed(item string) events.Event {
	return events.Event{Kind: events.Played, User: "bob", Item: item}
}

// checkPages reads a hundred pages, and checks their order and that none reads more than maxRows
// rows.
func checkPages(t *testing.T, l *itemLog, s Scope, size, maxRows int) {
	t.Helper()
	v := mustView(t, l.s)
	defer v.Close()
	q := NewQueries(v)

	var after PageCursor
	var last *TrendingItem
	for i := range 100 {
		page, next, err := q.Trending(context.Background(), s, after, size)
		if err != nil {
			t.Fatalf("page %d of %+v: %v", i, s, err)
		}
		if len(page) != size || next == nil {
			t.Fatalf("page %d of %+v: got %d items and page cursor %x, want %d items and a next page", i, s, len(page), next, size)
		}
		if q.RowsRead() > maxRows {
			t.Fatalf("page %d of %+v: %d rows read, want at most %d", i, s, q.RowsRead(), maxRows)
		}

		for _, h := range page {
			if last != nil && (h.Score > last.Score || h.Score == last.Score && events.CompareIDs(h.Item, last.Item) <= 0) {
				t.Fatalf("page %d of %+v: %v comes after %v, want the highest score first, then the lowest id", i, s, h, *last)
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

// TestManyPlaysWriteFewVersions checks that 100,000 plays of one item are all counted, and that the
// item seldom moves in the lists.
func TestManyPlaysWriteFewVersions(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	set := defaultSizes()
	set.maxPinsByName = 0
	set.maxComputedPins = 0
	set.maxRowsPerPin = 0
	l := newItemLog(t, set)
	defer l.close()

	all := []events.Event{newPinCreated("ann", "p", "", "i")}
	for i := range n {
		all = append(all, events.Event{Kind: events.Played, User: fmt.Sprint("user", i%100), Item: "i"})
	}
	l.addAll(all)

	v := mustView(t, l.s)
	defer v.Close()
	q := set.query(v)
	item, err := q.ItemCounts("i")
	if err != nil {
		t.Fatal(err)
	}
	if want := (ItemCounts{Plays: int64(n)}); item != want {
		t.Errorf("got counts %+v of the item, want %+v", item, want)
	}
	user, err := q.UserCounts("user7")
	if err != nil {
		t.Fatal(err)
	}
	if user.Plays != int64(n/100) {
		t.Errorf("got counts %+v of a user, want %d plays", user, n/100)
	}

	// There are 4 versions per doubling, and one envelope keeps only the last.
	maxVersions := 4 * bits.Len(uint(n))
	rows := countRows(t, l.s)
	if rows[tagOwnerList] > maxVersions {
		t.Errorf("got %d entries of the owner's list, want at most %d", rows[tagOwnerList], maxVersions)
	}
	if rows[tagEndedVersion] != rows[tagOwnerList]-1 {
		t.Errorf("got %d ended versions, want %d, all entries but one", rows[tagEndedVersion], rows[tagOwnerList]-1)
	}
	if got := readList(t, q, Scope{Owner: "ann"}, 5); len(got) != 1 || q.RowsRead() > maxVersions {
		t.Errorf("got the list %v with %d rows read, want one item and at most %d rows", got, q.RowsRead(), maxVersions)
	}
}

// TestLargeBoardIsDeletedAndCreatedAgain deletes a board of 10,000 pins, in steps, and creates it
// again with the same pins.
func TestLargeBoardIsDeletedAndCreatedAgain(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 3000
	}
	art := "art"
	for _, bounds := range someBounds {
		l := newItemLog(t, defaultSizes())
		l.s.Close()
		l.s = openStore(t, defaultSizes(), bounds)
		// check compares the counts and lists with those of a board of want pins, and of one pin
		// besides. The board's pins with even numbers show the items that have scores.
		check := func(when string, want int) {
			t.Helper()
			v := mustView(t, l.s)
			defer v.Close()
			q := NewQueries(v)
			board, err := q.BoardPins("ann", "art")
			if err != nil {
				t.Fatal(err)
			}
			if board != int64(want) {
				t.Errorf("%s: got %d pins of the board, want %d", when, board, want)
			}
			user, err := q.UserCounts("ann")
			if err != nil {
				t.Fatal(err)
			}
			if user.Pins != int64(want)+1 {
				t.Errorf("%s: got %d pins of the owner, want %d", when, user.Pins, want+1)
			}
			if got := readList(t, q, Scope{Owner: "ann", Board: &art}, 1000); len(got) != want/2 {
				t.Errorf("%s: got %d items in the list of the board, want %d", when, len(got), want/2)
			}
			if got := readList(t, q, Scope{Owner: "ann"}, 1000); len(got) != want/2+1 {
				t.Errorf("%s: got %d items in the list of the owner, want %d", when, len(got), want/2+1)
			}
			if got := readList(t, q, Scope{}, 1000); len(got) != n/2+1 {
				t.Errorf("%s: got %d items in everybody's list, want %d", when, len(got), n/2+1)
			}
		}

		pins := []events.Event{newPinCreated("ann", "elsewhere", "", "x")}
		for i := range n {
			pins = append(pins, newPinCreated("ann", fmt.Sprint(i), art, fmt.Sprint(i)))
		}
		l.addAll(pins)
		l.add(newItemScored("x", -1))
		for i := range n / 2 {
			pins = append(pins, newItemScored(fmt.Sprint(2*i), int64(i)))
		}
		l.addAll(pins[n+1:])
		check("after the board was created", n)

		l.add(events.Event{Kind: events.BoardDeleted, User: "ann", Board: art})
		check("after the board was deleted", 0)

		l.add(events.Event{Kind: events.BoardCreated, User: "ann", Board: art})
		l.addAll(pins[:n+1])
		check("after the board was created again", n)
		l.close()
	}
}

// TestRecreatedPinCountsOneRepinPerItem checks that a pin that is deleted and created again counts as
// one re-pin of each item that it showed.
func TestRecreatedPinCountsOneRepinPerItem(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()

	l.add(newItemScored("i0", 5), newItemScored("i1", 6))
	for i := range 10 {
		pin := newPinCreated("ann", "p", "", fmt.Sprint("i", i%2))
		pin.RepinUser = "bob"
		pin.RepinPin = "q"
		l.add(pin)
		l.add(pin) // has no effect, because the pin exists
		if got, _ := l.page(Scope{Owner: "ann"}, nil, 5); len(got) != 1 || got[0].Item != pin.Item {
			t.Errorf("round %d: got the list %v, want only %s", i, got, pin.Item)
		}
		l.add(events.Event{Kind: events.PinDeleted, User: "ann", Pin: "p"})
		if got, _ := l.page(Scope{Owner: "ann"}, nil, 5); len(got) != 0 {
			t.Errorf("round %d, after the deletion: got the list %v, want none", i, got)
		}
	}

	v := mustView(t, l.s)
	defer v.Close()
	for _, id := range []string{"i0", "i1"} {
		got, err := NewQueries(v).ItemCounts(id)
		if err != nil {
			t.Fatal(err)
		}
		if want := (ItemCounts{Repins: 1}); got != want {
			t.Errorf("counts of %s: got %+v, want %+v", id, got, want)
		}
	}
}

// TestExpiredVersionsAreDropped checks that versions that ended more than an hour ago are dropped by
// the next events about any item of their partition, even if there is none about their own item.
func TestExpiredVersionsAreDropped(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 600
	}
	for _, named := range []int{0, 1, 64} {
		t.Run(fmt.Sprintf("at most %d pins by name", named), func(t *testing.T) {
			set := defaultSizes()
			set.maxPinsByName = named
			l := newItemLog(t, set)

			// Each item is pinned, and gets a score five times, which leaves four ended versions.
			var all []events.Event
			for i := range n {
				all = append(all, newPinCreated("ann", fmt.Sprint(i), "a", fmt.Sprint(i)))
				if i%3 == 0 {
					all = append(all, newPinCreated("bob", fmt.Sprint(i), "b", fmt.Sprint(i)))
				}
			}
			l.addAll(all)
			for round := range 5 {
				all = all[:0]
				for i := range n {
					all = append(all, newItemScored(fmt.Sprint(i), int64(i-round*n-1)))
				}
				l.addAll(all)
			}
			if got := countRows(t, l.s); got[tagEndedVersion] != 4*n || got[tagGlobalList] != 5*n {
				t.Errorf("got %v rows by tag, want %d entries of everybody's list, %d of their versions ended", got, 5*n, 4*n)
			}

			// An hour later, each event drops a few of the ended versions.
			l.advanceTime(SessionLifetime + 1)
			all = all[:0]
			for i := range n {
				all = append(all, newPlayed(fmt.Sprint(i)))
			}
			l.addAll(all[:10])
			if got := countRows(t, l.s); got[tagEndedVersion] != 4*n-10*maxDropsPerEvent {
				t.Errorf("after ten events: got %d ended versions, want %d", got[tagEndedVersion], 4*n-10*maxDropsPerEvent)
			}

			l.addAll(all[10:])
			got := countRows(t, l.s)
			if got[tagEndedVersion] != 0 || got[tagGlobalList] != n {
				t.Errorf("after all events: got %v rows by tag, want %d entries of everybody's list and no ended versions", got, n)
			}
			last := (n - 1) / 3 * 3 // the last item of bob
			score := int64(last - 4*n - 1)
			if page, _ := l.page(Scope{Owner: "bob"}, nil, 1); !slices.Equal(page, []TrendingItem{{fmt.Sprint(last), score}}) {
				t.Errorf("got the page %v, want the newest score of %d, which is %d", page, last, score)
			}
			l.close()
		})
	}
}

// TestScoreChangeWritesFewRows checks that a new score of an item that 10,000 owners show writes few
// rows: short lists have the item by name, and only a limited number of long ones have it by score.
func TestScoreChangeWritesFewRows(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	for _, set := range sizesForEveryListForm() {
		t.Run(fmt.Sprintf("%+v", set), func(t *testing.T) {
			l := newItemLog(t, set)

			var all []events.Event
			for i := range n {
				all = append(all, newPinCreated(fmt.Sprint("user", i), "p", "", "viral"))
			}
			for i := range 200 {
				all = append(all, newPinCreated("user7", fmt.Sprint(i), "", fmt.Sprint(i)), newItemScored(fmt.Sprint(i), int64(i)))
			}
			l.addAll(append(all, newItemScored("viral", 100)))

			// countChangedRows counts the rows that an event creates, changes or deletes.
			countChangedRows := func(ev events.Event) (n int) {
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

			maxRows := 5 // the item, its queue and everybody's list
			if set.maxPinsByName < 64 {
				maxRows += 2 * maxListsByScore
			}
			if n := countChangedRows(newItemScored("viral", 150)); n > maxRows {
				t.Errorf("a score changes %d rows, want at most %d", n, maxRows)
			}
			if n := countChangedRows(events.Event{Kind: events.PinDeleted, User: fmt.Sprint("user", n-1), Pin: "p"}); n > 5 {
				t.Errorf("a deleted pin changes %d rows, want at most 5", n)
			}

			// The list of an owner with many pins has the item at its new place, and reads few rows.
			v := mustView(t, l.s)
			q := set.query(v)
			page, _, err := q.Trending(context.Background(), Scope{Owner: "user7"}, nil, 55)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) != 55 || page[49] != (TrendingItem{"150", 150}) || page[50] != (TrendingItem{"viral", 150}) {
				t.Errorf("got %v, want 55 items with viral right after 150", page)
			}
			if q.RowsRead() > 3*201 {
				t.Errorf("the page read %d rows, want at most %d", q.RowsRead(), 3*201)
			}
			v.Close()
			l.close()
		})
	}
}

// itemsOfOnePartition returns n items of one partition.
func itemsOfOnePartition(n int) (items []string) {
	for i := 0; len(items) < n; i++ {
		if item := fmt.Sprint("item", i); itemPartition(item) == 7 {
			items = append(items, item)
		}
	}
	return items
}

// countListEntries counts the entries by name and by score in all lists of owners.
func countListEntries(t *testing.T, s *store.Store) (byName, byScore int) {
	t.Helper()
	for key := range readRows(t, s) {
		if tagOfKey([]byte(key)) != tagOwnerList {
			continue
		}
		_, rest, err := events.CutID([]byte(key)[3:])
		if err != nil {
			t.Fatal(err)
		}
		if rest[0] == entryByName {
			byName++
		} else {
			byScore++
		}
	}
	return byName, byScore
}

// TestManyPinsInPartitionAreListedByScore checks that the list of an owner has items by name while
// few of the owner's pins named items of their partition. After that it must have all of them by
// score, with all versions, in whatever order they came, until the owner is deleted.
func TestManyPinsInPartitionAreListedByScore(t *testing.T) {
	set := defaultSizes()
	set.maxComputedPins = 0
	set.maxRowsPerPin = 0
	l := newItemLog(t, set)
	defer l.close()

	items := itemsOfOnePartition(6)
	for i, item := range items {
		l.add(newItemScored(item, 1))
		l.add(newItemScored(item, int64(100-i)))
		l.add(newPinCreated("ann", item, "", item), newPinCreated("bob", fmt.Sprint(i), "", items[0]))

		// Each item of ann has two versions.
		wantName := i + 1
		wantScore := 0
		if wantName > maxPinsByName {
			wantScore = 2 * wantName
			wantName = 0
		}
		// All pins of bob show one item, which bob's list has once by name, or with its two versions.
		if i+1 > maxPinsByName {
			wantScore += 2
		} else {
			wantName++
		}

		if byName, byScore := countListEntries(t, l.s); byName != wantName || byScore != wantScore {
			t.Errorf("%d items: got %d entries by name and %d by score, want %d and %d", i+1, byName, byScore, wantName, wantScore)
		}
		if page, _ := l.page(Scope{Owner: "ann"}, nil, 10); len(page) != i+1 || page[0] != (TrendingItem{items[0], 100}) {
			t.Errorf("%d items: got the page %v, want all of them, %s first with score 100", i+1, page, items[0])
		}
	}

	l.add(events.Event{Kind: events.UserDeleted, User: "ann"}, events.Event{Kind: events.UserDeleted, User: "bob"})
	if byName, byScore := countListEntries(t, l.s); byName != 0 || byScore != 0 {
		t.Errorf("after the users were deleted: got %d entries by name and %d by score, want none", byName, byScore)
	}

	l.add(newPinCreated("ann", "p", "", items[0]))
	if byName, byScore := countListEntries(t, l.s); byName != 1 || byScore != 0 {
		t.Errorf("after the first pin of a user created again: got %d entries by name and %d by score, want 1 and 0", byName, byScore)
	}
}

// TestItemIsListedByScoreInLimitedLists checks that an item that the largest number of lists have by
// score is in further lists by name, until one of those lists no longer has it.
func TestItemIsListedByScoreInLimitedLists(t *testing.T) {
	set := defaultSizes()
	set.maxPinsByName = 0
	set.maxListsByScore = 2
	set.maxComputedPins = 0
	l := newItemLog(t, set)
	defer l.close()
	l.add(newItemScored("i", 5))
	check := func(when string, wantName, wantScore int) {
		t.Helper()
		if byName, byScore := countListEntries(t, l.s); byName != wantName || byScore != wantScore {
			t.Errorf("%s: got %d entries by name and %d by score, want %d and %d", when, byName, byScore, wantName, wantScore)
		}
		if page, _ := l.page(Scope{Owner: "cid"}, nil, 10); !slices.Equal(page, []TrendingItem{{"i", 5}}) {
			t.Errorf("%s: got the list %v of cid, want i with score 5", when, page)
		}
	}

	l.add(newPinCreated("ann", "p", "", "i"), newPinCreated("bob", "p", "", "i"), newPinCreated("cid", "p", "", "i"))
	check("three owners", 1, 2)
	l.add(newPinCreated("cid", "q", "", "i"))
	check("another pin of the third owner", 1, 2)
	l.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("after an owner by score was deleted", 1, 1)
	l.add(newPinCreated("cid", "r", "", "i"))
	check("a pin while the limit allows another list by score", 0, 2)
}

// TestPageCostIsBoundedWhenFewItemsAreShown checks that, if most items that an owner ever named are
// not shown, or are on other boards, a page costs no more than a few lookups for each pin.
func TestPageCostIsBoundedWhenFewItemsAreShown(t *testing.T) {
	l := newItemLog(t, defaultSizes())
	defer l.close()
	const n = 300

	var all []events.Event
	for i := range 10 * n {
		item := fmt.Sprint(i)
		all = append(all, newPinCreated("ann", item, "old", item), newItemScored(item, int64(20*n-i)))
	}
	for i := range n {
		item := fmt.Sprint("new", i)
		all = append(all, newPinCreated("ann", item, "new", item), newItemScored(item, int64(n-i)))
	}
	l.addAll(all)

	const maxRows = (maxRowsPerPin + 3) * n
	check := func(s Scope) {
		t.Helper()
		v := mustView(t, l.s)
		defer v.Close()
		q := NewQueries(v)
		page, _, err := q.Trending(context.Background(), s, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) != 10 || page[9] != (TrendingItem{"new9", n - 9}) {
			t.Errorf("got %v, want 10 items, new9 last with score %d", page, n-9)
		}
		if q.RowsRead() > maxRows {
			t.Errorf("the page read %d rows, want at most %d", q.RowsRead(), maxRows)
		}
	}

	// First the other items are on another board, and then their board is deleted.
	board := "new"
	check(Scope{Owner: "ann", Board: &board})
	l.add(events.Event{Kind: events.BoardDeleted, User: "ann", Board: "old"})
	check(Scope{Owner: "ann"})
}
