package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/store"
)

// story is a log made by hand that is compared with the model after every envelope, where generated
// histories seldom or never get: it takes many steps there, in order.
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

// outboxes reports how many outboxes a page of n opens.
func (s *story) outboxes(reader string, n int) int {
	s.t.Helper()
	return page(s.t, s.s, inbox.Feed{Reader: reader}, n).OutboxesOpened
}

// page reads the first page of a feed.
func page(t testing.TB, s *store.Store, f inbox.Feed, n int) inbox.Page {
	t.Helper()
	v := view(t, s)
	defer v.Close()
	p, err := inbox.CachedQuery(v).Feed(context.Background(), f, nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

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

// repins repeats a pin of cid's.
func repins(owner, pin string) events.Event {
	ev := posts(owner, pin)
	ev.RepinUser, ev.RepinPin = "cid", "hid"
	return ev
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

// TestFollowShowsOlderPins: who begins to follow has at once what is above the floor of the inbox,
// and what is below it.
func TestFollowShowsOlderPins(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(posts("bob", "old1"), posts("bob", "old2"), posts("bob", "p1"), posts("bob", "p2"))
		s.do(begin("ann"), posts("bob", "p3"), end("ann"), posts("bob", "p4"), posts("bob", "p5"), begin("ann"))
		s.do(posts("bob", "p6"), posts("bob", "p7"), posts("bob", "p8"))
	})
}

// TestTrimmedInboxLosesNoPin: an inbox of three entries, trimmed again and again, by posts and by
// what follows bring.
func TestTrimmedInboxLosesNoPin(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(begin("ann"))
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

// TestCrossingThePushThreshold: a user or board that gets more followers than the threshold, and
// fewer again, while inboxes are full of others.
func TestCrossingThePushThreshold(t *testing.T) {
	others := near("ann", 3)
	cid, dan, fay := others[0], others[1], others[2]
	set := inbox.DefaultSettings()
	set.Keep, set.Threshold = 3, 2
	both(t, set, func(s *story, begin, end func(string) events.Event) {
		s.do(begin("ann"), follows("ann", "eve"), posts("bob", "p1"), begin(cid))
		s.do(posts("eve", "e1"), posts("eve", "e2"), posts("bob", "p2"))
		s.do(begin(dan), posts("bob", "p3")) // the third: bob is pulled
		s.do(begin(fay), posts("bob", "p4"))
		s.do(end(dan), posts("bob", "p5"), end(cid), posts("bob", "p6"), end(fay)) // and now pushed again
		// Trimmed with the floor still below what was pulled, and then risen above it.
		for i := range 6 {
			s.do(posts("eve", fmt.Sprint("f", i)))
		}
		s.do(posts("bob", "p7"), posts("bob", "p8"), posts("bob", "p9"))
		if n := s.outboxes("ann", 2); n != 0 {
			s.t.Errorf("%d outboxes are opened for a page that the inbox holds", n)
		}
		s.do(begin(cid), begin(dan), posts("bob", "q1"), end(dan), end(cid), end("ann"), posts("bob", "q2"), begin("ann"))
	})
}

// TestFollowDropsInbox: with the first page after a follow an inbox begins anew, and holds the next
// page; what else is done leaves it.
func TestFollowDropsInbox(t *testing.T) {
	both(t, inbox.DefaultSettings(), func(s *story, begin, end func(string) events.Event) {
		s.add(follows("ann", "cid"), posts("bob", "p1"), posts("cid", "p1"), posts("bob", "p2"), posts("cid", "p2"))
		mutes := events.Event{Kind: events.UserMuted, User: "ann", Peer: "cid"}
		for i, c := range []struct {
			ev    events.Event
			opens int
		}{{posts("zoe", "x"), 1}, {begin("ann"), 2}, {mutes, 0}, {begin("dan"), 0}, {posts("bob", "p3"), 0}, {end("ann"), 0}} {
			s.add(c.ev)
			if n, again := s.outboxes("ann", 9), s.outboxes("ann", 9); n != c.opens || again != 0 {
				s.t.Errorf("event %d: %d outboxes are opened, and then %d, want %d and 0", i, n, again, c.opens)
			}
		}
	})
}

// TestMovedPinReachesFeed: a pin that is moved to a board that a reader follows reaches the feed at
// the time of its creation, also one that was moved before its history came, and whatever the
// reader follows besides.
func TestMovedPinReachesFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := newStory(t, set)
		moved := func(pin, board string) events.Event {
			return events.Event{Kind: events.PinMoved, User: "bob", Pin: pin, Board: board}
		}
		s.do(onBoard(events.BoardFollowed, "ann", "bob", "b"), postsOn("bob", "a", "p1"), postsOn("bob", "b", "p2"))
		s.do(postsOn("bob", "a", "p3"), moved("p1", "b"), postsOn("bob", "b", "p4"), moved("p2", "a"), moved("p3", "c"))
		s.do(moved("h1", "b"), moved("h2", "b"), posts("cid", "x"))
		for i := range 2 {
			ev := postsOn("bob", "a", fmt.Sprint("h", i+1))
			ev.Backfill, ev.Source, ev.Offset, ev.Time = true, "old", uint64(1+i), s.cursor.LastTime-3
			s.do(ev)
		}
		s.do(follows("ann", "bob"), moved("p3", "b"), onBoard(events.BoardUnfollowed, "ann", "bob", "b"), moved("p4", "a"))
		s.do(onBoard(events.BoardFollowed, "ann", "bob", "b"), unfollows("ann", "bob"), onBoard(events.BoardFollowed, "ann", "bob", "a"))
	}
}

