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

// checkedLog is a log that is made by hand, and compared with the model after every envelope. It is
// for cases that take many steps in order, which generated histories seldom or never reach.
type checkedLog struct {
	*logBuilder
	t       *testing.T
	history []events.Event
}

func newCheckedLog(t *testing.T, s inbox.Settings) *checkedLog {
	t.Helper()
	store := openMem(t, s)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &checkedLog{logBuilder: newLogBuilder(t, store), t: t}
}

// addChecked appends each event in an envelope of its own, and compares all answers after it.
func (s *checkedLog) addChecked(list ...events.Event) {
	s.t.Helper()
	for _, ev := range list {
		s.add(ev)

		// The history has the event as the log has it.
		ev.Seq = s.cursor.Seq
		ev.Slot = 0
		if !ev.Backfill {
			ev.Time = s.cursor.LastTime
		}
		s.history = append(s.history, ev)
		compareFeeds(s.t, s.s, s.history)
	}
}

// countOutboxes returns how many outboxes a page of n pins opens.
func (s *checkedLog) countOutboxes(reader string, n int) int {
	s.t.Helper()
	return mustReadPage(s.t, s.s, inbox.Feed{Reader: reader}, n).OutboxesOpened
}

// mustReadPage reads the first page of a feed.
func mustReadPage(t testing.TB, s *store.Store, f inbox.Feed, n int) inbox.Page {
	t.Helper()
	v := mustView(t, s)
	defer v.Close()
	p, err := inbox.CachedQuery(v).Feed(context.Background(), f, nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newFollow(user, peer string) events.Event {
	return events.Event{Kind: events.UserFollowed, User: user, Peer: peer}
}

func newUnfollow(user, peer string) events.Event {
	return events.Event{Kind: events.UserUnfollowed, User: user, Peer: peer}
}

func newBoardEvent(kind events.Kind, user, peer, board string) events.Event {
	return events.Event{Kind: kind, User: user, Peer: peer, Board: board}
}

func newPin(owner, pin string) events.Event { return newPinOn(owner, "", pin) }

func newPinOn(owner, board, pin string) events.Event {
	return events.Event{Kind: events.PinCreated, User: owner, Board: board, Pin: pin, Item: pin}
}

// newRepin returns the creation of a pin that re-pins one of cid's.
func newRepin(owner, pin string) events.Event {
	ev := newPin(owner, pin)
	ev.RepinUser = "cid"
	ev.RepinPin = "hid"
	return ev
}

// newImported returns a backfilled event of the import "old".
func newImported(ev events.Event, offset uint64, at events.Micros) events.Event {
	ev.Backfill = true
	ev.Source = "old"
	ev.Offset = offset
	ev.Time = at
	return ev
}

// forUserAndBoard runs a test in which users begin and end to follow bob, and again in which they
// begin and end to follow a board of bob.
func forUserAndBoard(
	t *testing.T, s inbox.Settings, run func(s *checkedLog, begin, end func(user string) events.Event),
) {
	t.Helper()
	t.Run("user", func(t *testing.T) {
		begin := func(user string) events.Event { return newFollow(user, "bob") }
		end := func(user string) events.Event { return newUnfollow(user, "bob") }
		run(newCheckedLog(t, s), begin, end)
	})
	t.Run("board", func(t *testing.T) {
		begin := func(user string) events.Event { return newBoardEvent(events.BoardFollowed, user, "bob", "") }
		end := func(user string) events.Event { return newBoardEvent(events.BoardUnfollowed, user, "bob", "") }
		run(newCheckedLog(t, s), begin, end)
	})
}

// TestFollowShowsOlderPins checks that a user who begins to follow has at once the pins above the
// floor of the inbox, and those below it.
func TestFollowShowsOlderPins(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	forUserAndBoard(t, set, func(s *checkedLog, begin, end func(string) events.Event) {
		s.addChecked(newPin("bob", "old1"), newPin("bob", "old2"), newPin("bob", "p1"), newPin("bob", "p2"))
		s.addChecked(begin("ann"), newPin("bob", "p3"), end("ann"), newPin("bob", "p4"), newPin("bob", "p5"), begin("ann"))
		s.addChecked(newPin("bob", "p6"), newPin("bob", "p7"), newPin("bob", "p8"))
	})
}

// TestTrimmedInboxLosesNoPin checks that no pin is missing from an inbox of three entries that is
// trimmed again and again, by new pins and by what follows bring.
func TestTrimmedInboxLosesNoPin(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	forUserAndBoard(t, set, func(s *checkedLog, begin, end func(string) events.Event) {
		s.addChecked(begin("ann"))
		for i := range 8 {
			s.addChecked(newPin("bob", fmt.Sprint("p", i)), newPin("cid", fmt.Sprint("p", i)))
		}

		// The reader follows another user, and ends and begins to follow bob.
		s.addChecked(newFollow("ann", "cid"), end("ann"), newPin("bob", "q"), begin("ann"))

		// Then history arrives below the floor, above it, and where it is.
		for i, at := range []events.Micros{
			1, s.start, s.history[len(s.history)-6].Time, s.history[len(s.history)-2].Time, s.history[3].Time,
		} {
			s.addChecked(newImported(newPin("cid", fmt.Sprint("h", i)), uint64(1+i), at))
		}
		s.addChecked(newPin("cid", "r"), newPin("bob", "r"))
	})
}

// TestCrossingThePushThreshold checks a user or board that gets more followers than the threshold,
// and fewer again, while inboxes are full of pins of others.
func TestCrossingThePushThreshold(t *testing.T) {
	others := usersNear("ann", 3)
	cid, dan, fay := others[0], others[1], others[2]
	set := inbox.DefaultSettings()
	set.Keep = 3
	set.Threshold = 2
	forUserAndBoard(t, set, func(s *checkedLog, begin, end func(string) events.Event) {
		s.addChecked(begin("ann"), newFollow("ann", "eve"), newPin("bob", "p1"), begin(cid))
		s.addChecked(newPin("eve", "e1"), newPin("eve", "e2"), newPin("bob", "p2"))

		// The third follower makes bob pulled. Once enough of them have ended that, bob is pushed
		// again.
		s.addChecked(begin(dan), newPin("bob", "p3"))
		s.addChecked(begin(fay), newPin("bob", "p4"))
		s.addChecked(end(dan), newPin("bob", "p5"), end(cid), newPin("bob", "p6"), end(fay))

		// Pins of eve trim the inbox, first with the floor below what was pulled, and then above
		// it.
		for i := range 6 {
			s.addChecked(newPin("eve", fmt.Sprint("f", i)))
		}
		s.addChecked(newPin("bob", "p7"), newPin("bob", "p8"), newPin("bob", "p9"))
		if n := s.countOutboxes("ann", 2); n != 0 {
			s.t.Errorf("got %d opened outboxes for a page that the inbox holds, want none", n)
		}

		s.addChecked(begin(cid), begin(dan), newPin("bob", "q1"), end(dan), end(cid), end("ann"), newPin("bob", "q2"), begin("ann"))
	})
}

// TestFollowDropsInbox checks that an inbox begins anew with the first page after a follow, and then
// holds the next page. Other events leave the inbox as it is.
func TestFollowDropsInbox(t *testing.T) {
	forUserAndBoard(t, inbox.DefaultSettings(), func(s *checkedLog, begin, end func(string) events.Event) {
		s.add(newFollow("ann", "cid"), newPin("bob", "p1"), newPin("cid", "p1"), newPin("bob", "p2"), newPin("cid", "p2"))
		mutes := events.Event{Kind: events.UserMuted, User: "ann", Peer: "cid"}
		for i, c := range []struct {
			ev           events.Event
			wantOutboxes int
		}{
			{newPin("zoe", "x"), 1},
			{begin("ann"), 2},
			{mutes, 0},
			{begin("dan"), 0},
			{newPin("bob", "p3"), 0},
			{end("ann"), 0},
		} {
			s.add(c.ev)
			first := s.countOutboxes("ann", 9)
			second := s.countOutboxes("ann", 9)
			if first != c.wantOutboxes || second != 0 {
				s.t.Errorf("event %d: two pages open %d and %d outboxes, want %d and 0", i, first, second, c.wantOutboxes)
			}
		}
	})
}

// TestMovedPinReachesFeed checks that a pin that is moved to a board that a reader follows reaches
// the feed at the time of its creation, even if it was moved before its history came, and whatever
// else the reader follows.
func TestMovedPinReachesFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		set := inbox.DefaultSettings()
		set.Threshold = threshold
		s := newCheckedLog(t, set)
		moved := func(pin, board string) events.Event {
			return events.Event{Kind: events.PinMoved, User: "bob", Pin: pin, Board: board}
		}

		s.addChecked(newBoardEvent(events.BoardFollowed, "ann", "bob", "b"), newPinOn("bob", "a", "p1"), newPinOn("bob", "b", "p2"))
		s.addChecked(newPinOn("bob", "a", "p3"), moved("p1", "b"), newPinOn("bob", "b", "p4"), moved("p2", "a"), moved("p3", "c"))

		// The history of h1 and h2 comes after their moves.
		s.addChecked(moved("h1", "b"), moved("h2", "b"), newPin("cid", "x"))
		for i := range 2 {
			s.addChecked(newImported(newPinOn("bob", "a", fmt.Sprint("h", i+1)), uint64(1+i), s.cursor.LastTime-3))
		}

		// The reader follows bob as well, and then another board.
		s.addChecked(newFollow("ann", "bob"), moved("p3", "b"), newBoardEvent(events.BoardUnfollowed, "ann", "bob", "b"), moved("p4", "a"))
		s.addChecked(newBoardEvent(events.BoardFollowed, "ann", "bob", "b"), newUnfollow("ann", "bob"))
		s.addChecked(newBoardEvent(events.BoardFollowed, "ann", "bob", "a"))
	}
}

