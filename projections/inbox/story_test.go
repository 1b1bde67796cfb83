package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
)

// story is a log made by hand that is compared with the model after every envelope, where generated histories seldom or
// never get: it takes many steps there, in order.
type story struct {
	*log
	t       *testing.T
	history []events.Event
}

func newStory(t *testing.T, s inbox.Settings) *story {
	t.Helper()
	store := openMem(t, s)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &story{log: newLog(t, store), t: t}
}

// do appends each event in an envelope of its own, and compares all answers after it.
func (s *story) do(list ...events.Event) {
	s.t.Helper()
	for _, ev := range list {
		s.add(ev)
		// What the log makes of the event.
		if ev.Seq, ev.Slot = s.cursor.Seq, 0; !ev.Backfill {
			ev.Time = s.cursor.LastTime
		}
		s.history = append(s.history, ev)
		compare(s.t, s.s, s.history)
	}
}

// outboxes tells how many outboxes a page of n opens.
func (s *story) outboxes(reader string, n int) int {
	s.t.Helper()
	return page(s.t, s.s, inbox.Feed{Reader: reader}, n).Outboxes
}

// page reads the first page of a feed.
func page(t testing.TB, s *projections.Store, f inbox.Feed, n int) inbox.Page {
	t.Helper()
	v := view(t, s)
	defer v.Close()
	p, err := inbox.HotQuery(v).Feed(context.Background(), f, nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func active(user string) events.Event { return events.Event{Kind: events.ReaderActive, User: user} }

func follows(user, peer string) events.Event {
	return events.Event{Kind: events.UserFollowed, User: user, Peer: peer}
}

func unfollows(user, peer string) events.Event {
	return events.Event{Kind: events.UserUnfollowed, User: user, Peer: peer}
}

func onBoard(kind events.Kind, user, peer, board string) events.Event {
	return events.Event{Kind: kind, User: user, Peer: peer, Board: board}
}

func posts(owner, pin string) events.Event { return postsOn(owner, "", pin) }

func postsOn(owner, board, pin string) events.Event {
	return events.Event{Kind: events.PinCreated, User: owner, Board: board, Pin: pin, Item: pin}
}

// both runs a story about the follows of a user and about those of a board.
func both(t *testing.T, s inbox.Settings, tell func(s *story, begin, end func(user string) events.Event)) {
	t.Helper()
	t.Run("user", func(t *testing.T) {
		tell(newStory(t, s), func(u string) events.Event { return follows(u, "bob") },
			func(u string) events.Event { return unfollows(u, "bob") })
	})
	t.Run("board", func(t *testing.T) {
		tell(newStory(t, s), func(u string) events.Event { return onBoard(events.BoardFollowed, u, "bob", "") },
			func(u string) events.Event { return onBoard(events.BoardUnfollowed, u, "bob", "") })
	})
}

// TestFollowCopies: who begins to follow has at once what is above the floor of the inbox, and what is below it.
func TestFollowCopies(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(posts("bob", "old1"), posts("bob", "old2"), active("ann"), posts("bob", "p1"), posts("bob", "p2"))
		s.do(begin("ann"), posts("bob", "p3"), end("ann"), posts("bob", "p4"), posts("bob", "p5"), begin("ann"))
		s.do(posts("bob", "p6"), posts("bob", "p7"), posts("bob", "p8"))
	})
}

// TestTrim: an inbox of three entries, trimmed again and again, by posts and by what follows bring.
func TestTrim(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(active("ann"), begin("ann"))
		for i := range 8 {
			s.do(posts("bob", fmt.Sprint("p", i)), posts("cid", fmt.Sprint("p", i)))
		}
		s.do(follows("ann", "cid"), end("ann"), posts("bob", "q"), begin("ann"))
		// History that arrives below the floor, above it, and where it is.
		for i, at := range []events.Micros{1, s.start, s.history[len(s.history)-6].Time, s.history[len(s.history)-2].Time, s.history[3].Time} {
			ev := posts("cid", fmt.Sprint("h", i))
			ev.Backfill, ev.Source, ev.Offset, ev.Time = true, "old", uint64(1+i), at
			s.do(ev)
		}
		s.do(posts("cid", "r"), posts("bob", "r"))
	})
}