// TestHistoryMakesIgnoredCreationCount: a pin was pinned again while it lived, which counts for
// nothing until history says that it had ended with its board. A page from before that has not
// learned of the second time.
func TestHistoryMakesIgnoredCreationCount(t *testing.T) {
	s := newStory(t, inbox.DefaultSettings())
	late := postsOn("bob", "b", "p")
	late.Backfill, late.Source, late.Offset, late.Time = true, "old", 1, s.start-10
	s.do(postsOn("bob", "a", "p"), events.Event{Kind: events.BoardDeleted, User: "bob", Board: "b"}, postsOn("bob", "a", "p"))
	s.do(follows("ann", "bob"), onBoard(events.BoardFollowed, "cid", "bob", "a"), late)
}

// TestExcludedBoardIsInNoFeed: what is on a board that a reader has unfollowed is in no feed of
// that reader, pushed or pulled, before and after, until the board is followed again.
func TestExcludedBoardIsInNoFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		settings := inbox.DefaultSettings()
		settings.Threshold = threshold
		s := newStory(t, settings)
		s.do(
			follows("ann", "bob"), postsOn("bob", "b", "p1"), posts("bob", "p2"),
			onBoard(events.BoardUnfollowed, "ann", "bob", "b"), postsOn("bob", "b", "p3"),
			onBoard(events.BoardFollowed, "ann", "bob", "b"), postsOn("bob", "b", "p4"),
			onBoard(events.BoardUnfollowed, "ann", "bob", "b"), unfollows("ann", "bob"), follows("ann", "bob"),
		)
	}
}

// TestBoardFollowSurvivesLateUnfollow: history says that a reader followed a user, and ceased to
// before following a board of theirs. The board stays.
func TestBoardFollowSurvivesLateUnfollow(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		settings := inbox.DefaultSettings()
		settings.Threshold = threshold
		s := newStory(t, settings)
		offset := uint64(0)
		imported := func(ev events.Event) events.Event {
			offset++
			ev.Backfill, ev.Source, ev.Offset, ev.Time = true, "old", offset, s.start+events.Micros(offset)
			return ev
		}
		s.do(postsOn("bob", "b", "p1"), posts("bob", "p2"))
		s.do(imported(follows("ann", "bob")), onBoard(events.BoardFollowed, "ann", "bob", "b"), postsOn("bob", "b", "p3"))
		s.do(imported(unfollows("ann", "bob")), postsOn("bob", "b", "p4"))
		if got, want := names(feed(t, s.s, inbox.Feed{Reader: "ann"}, 2)), []string{"bob/p4", "bob/p3", "bob/p1"}; !slices.Equal(got, want) {
			t.Errorf("threshold %d: %v, want %v", threshold, got, want)
		}
	}
}

// rows counts the rows of a store.
func rows(t testing.TB, s *store.Store) (n int) {
	t.Helper()
	eachRow(t, s, func(_, _ []byte) { n++ })
	return n
}

// entries counts what is in the inbox of a reader, after a page.
func entries(t testing.TB, s *store.Store, reader string) int {
	t.Helper()
	page(t, s, inbox.Feed{Reader: reader}, 1)
	v := view(t, s)
	defer v.Close()
	return inbox.Entries(v, reader)
}

// eachRow goes over the rows of the projection.
func eachRow(t fataler, s *store.Store, do func(key, value []byte)) {
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
