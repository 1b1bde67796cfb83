package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// TestHotSession: whatever is played between its pages, a session by heat goes on in the order in which it began, with pins
// that are equally hot, and some that nobody has played; only the next session sees what has changed (I9).
func TestHotSession(t *testing.T) {
	s := openMem(t, inbox.DefaultSettings())
	defer s.Close()
	l := newLog(t, s)
	l.add(active("ann"), follows("ann", "bob"))
	play := func(item int) events.Event {
		return events.Event{Kind: events.Played, User: "zoe", Item: fmt.Sprint("i", item)}
	}
	for i := range 24 {
		l.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: fmt.Sprint("p", i), Item: fmt.Sprint("i", i)})
		for range i % 6 {
			l.add(play(i))
		}
	}
	hot := inbox.Feed{Reader: "ann", Order: inbox.Hot}
	want := names(feed(t, s, hot, 100))
	var got []string
	var after inbox.Mark
	for number := 0; ; number++ {
		v := view(t, s)
		p, err := inbox.HotQuery(v).Feed(context.Background(), hot, after, 5)
		if cerr := v.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
		got = append(got, names(p.Pins)...)
		if after = p.Next; after == nil {
			break
		}
		// What was shown, what comes later and what would come next get hot, one after the other and each twice.
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
	if again := names(feed(t, s, hot, 5)); slices.Equal(again, want) || len(again) != len(want) {
		t.Errorf("the next session is no other: %v", again)
	}
}