// TestCrossing: a user or board that gets more followers than the threshold, and fewer again, while inboxes are full of
// others.
func TestCrossing(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep, set.Threshold = 3, 2
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(active("ann"), active("dan"), begin("ann"), follows("ann", "eve"), posts("bob", "p1"), begin("cid"))
		s.do(posts("eve", "e1"), posts("eve", "e2"), posts("bob", "p2"))
		s.do(begin("dan"), posts("bob", "p3")) // the third: bob is pulled
		s.do(active("fay"), begin("fay"), posts("bob", "p4"))
		s.do(end("dan"), posts("bob", "p5"), end("cid"), posts("bob", "p6"), end("fay")) // and now pushed again
		// Trimmed with the floor still below what was pulled, and then risen above it.
		for i := range 6 {
			s.do(posts("eve", fmt.Sprint("f", i)))
		}
		s.do(posts("bob", "p7"), posts("bob", "p8"), posts("bob", "p9"))
		if n := s.outboxes("ann", 2); n != 0 {
			s.t.Errorf("%d outboxes are opened for a page that the inbox holds", n)
		}
		s.do(begin("cid"), begin("dan"), posts("bob", "q1"), end("dan"), end("cid"), end("ann"), posts("bob", "q2"), begin("ann"))
	})
}

// TestReturningReader: who does not come for long loses the inbox with the next post, costs nothing then, and begins again
// with an empty one. Who is active already only renews the date.
func TestReturningReader(t *testing.T) {
	set := inbox.DefaultSettings()
	s := newStory(t, set)
	s.do(active("ann"), active("dan"), follows("ann", "bob"), follows("dan", "bob"), posts("bob", "p1"), posts("bob", "p2"))
	s.at(events.Micros((13 * 24 * time.Hour).Microseconds()))
	s.do(active("dan"), posts("bob", "p3"))
	for _, reader := range []string{"ann", "dan"} {
		if n := entries(t, s.s, reader); n != 3 {
			t.Errorf("%s has an inbox of %d entries, want 3", reader, n)
		}
		if n := s.outboxes(reader, 2); n != 0 {
			t.Errorf("%s opens %d outboxes for a page that the inbox holds", reader, n)
		}
	}
	s.at(events.Micros((15 * 24 * time.Hour).Microseconds()))
	if n := entries(t, s.s, "ann"); n != 3 {
		t.Errorf("an inbox goes by itself: %d entries", n)
	}
	s.do(posts("bob", "p4"), posts("bob", "p5"))
	if n, m := entries(t, s.s, "ann"), entries(t, s.s, "dan"); n != 0 || m != 5 {
		t.Errorf("an inbox of %d entries of one who was away, and of %d, want 0 and 5", n, m)
	}
	before := rows(t, s.s)
	s.do(active("ann"))
	if diff := rows(t, s.s) - before; diff != 0 {
		t.Errorf("a return writes %d rows", diff)
	}
	s.do(posts("bob", "p6"), active("ann"), posts("bob", "p7"), posts("bob", "p8"), active("ann"))
	if n := entries(t, s.s, "ann"); n != 3 {
		t.Errorf("%d entries after the return, want 3", n)
	}
	if n, m := s.outboxes("ann", 2), s.outboxes("ann", 3); n != 0 || m != 1 {
		t.Errorf("%d and %d outboxes for pages above and across the floor", n, m)
	}
}

// TestExclusion: what is on a board that a reader has unfollowed is in no feed of that reader, pushed or pulled, before and after, until
// the board is followed again.
func TestExclusion(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		settings := inbox.DefaultSettings()
		settings.Threshold = threshold
		for _, first := range [][]events.Event{nil, {active("ann")}} {
			s := newStory(t, settings)
			s.do(first...)
			s.do(
				follows("ann", "bob"), postsOn("bob", "b", "p1"), posts("bob", "p2"),
				onBoard(events.BoardUnfollowed, "ann", "bob", "b"), postsOn("bob", "b", "p3"),
				onBoard(events.BoardFollowed, "ann", "bob", "b"), postsOn("bob", "b", "p4"),
				onBoard(events.BoardUnfollowed, "ann", "bob", "b"), unfollows("ann", "bob"), follows("ann", "bob"),
			)
		}
	}
}

// rows counts the rows of a store.
func rows(t testing.TB, s *projections.Store) (n int) {
	t.Helper()
	eachRow(t, s, func(_, _ []byte) { n++ })
	return n
}

// entries counts what is in the inbox of a reader.
func entries(t testing.TB, s *projections.Store, reader string) (n int) {
	t.Helper()
	v := view(t, s)
	defer v.Close()
	prefix := projections.AppendPrefix(nil, events.ShardOf(reader), projections.FirstInboxTag+8) // see the table in keys.go
	prefix = events.AppendID(prefix, reader)
	it := v.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		n++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// eachRow goes over the rows of the projection.
func eachRow(t fataler, s *projections.Store, do func(key, value []byte)) {
	t.Helper()
	v := view(t, s)
	defer v.Close()
	it := v.Iter(nil, nil)
	for it.Next() {
		if !projections.IsRuntimeKey(it.Key()) {
			do(it.Key(), it.Value())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("%v", err)
	}
}
