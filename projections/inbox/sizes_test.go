package inbox_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
)

// authorNames returns the ids of n authors.
func authorNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("author", i))
	}
	return names
}

// TestPageOpensOutboxesThatWereNotPushed checks that a page opens the outboxes whose pins were not
// pushed, and no others.
func TestPageOpensOutboxesThatWereNotPushed(t *testing.T) {
	for _, c := range []struct {
		name         string
		threshold    int64
		wantOutboxes int
		wantEntries  int
	}{
		{"all authors are pushed", -1, 0, 50},
		{"most authors are pushed", 2, 1, 45},
		{"all authors are pulled", 0, 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := inbox.DefaultSettings()
			set.Threshold = c.threshold
			s := openMem(t, set)
			l := newLogBuilder(t, s)

			// With three more followers in the partition of ann, author3 is above a threshold of 2.
			for _, other := range usersNear("ann", 3) {
				l.add(newFollow(other, "author3"))
			}
			for _, author := range authorNames(10) {
				l.add(newFollow("ann", author))
			}
			mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 1) // begins an inbox
			var want []string
			for i := range 5 {
				for _, author := range authorNames(10) {
					pin := fmt.Sprint("p", i)
					l.add(newPin(author, pin))
					want = append(want, author+"/"+pin)
				}
			}
			slices.Reverse(want)

			page := mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 20)
			if page.OutboxesOpened != c.wantOutboxes {
				t.Errorf("got %d opened outboxes, want %d", page.OutboxesOpened, c.wantOutboxes)
			}
			if got := pinNames(page.Pins); !slices.Equal(got, want[:20]) {
				t.Errorf("got the first page %v, want %v", got, want[:20])
			}
			if got := pinNames(mustReadFeed(t, s, inbox.Feed{Reader: "ann"}, 7)); !slices.Equal(got, want) {
				t.Errorf("got the feed %v, want %v", got, want)
			}
			if n := countEntries(t, s, "ann"); n != c.wantEntries {
				t.Errorf("got %d entries in the inbox, want %d", n, c.wantEntries)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// pinNames returns OWNER/ID of each pin.
func pinNames(pins []inbox.Pin) (list []string) {
	for _, p := range pins {
		list = append(list, p.Owner+"/"+p.ID)
	}
	return list
}

// TestPushIsBounded folds one envelope of a thousand pins, whose order has the floor of an inbox in
// its middle. The inboxes of readers must keep their limit, and the feeds must have all pins.
// Either all pins are live, or all are from an import, with three times, one of which is that of
// the floor.
func TestPushIsBounded(t *testing.T) {
	for _, keep := range []int{1, 2, 7, 100} {
		for _, imported := range []bool{false, true} {
			name := fmt.Sprintf("keep %d, imported %v", keep, imported)
			t.Run(name, func(t *testing.T) { testPushOfThousandPins(t, keep, imported) })
		}
	}
}

func testPushOfThousandPins(t *testing.T, keep int, imported bool) {
	set := inbox.DefaultSettings()
	set.Keep = keep
	s := openMem(t, set)
	defer s.Close()
	l := newLogBuilder(t, s)
	for _, reader := range []string{"ann", "dan", "eve"} {
		l.add(newFollow(reader, "bob"), newFollow(reader, "cid"))
	}
	l.add(newPin("bob", "first"))

	// Two of the readers have an inbox, whose floor is at the first pin.
	floor := l.cursor.LastTime
	for _, reader := range []string{"dan", "eve"} {
		mustReadPage(t, s, inbox.Feed{Reader: reader}, 1) // begins an inbox
	}

	// The feed has the newest pins first. Of the creation times of live pins only the order
	// matters.
	var list []events.Event
	want := []inbox.Pin{{Owner: "bob", ID: "first", Created: -1}}
	if imported {
		want[0].Created = floor
	}
	for i := range 999 {
		ev := newPin([]string{"bob", "cid"}[i%2], fmt.Sprintf("p%03d", i))
		created := events.Micros(i)
		if imported {
			created = floor + events.Micros(i%3-1)
			ev.Backfill = true
			ev.Source = "old"
			ev.Offset = uint64(i + 1)
			ev.Time = created
		}
		list = append(list, ev)
		want = append(want, inbox.Pin{Owner: ev.User, ID: ev.Pin, Created: created})
	}
	slices.SortFunc(want, func(a, b inbox.Pin) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})

	l.add(list...)
	for _, reader := range []string{"ann", "dan", "eve"} {
		if got := pinNames(mustReadFeed(t, s, inbox.Feed{Reader: reader}, 50)); !slices.Equal(got, pinNames(want)) {
			t.Errorf("feed of %s: got %d pins %v, want %d pins %v", reader, len(got), got, len(want), pinNames(want))
		}
		if n, limit := countEntries(t, s, reader), keep+max(1, keep/4); n > limit {
			t.Errorf("got %d entries in the inbox of %s, want at most %d", n, reader, limit)
		}
	}
}

// TestInboxSizeIsBounded checks that an inbox holds at most a quarter more than what it keeps,
// however much is delivered.
func TestInboxSizeIsBounded(t *testing.T) {
	envelopes := 200
	if testing.Short() {
		envelopes = 50
	}
	authors := authorNames(10)
	for _, keep := range []int{10, 100} {
		set := inbox.DefaultSettings()
		set.Keep = keep
		s := openMem(t, set)
		l := newLogBuilder(t, s)
		for _, author := range authors {
			l.add(newFollow("ann", author))
		}
		mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 1)

		maxEntries := 0
		for i := range envelopes {
			var list []events.Event
			for j := range 100 {
				list = append(list, newPin(authors[j%10], fmt.Sprint(i, "-", j)))
			}
			l.add(list...)
			maxEntries = max(maxEntries, countEntries(t, s, "ann"))
		}
		if maxEntries < keep || maxEntries > keep+keep/4 {
			t.Errorf("keep %d: got up to %d entries, want %d to %d", keep, maxEntries, keep, keep+keep/4)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTrendingPageReadsInboxOnly checks that a page by heat that ranks no more pins than an inbox
// keeps opens no outbox.
func TestTrendingPageReadsInboxOnly(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 10
	s := openMem(t, set)
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	for i := range 100 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}
	f := rankByHeat(inbox.Feed{Reader: "ann"}, set.Keep, l.cursor, l.events)
	mustReadPage(t, s, f, 3) // begins an inbox
	if n := mustReadPage(t, s, f, 3).OutboxesOpened; n != 0 {
		t.Errorf("got %d opened outboxes for a page by heat that the inbox holds, want none", n)
	}
}

// TestDeepReadTeachesInboxNoMoreThanItKeeps checks that a call that reads through a large feed
// leaves no more in the inbox than it keeps.
func TestDeepReadTeachesInboxNoMoreThanItKeeps(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 10
	cache := querycache.New(1 << 20)
	s := openMemWith(t, set, cache)
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	for i := range 300 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}

	v := mustView(t, s)
	defer v.Close()
	before := cache.Stats().Bytes
	explanation, err := inbox.CachedQuery(v).Explain(t.Context(), inbox.Feed{Reader: "ann"}, "bob", "p0")
	if err != nil {
		t.Fatal(err)
	}
	if explanation.Rank != 300 {
		t.Fatalf("got %+v, want rank 300", explanation)
	}

	if n := inbox.Entries(v, "ann"); n != set.Keep+set.Keep/4 {
		t.Errorf("got %d entries in the inbox, want %d", n, set.Keep+set.Keep/4)
	}
	if n := cache.Stats().Bytes - before; n > 10_000 {
		t.Errorf("the call added %d bytes to the cache, want at most 10000", n)
	}
}

// TestFollowWritesRelationOnly checks that a follow writes only the relation, whatever the followed
// user has pinned.
func TestFollowWritesRelationOnly(t *testing.T) {
	for _, pins := range []int{0, 100} {
		s := openMem(t, inbox.DefaultSettings())
		l := newLogBuilder(t, s)
		for i := range pins {
			l.add(newPin("eve", fmt.Sprint("p", i)))
		}
		before := countRows(t, s)
		l.add(newFollow("ann", "eve"))
		if n := countRows(t, s) - before; n != 2 {
			t.Errorf("a follow of a user with %d pins: got %d more rows, want 2", pins, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPostCostIsIndependentOfFollowers checks that a new pin writes the same number of rows for any
// number of followers, above the threshold and below it.
func TestPostCostIsIndependentOfFollowers(t *testing.T) {
	countPinRows := func(threshold int64, fans int) int {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := openMem(t, set)
		defer s.Close()
		l := newLogBuilder(t, s)
		for _, fan := range usersNear("ann", fans) {
			l.add(newFollow(fan, "star"), newBoardEvent(events.BoardFollowed, fan, "star", "art"))
		}
		l.add(newPinOn("star", "art", "first"))
		before := countRows(t, s)
		l.add(newPinOn("star", "art", "second"))
		return countRows(t, s) - before
	}

	withoutFollowers := countPinRows(10, 0)
	for _, c := range []struct {
		threshold int64
		fans      int
	}{{10, 11}, {10, 600}, {0, 600}, {10, 10}, {-1, 600}} {
		if got := countPinRows(c.threshold, c.fans); got != withoutFollowers {
			t.Errorf("threshold %d, %d followers: a pin writes %d rows, want %d as without followers",
				c.threshold, c.fans, got, withoutFollowers)
		}
	}
}

// countingState counts what is read of a state.
type countingState struct {
	inbox.State
	gets, rows, iters int
}

func (c *countingState) Get(key []byte) ([]byte, bool, error) {
	c.gets++
	return c.State.Get(key)
}

func (c *countingState) Iter(lower, upper []byte) projections.Iterator {
	c.iters++
	return &countingIterator{c.State.Iter(lower, upper), c}
}

type countingIterator struct {
	projections.Iterator
	c *countingState
}

func (i *countingIterator) Next() bool             { i.c.rows++; return i.Iterator.Next() }
func (i *countingIterator) SeekGE(key []byte) bool { i.c.rows++; return i.Iterator.SeekGE(key) }

// TestPageCostIsIndependentOfInboxSize checks that a page that the inbox holds reads only its own
// rows, with one point read per pin and one per owner, however large the inbox is, on any page.
func TestPageCostIsIndependentOfInboxSize(t *testing.T) {
	const n, owners = 20, 10
	largeSize := 100_000
	if testing.Short() {
		largeSize = 20_000
	}
	authors := authorNames(owners)
	for _, size := range []int{1000, largeSize} {
		set := inbox.DefaultSettings()
		set.Keep = 1_000_000
		s := openMemWith(t, set, querycache.New(64<<20))
		l := newLogBuilder(t, s)
		for _, author := range authors {
			l.add(newFollow("ann", author))
		}
		mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 1)

		for i := range size / 1000 {
			var list []events.Event
			for j := range 1000 {
				list = append(list, newPin(authors[j%owners], fmt.Sprint(i, "-", j)))
			}
			l.add(list...)
		}

		if got := countEntries(t, s, "ann"); got != size {
			t.Fatalf("got %d entries in the inbox, want %d", got, size)
		}

		v := mustView(t, s)
		var after inbox.PageCursor
		for number := range 20 {
			counts := &countingState{State: v}
			page, err := inbox.CachedOver(counts, v).Feed(context.Background(), inbox.Feed{Reader: "ann"}, after, n)
			if err != nil {
				t.Fatalf("page %d: %v", number, err)
			}
			if len(page.Pins) != n || page.Next == nil {
				t.Fatalf("page %d: got %d pins and page cursor %x, want %d pins and a next page", number, len(page.Pins), page.Next, n)
			}
			if page.OutboxesOpened != 0 {
				t.Fatalf("page %d: got %d opened outboxes, want none", number, page.OutboxesOpened)
			}

			// The limits allow for one more pin, which shows whether there is another page, for the
			// read marker and for the pull rows.
			if counts.rows > owners+1 || counts.gets > n+1+owners+1 || counts.iters > 2 {
				t.Errorf("page %d of an inbox of %d: got %d rows, %d point reads and %d iterators, want at most %d, %d and 2",
					number, size, counts.rows, counts.gets, counts.iters, owners+1, n+1+owners+1)
			}
			after = page.Next
		}

		for _, err := range []error{v.Close(), s.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}
