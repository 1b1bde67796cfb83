package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
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
// for, and that pins that are created during a session neither remove any of them nor appear.
func TestTrendingRanksTheNewestPins(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	for i := range 6 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}
	l.add(events.Event{Kind: events.Played, User: "zoe", Item: "p0"}, events.Event{Kind: events.Played, User: "zoe", Item: "p3"})

	var got []string
	var after inbox.PageCursor
	for len(got) == 0 || after != nil {
		p := l.mustReadByHeat(s, 4, after, 1)
		got = append(got, pinNames(p.Pins)...)
		after = p.Next
		l.add(newPin("bob", fmt.Sprint("new", len(got))))
	}
	if want := []string{"bob/p3", "bob/p5", "bob/p4", "bob/p2"}; !slices.Equal(got, want) {
		t.Errorf("got the pins %v, want %v", got, want)
	}
}

// TestPagesByHeatOpenNoOutboxes checks that a session by heat reads only the inbox in memory if
// that has all pins that the session ranks.
func TestPagesByHeatOpenNoOutboxes(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 4
	s := openMemWith(t, set, querycache.New(1<<20))
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 1)
	for i := range 8 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}

	shown := 0
	var after inbox.PageCursor
	for number := 0; number == 0 || after != nil; number++ {
		p := l.mustReadByHeat(s, 4, after, 2)
		if p.OutboxesOpened != 0 {
			t.Errorf("page %d: got %d opened outboxes, want none", number, p.OutboxesOpened)
		}
		shown += len(p.Pins)
		after = p.Next
	}
	if shown != 4 {
		t.Errorf("got %d pins, want 4", shown)
	}
}

// TestOlderPinsPushNoneOut checks that pins that appear during a session by heat remove none of
// those that it ranks, although they are older than the beginning of the session: their owner was
// muted.
func TestOlderPinsPushNoneOut(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"), newFollow("ann", "cid"))
	l.add(events.Event{Kind: events.UserMuted, User: "ann", Peer: "cid"})
	for i := range 4 {
		l.add(newPin("bob", fmt.Sprint("b", i)))
		l.add(newPin("cid", fmt.Sprint("c", i)))
	}

	// The session ranks b3, b2 and b1. Later it ranks the pins of cid between these, too: c3 and c2
	// come before the end of the first page, and c1 after it.
	first := l.mustReadByHeat(s, 3, nil, 2)
	l.add(events.Event{Kind: events.UserUnmuted, User: "ann", Peer: "cid"})
	second := l.mustReadByHeat(s, 3, first.Next, 2)
	want := []string{"bob/b3", "bob/b2", "cid/c1", "bob/b1"}
	if got := pinNames(append(first.Pins, second.Pins...)); !slices.Equal(got, want) || second.Next != nil {
		t.Errorf("got the pins %v and the page cursor %x, want %v and none", got, second.Next, want)
	}
}

// TestSessionOfOutdatedInboxKeepsItsPins checks that a session by heat that begins at an outdated
// inbox loses none of its pins when a later page comes from the inbox that has replaced it.
func TestSessionOfOutdatedInboxKeepsItsPins(t *testing.T) {
	outdated := openMem(t, inbox.DefaultSettings())
	defer outdated.Close()
	current := openMem(t, inbox.DefaultSettings())
	defer current.Close()
	behind, l := newLogBuilder(t, outdated), newLogBuilder(t, current)
	for _, both := range []*logBuilder{behind, l} {
		both.add(newFollow("ann", "bob"))
		for i := range 4 {
			both.add(newPin("bob", fmt.Sprint("old", i)))
		}
	}

	// The log goes on for more than the lifetime of a session, and the outdated inbox does not
	// follow.
	l.advanceTo(2 * inbox.SessionLifetime)
	l.add(newPin("bob", "new0"))
	l.add(newPin("bob", "new1"))

	first := l.mustReadByHeat(outdated, 4, nil, 2)
	second := l.mustReadByHeat(current, 4, first.Next, 2)
	want := []string{"bob/old3", "bob/old2", "bob/old1", "bob/old0"}
	if got := pinNames(append(first.Pins, second.Pins...)); !slices.Equal(got, want) || second.Next != nil {
		t.Errorf("got the pins %v and the page cursor %x, want %v and none", got, second.Next, want)
	}
}

// TestCursorsOfV01ContinueSessions checks that a session by heat goes on with a page cursor that
// does not name the oldest pin, as those of v0.1.
func TestCursorsOfV01ContinueSessions(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"))
	for i := range 5 {
		l.add(newPin("bob", fmt.Sprint("p", i)))
	}
	began := l.cursor
	l.add(newPin("bob", "new"))

	var got []string
	after := inbox.TrendingCursorOfV01(began, "bob", "p4", began.LastTime)
	for after != nil {
		p := l.mustReadByHeat(s, 4, after, 1)
		got = append(got, pinNames(p.Pins)...)
		after = p.Next
	}
	if want := []string{"bob/p3", "bob/p2", "bob/p1"}; !slices.Equal(got, want) {
		t.Errorf("got the pins %v, want %v", got, want)
	}
}
