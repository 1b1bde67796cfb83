package inbox_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// longIDs are ids of every form for the users of generated histories. They are long enough to be
// searched for in rows.
var longIDs = []string{
	"raw-user-one", "8877665544332211001", "0badcafe-9dad-4dd1-8bbb-00c04fd43099",
	"9988776655443322110", "007-raw-user", "raw-user-two",
}

// TestErasedUserLeavesNoRow checks that, once a user was deleted and did not come back, no row has
// the id, whatever rows there were, and whatever imports bring afterwards (I12).
func TestErasedUserLeavesNoRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := renameUsers(histories.History(t, histories.Options{Feeds: true}), longIDs)
		set := smallSettings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep") // most inboxes are trimmed
		s := openMem(t, set)
		defer s.Close()

		// After the history, some users get many followers and pins, and are deleted.
		last := &history[len(history)-1]
		envs := histories.Envelopes(history)
		tail := &eventTail{seq: last.Seq, time: envs[len(envs)-1].Cursor.LastTime}
		victims := rapid.SliceOfNDistinct(rapid.SampledFrom(longIDs), 1, 2, rapid.ID).Draw(t, "deleted")
		for _, user := range victims {
			tail.addFollowersAndPins(user, rapid.IntRange(0, 3).Draw(t, "posts"))
		}
		for _, user := range victims {
			tail.add(events.Event{Kind: events.UserDeleted, User: user})
		}
		// Then the imports are repeated at new offsets.
		for _, ev := range history {
			if ev.Backfill {
				ev.Offset += 1_000_000
				tail.add(ev)
			}
		}
		history = append(history, tail.list...)

		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
		}

		for _, user := range deletedUsers(history) {
			checkNoRowNames(t, s, user, history)
		}
		compareFeeds(t, s, history)
	})
}

// eventTail makes events that follow a history, each in an envelope of its own.
type eventTail struct {
	seq  uint64
	time events.Micros
	list []events.Event
}

func (l *eventTail) add(ev events.Event) {
	l.seq++
	l.time++
	ev.Seq = l.seq
	ev.Slot = 0
	if !ev.Backfill {
		ev.Time = l.time
	}
	l.list = append(l.list, ev)
}

// addFollowersAndPins lets all other users follow a user, who then creates n pins.
func (l *eventTail) addFollowersAndPins(user string, n int) {
	for _, other := range longIDs {
		if other != user {
			l.add(newFollow(other, user))
		}
	}
	for i := range n {
		l.add(newPin(user, fmt.Sprint("last", i)))
	}
}

// deletedUsers returns the users who were deleted and of whom no later live event is.
func deletedUsers(history []events.Event) (users []string) {
	for _, user := range longIDs {
		deleted := false
		for i := range history {
			ev := &history[i]
			switch {
			case ev.Backfill:
			case ev.Kind == events.UserDeleted && ev.User == user:
				deleted = true
			case ev.User == user, ev.Peer == user:
				deleted = false
			}
		}
		if deleted {
			users = append(users, user)
		}
	}
	return users
}

// repinOf matches, in the description of the backfilled creation of a pin, the pin that it re-pins.
// The row of that creation keeps it as long as other history may conflict with it.
var repinOf = regexp.MustCompile(`( history:(?: \S+=\S*)*?) repin-of=\S+`)

// checkNoRowNames checks that no row has the id of a user, neither as text nor as keys encode it,
// except where repinOf matches.
func checkNoRowNames(t fataler, s *store.Store, user string, history []events.Event) {
	t.Helper()
	encodedID := bytes.TrimRight(events.AppendID(nil, user)[1:], "\x00")
	hasID := func(b []byte) bool { return bytes.Contains(b, encodedID) || bytes.Contains(b, []byte(user)) }
	eachRow(t, s, func(k, v []byte) {
		t.Helper()
		if !hasID(k) && !hasID(v) {
			return
		}
		text, err := projections.Text(inbox.DescribeRow(k, v))
		if err != nil {
			t.Fatalf("row %x: %v", k, err)
		}

		if !hasID(k) && !strings.Contains(repinOf.ReplaceAllString(text, "$1"), user) {
			return
		}
		t.Fatalf("%s was deleted, want no row with the id, but there is\n%s\nafter\n%s", user, text, formatHistory(history))
	})
}

// TestErasedUserLeavesNoRowInSteps checks the same for a user with so many rows that the deletion
// takes several steps, and who has been in every inbox, full, trimmed or dropped.
func TestErasedUserLeavesNoRowInSteps(t *testing.T) {
	for _, threshold := range []int64{-1, 100} {
		set := smallSettings(threshold)
		s := openMem(t, set)
		l := newLogBuilder(t, s)

		var history []events.Event
		for i := range 300 {
			reader := fmt.Sprint("reader", i)
			history = append(history, newFollow(reader, "bob-to-go"), newFollow("bob-to-go", reader))
			if i%2 == 0 {
				reaction := events.Event{Kind: events.Reacted, User: "bob-to-go", Item: reader}
				history = append(history, newFollow(reader, "eve"), reaction)
			}
		}
		for i := range 30 {
			pin := newPinOn("bob-to-go", fmt.Sprint("b", i%3), fmt.Sprint("p", i))
			history = append(history, pin, newPin("eve", fmt.Sprint("e", i)))
		}
		history = append(history, events.Event{Kind: events.BoardDeleted, User: "bob-to-go", Board: "b1"})
		for part := range slices.Chunk(history, events.MaxEnvelopeEvents) {
			l.add(part...)
		}
		l.add(events.Event{Kind: events.UserDeleted, User: "bob-to-go"})

		checkNoRowNames(t, s, "bob-to-go", nil)
		// Only every other reader follows eve, whose pins stay.
		for _, reader := range []string{"reader0", "reader1"} {
			want := 30
			if reader == "reader1" {
				want = 0
			}
			if got := mustReadFeed(t, s, inbox.Feed{Reader: reader}, 50); len(got) != want {
				t.Errorf("feed of %s: got %d pins, want %d", reader, len(got), want)
			}
		}

		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// mustReadFeed reads a feed to its end, and checks its pages as mustReadPages does.
func mustReadFeed(t testing.TB, s *store.Store, f inbox.Feed, n int) []inbox.Pin {
	t.Helper()
	v := mustView(t, s)
	defer v.Close()
	return mustReadPages(t, inbox.CachedQuery(v), f, n)
}

// TestErasedUserLeavesInboxes checks that the pins of an erased user are removed from the inboxes
// of followers.
func TestErasedUserLeavesInboxes(t *testing.T) {
	s := newCheckedLog(t, inbox.DefaultSettings())
	s.addChecked(newFollow("ann", "bob"), newFollow("ann", "cid"))
	s.addChecked(newPin("bob", "p"), newPin("cid", "p"), newPin("bob", "q"))
	if n := countEntries(t, s.s, "ann"); n != 3 {
		t.Fatalf("got %d entries in the inbox, want 3", n)
	}
	s.addChecked(events.Event{Kind: events.UserDeleted, User: "bob"})
	if n := countEntries(t, s.s, "ann"); n != 1 {
		t.Errorf("got %d entries in the inbox after the deletion, want only that of cid", n)
	}
}
