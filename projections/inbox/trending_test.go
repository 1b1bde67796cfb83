package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// TestTrendingSessionKeepsItsOrder: whatever is played between its pages, a session by heat
// continues in the order in which it began, with pins of equal heat, and some without plays; only
// the next session sees the changes (I9).
func TestTrendingSessionKeepsItsOrder(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLog(t, s)
	l.add(follows("ann", "bob"))
	play := func(item int) events.Event {
		return events.Event{Kind: events.Played, User: "zoe", Item: fmt.Sprint("i", item)}
	}
	for i := range 24 {
		l.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: fmt.Sprint("p", i), Item: fmt.Sprint("i", i)})
		for range i % 6 {
			l.add(play(i))
		}
	}
	ann := inbox.Feed{Reader: "ann"}
	want := names(feed(t, s, l.byHeat(ann), 100))
	var got []string
	var after inbox.PageCursor
	for number := 0; ; number++ {
		v := view(t, s)
		p, err := inbox.CachedQuery(v).Feed(context.Background(), l.byHeat(ann), after, 5)
		if cerr := v.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		got = append(got, names(p.Pins)...)
		if after = p.Next; after == nil {
			break
		}
		// What was shown, what comes later and what would come next gains heat, one after the other
		// and each twice.
		for _, i := range []int{number, 6 * number % 24, 23 - number} {
			for range 64 {
				l.add(play(i))
			}
			l.at(events.Micros(number) * 60_000_000)
			l.add(play(i), events.Event{Kind: events.ItemScored, Item: fmt.Sprint("i", (i+1)%24), Score: int64(i)})
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("a session of\n%v, want\n%v", got, want)
	}
	if again := names(feed(t, s, l.byHeat(ann), 5)); slices.Equal(again, want) || len(again) != len(want) {
		t.Errorf("the next session is no other: %v", again)
	}
}

// TestTrendingRanksTheNewestPins: of a feed the newest pins are ranked, as many as are asked for,
// and what is pinned during a session pushes none of them out.
func TestTrendingRanksTheNewestPins(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLog(t, s)
	l.add(follows("ann", "bob"))
	for i := range 6 {
		l.add(posts("bob", fmt.Sprint("p", i)))
	}
	l.add(events.Event{Kind: events.Played, User: "zoe", Item: "p0"}, events.Event{Kind: events.Played, User: "zoe", Item: "p3"})
	read := func(after inbox.PageCursor) inbox.Page {
		t.Helper()
		v := view(t, s)
		defer v.Close()
		p, err := inbox.CachedQuery(v).Feed(context.Background(), byHeat(inbox.Feed{Reader: "ann"}, 4, l.cursor, l.told), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := read(nil)
	l.add(posts("bob", "new1"), posts("bob", "new2"), posts("bob", "new3"))
	second := read(first.Next)
	if got, want := names(append(first.Pins, second.Pins...)), []string{"bob/p3", "bob/p5", "bob/p4", "bob/p2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if second.Next != nil {
		t.Error("there is more than what is ranked")
	}
}
