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

func authors(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("author", i))
	}
	return names
}

// TestPageOpensOutboxesThatWereNotPushed: what a page opens is what was not pushed.
func TestPageOpensOutboxesThatWereNotPushed(t *testing.T) {
	for _, c := range []struct {
		name      string
		threshold int64
		want      int
		entries   int
	}{
		{"all is pushed", -1, 0, 50},
		{"most are pushed", 2, 1, 45},
		{"all is pulled", 0, 10, 0},
	} {
		set := inbox.DefaultSettings()
		set.Threshold = c.threshold
		s := openMem(t, set)
		l := newLog(t, s)
		for _, other := range near("ann", 3) {
			l.add(follows(other, "author3"))
		}
		for _, author := range authors(10) {
			l.add(follows("ann", author))
		}
		page(t, s, inbox.Feed{Reader: "ann"}, 1) // begins an inbox
		var want []string
		for i := range 5 {
			for _, author := range authors(10) {
				pin := fmt.Sprint("p", i)
				l.add(posts(author, pin))
				want = append(want, author+"/"+pin)
			}
		}
		slices.Reverse(want)
		p := page(t, s, inbox.Feed{Reader: "ann"}, 20)
		if p.OutboxesOpened != c.want || !slices.Equal(names(p.Pins), want[:20]) {
			t.Errorf("%s: %d outboxes, want %d: %v", c.name, p.OutboxesOpened, c.want, names(p.Pins))
		}
		if got := names(feed(t, s, inbox.Feed{Reader: "ann"}, 7)); !slices.Equal(got, want) {
			t.Errorf("%s: %v", c.name, got)
		}
		if n := entries(t, s, "ann"); n != c.entries {
			t.Errorf("%s: %d entries, want %d", c.name, n, c.entries)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func names(pins []inbox.Pin) (list []string) {
	for _, p := range pins {
		list = append(list, p.Owner+"/"+p.ID)
	}
	return list
}

// TestPushIsBounded: one envelope of a thousand pins, with the floor in the midst of it: where a
// reader comes, and wherever trims have put it since. All live, or all from an import and of three
// times, of which one is that of the floor.
func TestPushIsBounded(t *testing.T) {
	for _, keep := range []int{1, 2, 7, 100} {
		for _, imported := range []bool{false, true} {
			t.Run(fmt.Sprint(keep, imported), func(t *testing.T) { pushThousand(t, keep, imported) })
		}
	}
}

func pushThousand(t *testing.T, keep int, imported bool) {
	set := inbox.DefaultSettings()
	set.Keep = keep
	s := openMem(t, set)
	defer s.Close()
	l := newLog(t, s)
	for _, reader := range []string{"ann", "dan", "eve"} {
		l.add(follows(reader, "bob"), follows(reader, "cid"))
	}
	l.add(posts("bob", "first"))
	floor := l.cursor.LastTime
	for _, reader := range []string{"dan", "eve"} {
		page(t, s, inbox.Feed{Reader: reader}, 1) // begins an inbox
	}
	var list []events.Event
	want := []inbox.Pin{{Owner: "bob", ID: "first", Created: -1}}
	if imported {
		want[0].Created = floor
	}
	for i := range 999 {
		ev := posts([]string{"bob", "cid"}[i%2], fmt.Sprintf("p%03d", i))
		created := events.Micros(i) // of live ones only the order counts
		if imported {
			created = floor + events.Micros(i%3-1)
			ev.Backfill, ev.Source, ev.Offset, ev.Time = true, "old", uint64(i+1), created
		}
		list = append(list, ev)
		want = append(want, inbox.Pin{Owner: ev.User, ID: ev.Pin, Created: created})
	}
	slices.SortFunc(want, func(a, b inbox.Pin) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	l.add(list...)
	for _, reader := range []string{"ann", "dan", "eve"} {
		if got := names(feed(t, s, inbox.Feed{Reader: reader}, 50)); !slices.Equal(got, names(want)) {
			t.Errorf("feed of %s of %d pins: %v", reader, len(got), got)
		}
		if n := entries(t, s, reader); n > keep+max(1, keep/4) {
			t.Errorf("%d entries in the inbox of %s", n, reader)
		}
	}
}

// TestInboxSizeIsBounded: however much is delivered, an inbox holds a small multiple of what is
// kept.
func TestInboxSizeIsBounded(t *testing.T) {
	for _, keep := range []int{10, 100} {
		set := inbox.DefaultSettings()
		set.Keep = keep
		s := openMem(t, set)
		l := newLog(t, s)
		for _, author := range authors(10) {
			l.add(follows("ann", author))
		}
		page(t, s, inbox.Feed{Reader: "ann"}, 1)
		most := 0
		for i := range 200 {
			var list []events.Event
			for j := range 100 {
				list = append(list, posts(authors(10)[j%10], fmt.Sprint(i, "-", j)))
			}
			l.add(list...)
			most = max(most, entries(t, s, "ann"))
		}
		if most > keep+keep/4 || most < keep {
			t.Errorf("keep %d: up to %d entries", keep, most)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTrendingPageReadsInboxOnly: a page by heat ranks what an inbox holds, as many as it keeps,
// without an outbox.
func TestTrendingPageReadsInboxOnly(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 10
	s := openMem(t, set)
	defer s.Close()
	l := newLog(t, s)
	l.add(follows("ann", "bob"))
	for i := range 100 {
		l.add(posts("bob", fmt.Sprint("p", i)))
	}
	f := byHeat(inbox.Feed{Reader: "ann"}, set.Keep, l.cursor, l.told)
	page(t, s, f, 3) // begins an inbox
	if n := page(t, s, f, 3).OutboxesOpened; n != 0 {
		t.Errorf("%d outboxes are opened for a page by heat that the inbox holds", n)
	}
}

// TestDeepReadTeachesInboxNoMoreThanItKeeps: a walk through a large feed teaches the inbox no more
// than it keeps.
func TestDeepReadTeachesInboxNoMoreThanItKeeps(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 10
	cache := querycache.New(1 << 20)
	s := openMemWith(t, set, cache)
	defer s.Close()
	l := newLog(t, s)
	l.add(follows("ann", "bob"))
	for i := range 300 {
		l.add(posts("bob", fmt.Sprint("p", i)))
	}
	v := view(t, s)
	defer v.Close()
	before := cache.Stats().Bytes
	x, err := inbox.CachedQuery(v).Explain(t.Context(), inbox.Feed{Reader: "ann"}, "bob", "p0")
	if err != nil || x.Rank != 300 {
		t.Fatalf("%+v: %v", x, err)
	}
	if n := inbox.Entries(v, "ann"); n != set.Keep+set.Keep/4 {
		t.Errorf("%d entries, want %d and a quarter", n, set.Keep)
	}
	if n := cache.Stats().Bytes - before; n > 10_000 {
		t.Errorf("it takes %d bytes", n)
	}
}

// TestFollowWritesRelationOnly: a follow writes the relation alone, whatever the other has pinned.
func TestFollowWritesRelationOnly(t *testing.T) {
	for _, pins := range []int{0, 100} {
		s := openMem(t, inbox.DefaultSettings())
		l := newLog(t, s)
		for i := range pins {
			l.add(posts("eve", fmt.Sprint("p", i)))
		}
		before := rows(t, s)
		l.add(follows("ann", "eve"))
		if n := rows(t, s) - before; n != 2 {
			t.Errorf("a follow of one with %d pins writes %d rows, want 2", pins, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPostCostIsIndependentOfFollowers: a post writes as many rows for any number of followers,
// above the threshold and below.
func TestPostCostIsIndependentOfFollowers(t *testing.T) {
	cost := func(threshold int64, fans int) int {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := openMem(t, set)
		defer s.Close()
		l := newLog(t, s)
		for _, fan := range near("ann", fans) {
			l.add(follows(fan, "star"), onBoard(events.BoardFollowed, fan, "star", "art"))
		}
		l.add(postsOn("star", "art", "first"))
		before := rows(t, s)
		l.add(postsOn("star", "art", "second"))
		return rows(t, s) - before
	}
	alone := cost(10, 0)
	for _, c := range []struct {
		threshold int64
		fans      int
	}{{10, 11}, {10, 600}, {0, 600}, {10, 10}, {-1, 600}} {
		if got := cost(c.threshold, c.fans); got != alone {
			t.Errorf("threshold %d, %d followers: a post writes %d rows, and %d without any", c.threshold, c.fans, got, alone)
		}
	}
}

// counting counts what is read of a store.
type counting struct {
	inbox.State
	gets, rows, iters int
}

func (c *counting) Get(key []byte) ([]byte, bool, error) {
	c.gets++
	return c.State.Get(key)
}

func (c *counting) Iter(lower, upper []byte) projections.Iterator {
	c.iters++
	return &countingIterator{c.State.Iter(lower, upper), c}
}

type countingIterator struct {
	projections.Iterator
	c *counting
}

func (i *countingIterator) Next() bool             { i.c.rows++; return i.Iterator.Next() }
func (i *countingIterator) SeekGE(key []byte) bool { i.c.rows++; return i.Iterator.SeekGE(key) }

// TestPageCostIsIndependentOfInboxSize: a page of what the inbox holds reads its own rows, one
// point read a pin and one an owner, however large the inbox is, on whatever page.
func TestPageCostIsIndependentOfInboxSize(t *testing.T) {
	const n, owners = 20, 10
	for _, size := range []int{1_000, 100_000} {
		set := inbox.DefaultSettings()
		set.Keep = 1_000_000
		s := openMemWith(t, set, querycache.New(64<<20))
		l := newLog(t, s)
		for _, author := range authors(owners) {
			l.add(follows("ann", author))
		}
		page(t, s, inbox.Feed{Reader: "ann"}, 1)
		for i := range size / 1000 {
			var list []events.Event
			for j := range 1000 {
				list = append(list, posts(authors(owners)[j%owners], fmt.Sprint(i, "-", j)))
			}
			l.add(list...)
		}
		if got := entries(t, s, "ann"); got != size {
			t.Fatalf("%d entries, want %d", got, size)
		}
		v := view(t, s)
		var after inbox.PageCursor
		for number := range 20 {
			c := &counting{State: v}
			p, err := inbox.CachedOver(c, v).Feed(context.Background(), inbox.Feed{Reader: "ann"}, after, n)
			if err != nil || len(p.Pins) != n || p.Next == nil || p.OutboxesOpened != 0 {
				t.Fatalf("page %d: %d pins, %d outboxes: %v", number, len(p.Pins), p.OutboxesOpened, err)
			}
			// One more of each than the page has, to see whether there is another. Besides, the
			// read marker and the pull rows.
			if c.rows > owners+1 || c.gets > n+1+owners+1 || c.iters > 2 {
				t.Errorf("page %d of an inbox of %d: %d rows, %d point reads, %d iterators", number, size, c.rows, c.gets, c.iters)
			}
			after = p.Next
		}
		for _, err := range []error{v.Close(), s.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}
