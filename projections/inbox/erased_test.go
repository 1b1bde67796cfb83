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

// longIDs are ids of every form for the users of generated histories, whose own are too short to be
// looked for in rows.
var longIDs = []string{
	"raw-user-one", "8877665544332211001", "0badcafe-9dad-4dd1-8bbb-00c04fd43099", "9988776655443322110", "007-raw-user", "raw-user-two",
}

// TestErasedUserLeavesNoRow: once a user was deleted and did not come back, no row has the id,
// whatever there was, whatever imports bring afterwards (I12).
func TestErasedUserLeavesNoRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := renamed(histories.History(t, histories.Options{Feeds: true}), longIDs)
		set := settings(rapid.SampledFrom(thresholds).Draw(t, "threshold"))
		set.Keep = rapid.IntRange(1, 3).Draw(t, "keep") // most inboxes are trimmed
		s := openMem(t, set)
		defer s.Close()
		last := &history[len(history)-1]
		end := histories.Envelopes(history)
		tail := &tail{seq: last.Seq, time: end[len(end)-1].Cursor.LastTime}
		victims := rapid.SliceOfNDistinct(rapid.SampledFrom(longIDs), 1, 2, rapid.ID).Draw(t, "deleted")
		for _, user := range victims {
			tail.popular(user, rapid.IntRange(0, 3).Draw(t, "posts"))
		}
		for _, user := range victims {
			tail.add(events.Event{Kind: events.UserDeleted, User: user})
		}
		// The import comes again, at offsets that are new.
		for _, ev := range history {
			if ev.Backfill {
				ev.Offset += 1_000_000
				tail.add(ev)
			}
		}
		history = append(history, tail.list...)
		for _, env := range histories.Envelopes(history) {
			fold(t, s, env)
		}
		for _, user := range gone(history) {
			checkGone(t, s, user, history)
		}
		compare(t, s, history)
	})
}

// tail makes events that follow a history, each in an envelope.
type tail struct {
	seq  uint64
	time events.Micros
	list []events.Event
}

func (l *tail) add(ev events.Event) {
	l.seq++
	l.time++
	if ev.Seq, ev.Slot = l.seq, 0; !ev.Backfill {
		ev.Time = l.time
	}
	l.list = append(l.list, ev)
}

// popular makes a user stand in the inboxes of all others.
func (l *tail) popular(user string, n int) {
	for _, other := range longIDs {
		if other != user {
			l.add(follows(other, user))
		}
	}
	for i := range n {
		l.add(posts(user, fmt.Sprint("last", i)))
	}
}

// gone are the users of whom no live event is after their deletion.
func gone(history []events.Event) (users []string) {
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

// repinOf is what the backfilled creation of a pin of another user says of the pin that it re-pins:
// while other history may come that is held against it, it stays.
var repinOf = regexp.MustCompile(`( history:(?: \S+=\S*)*?) repin-of=\S+`)

// checkGone looks for the id of a user in all rows, as text and as keys have it.
func checkGone(t fataler, s *store.Store, user string, history []events.Event) {
	t.Helper()
	key := events.AppendID(nil, user)
	key = bytes.TrimRight(key[1:], "\x00")
	eachRow(t, s, func(k, v []byte) {
		t.Helper()
		in := func(b []byte) bool { return bytes.Contains(b, key) || bytes.Contains(b, []byte(user)) }
		if !in(k) && !in(v) {
			return
		}
		text, err := projections.Text(inbox.DescribeRow(k, v))
		if err != nil {
			t.Fatalf("row %x: %v", k, err)
		}
		if !in(k) && !strings.Contains(repinOf.ReplaceAllString(text, "$1"), user) {
			return
		}
		t.Fatalf("%s was deleted and is named in the row\n%s\nafter\n%s", user, text, tell(history))
	})
}

// TestErasedUserLeavesNoRowInSteps: the same for a user who has been in every inbox, full or
// trimmed or lost, with steps in between.
func TestErasedUserLeavesNoRowInSteps(t *testing.T) {
	for _, threshold := range []int64{-1, 100} {
		set := settings(threshold)
		s := openMem(t, set)
		l := newLog(t, s)
		var history []events.Event
		for i := range 300 {
			reader := fmt.Sprint("reader", i)
			history = append(history, follows(reader, "bob-to-go"), follows("bob-to-go", reader))
			if i%2 == 0 {
				history = append(history, follows(reader, "eve"), events.Event{Kind: events.Reacted, User: "bob-to-go", Item: reader})
			}
		}
		for i := range 30 {
			history = append(history, postsOn("bob-to-go", fmt.Sprint("b", i%3), fmt.Sprint("p", i)), posts("eve", fmt.Sprint("e", i)))
		}
		history = append(history, events.Event{Kind: events.BoardDeleted, User: "bob-to-go", Board: "b1"})
		for part := range slices.Chunk(history, events.MaxEnvelopeEvents) {
			l.add(part...)
		}
		l.add(events.Event{Kind: events.UserDeleted, User: "bob-to-go"})
		checkGone(t, s, "bob-to-go", nil)
		for _, reader := range []string{"reader0", "reader1"} {
			want := 30
			if reader == "reader1" {
				want = 0
			}
			if got := feed(t, s, inbox.Feed{Reader: reader}, 50); len(got) != want {
				t.Errorf("%s has a feed of %d pins, want %d", reader, len(got), want)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// feed reads a feed to its end, and looks at the pages.
func feed(t testing.TB, s *store.Store, f inbox.Feed, n int) []inbox.Pin {
	t.Helper()
	v := view(t, s)
	defer v.Close()
	return pages(t, inbox.CachedQuery(v), f, n)
}

// TestErasedUserLeavesInboxes: what an erased user has pinned leaves the inboxes of followers.
func TestErasedUserLeavesInboxes(t *testing.T) {
	s := newStory(t, inbox.DefaultSettings())
	s.do(follows("ann", "bob"), follows("ann", "cid"))
	s.do(posts("bob", "p"), posts("cid", "p"), posts("bob", "q"))
	if n := entries(t, s.s, "ann"); n != 3 {
		t.Fatalf("%d entries, want 3", n)
	}
	s.do(events.Event{Kind: events.UserDeleted, User: "bob"})
	if n := entries(t, s.s, "ann"); n != 1 {
		t.Errorf("%d entries, want that of cid", n)
	}
}