// TestHistoryMakesIgnoredCreationCount creates a pin again while it exists, which has no effect
// until history says that the pin had ended with its board. The inbox that the first page has made
// does not know of the second creation.
func TestHistoryMakesIgnoredCreationCount(t *testing.T) {
	s := newCheckedLog(t, inbox.DefaultSettings())
	late := newImported(newPinOn("bob", "b", "p"), 1, s.start-10)
	s.addChecked(newPinOn("bob", "a", "p"))
	s.addChecked(events.Event{Kind: events.BoardDeleted, User: "bob", Board: "b"}, newPinOn("bob", "a", "p"))
	s.addChecked(newFollow("ann", "bob"), newBoardEvent(events.BoardFollowed, "cid", "bob", "a"), late)
}

// TestExcludedBoardIsInNoFeed checks that the pins of a board that a reader has unfollowed are in no
// feed of that reader, pushed or pulled, old or new, until the reader follows the board again.
func TestExcludedBoardIsInNoFeed(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		settings := inbox.DefaultSettings()
		settings.Threshold = threshold
		s := newCheckedLog(t, settings)
		s.addChecked(
			newFollow("ann", "bob"), newPinOn("bob", "b", "p1"), newPin("bob", "p2"),
			newBoardEvent(events.BoardUnfollowed, "ann", "bob", "b"), newPinOn("bob", "b", "p3"),
			newBoardEvent(events.BoardFollowed, "ann", "bob", "b"), newPinOn("bob", "b", "p4"),
			newBoardEvent(events.BoardUnfollowed, "ann", "bob", "b"), newUnfollow("ann", "bob"), newFollow("ann", "bob"),
		)
	}
}

