package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// TestTrendingSessionKeepsItsOrder checks that, whatever is played between its pages, a session by
// heat continues in the order in which it began. Some pins have equal heat, and some have no plays.
// Only the next session sees the changes (I9).
func TestTrendingSessionKeepsItsOrder(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	play := func(item int) events.Event {
		return events.Event{Kind: events.Played, User: "zoe", Item: fmt.Sprint("i", item)}
	}

	// Some pins have equal heat, and every sixth has none.
	for i := range 24 {
		l.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: fmt.Sprint("p", i), Item: fmt.Sprint("i", i)})
		for range i % 6 {
			l.add(play(i))
		}
	}

	ann := inbox.Feed{Reader: "ann"}
	want := pinNames(mustReadFeed(t, s, l.rankByHeat(ann), 100))
	var got []string
	var after inbox.PageCursor

	// Read the session, and change the heat of items between its pages.
	for number := 0; ; number++ {
		v := mustView(t, s)
		p, err := inbox.CachedQuery(v).Feed(context.Background(), l.rankByHeat(ann), after, 5)
		if err := errors.Join(err, v.Close()); err != nil {
			t.Fatal(err)
		}
		got = append(got, pinNames(p.Pins)...)
		if p.Next == nil {
			break
		}
		after = p.Next

		// An item of a page that was shown, one of a later page and one of the next page gain heat,
		// one after the other, and each twice.
		for _, i := range []int{number, 6 * number % 24, 23 - number} {
			for range 64 {
				l.add(play(i))
			}
			l.advanceTo(events.Micros(number) * 60_000_000)
			l.add(play(i), events.Event{Kind: events.ItemScored, Item: fmt.Sprint("i", (i+1)%24), Score: int64(i)})
		}
	}

	if !slices.Equal(got, want) {
		t.Errorf("session: got\n%v, want\n%v", got, want)
	}
	next := pinNames(mustReadFeed(t, s, l.rankByHeat(ann), 5))
	if len(next) != len(want) {
		t.Errorf("next session: got %d pins, want %d", len(next), len(want))
	}
	if slices.Equal(next, want) {
		t.Errorf("next session: got the order of the first session %v, want another", next)
	}
}

// TestTrendingRanksTheNewestPins checks that a feed by heat ranks its newest pins, as many as it asks
// for, and that pins that are created during a session remove none of them.
func TestTrendingRanksTheNewestPins(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	for i := range 6 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}
	l.add(events.Event{Kind: events.Played, User: "zoe", Item: "p0"}, events.Event{Kind: events.Played, User: "zoe", Item: "p3"})

	read := func(after inbox.PageCursor) inbox.Page {
		t.Helper()
		v := mustView(t, s)
		defer v.Close()
		f := rankByHeat(inbox.Feed{Reader: "ann"}, 4, l.cursor, l.events)
		p, err := inbox.CachedQuery(v).Feed(context.Background(), f, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	first := read(nil)
	l.add(newPin("bob", "new1"), newPin("bob", "new2"), newPin("bob", "new3"))
	second := read(first.Next)
	want := []string{"bob/p3", "bob/p5", "bob/p4", "bob/p2"}
	if got := pinNames(append(first.Pins, second.Pins...)); !slices.Equal(got, want) {
		t.Errorf("got the pins %v, want %v", got, want)
	}
	if second.Next != nil {
		t.Errorf("got the page cursor %x after all ranked pins, want none", second.Next)
	}
}