// TestBoardFollowSurvivesLateUnfollow imports the history of a reader who followed a user and ended
// that before following a board of the user. The board must stay followed.
func TestBoardFollowSurvivesLateUnfollow(t *testing.T) {
	for _, threshold := range []int64{-1, 0} {
		settings := inbox.DefaultSettings()
		settings.Threshold = threshold
		s := newCheckedLog(t, settings)
		offset := uint64(0)
		imported := func(ev events.Event) events.Event {
			offset++
			return newImported(ev, offset, s.start+events.Micros(offset))
		}
		s.addChecked(newPinOn("bob", "b", "p1"), newPin("bob", "p2"))
		s.addChecked(imported(newFollow("ann", "bob")), newBoardEvent(events.BoardFollowed, "ann", "bob", "b"), newPinOn("bob", "b", "p3"))
		s.addChecked(imported(newUnfollow("ann", "bob")), newPinOn("bob", "b", "p4"))
		want := []string{"bob/p4", "bob/p3", "bob/p1"}
		if got := pinNames(mustReadFeed(t, s.s, inbox.Feed{Reader: "ann"}, 2)); !slices.Equal(got, want) {
			t.Errorf("threshold %d: got the feed %v, want %v", threshold, got, want)
		}
	}
}

// countRows returns the number of rows of the projection.
func countRows(t testing.TB, s *store.Store) (n int) {
	t.Helper()
	eachRow(t, s, func(_, _ []byte) { n++ })
	return n
}

// countEntries returns the number of entries in the inbox of a reader, after a page.
func countEntries(t testing.TB, s *store.Store, reader string) int {
	t.Helper()
	mustReadPage(t, s, inbox.Feed{Reader: reader}, 1)
	v := mustView(t, s)
	defer v.Close()
	return inbox.Entries(v, reader)
}

// eachRow calls visit for each row of the projection.
func eachRow(t fataler, s *store.Store, visit func(key, value []byte)) {
	t.Helper()
	v := mustView(t, s)
	defer v.Close()
	it := v.Iter(nil, nil)
	for it.Next() {
		if !projections.IsRuntimeKey(it.Key()) {
			visit(it.Key(), it.Value())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("read rows: %v", err)
	}
}
