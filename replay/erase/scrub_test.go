package erase

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

// smallSettings returns settings with which feeds read the pins of some owners from outboxes after a few events. With the default settings that takes
// thousands.
func smallSettings() all.Settings {
	s := all.Settings{Inbox: inbox.DefaultSettings(), Counters: counters.DefaultSettings()}
	s.Inbox.Threshold = 1
	return s
}

// scrubEnvelopes returns the envelopes as the archive has them after the erasure of a user.
func scrubEnvelopes(envs []*events.Envelope, s *scrubber) (out []*events.Envelope) {
	for _, env := range envs {
		e := *env
		e.Events, e.Rejects, e.Kinds = nil, nil, 0

		for i := range env.Events {
			if ev, keep := s.scrubEvent(&env.Events[i]); keep {
				e.Events = append(e.Events, *ev)
				e.Kinds |= events.Kinds(ev.Kind)
			}
		}
		for i := range env.Rejects {
			if r, keep := s.scrubReject(&env.Rejects[i]); keep {
				e.Rejects = append(e.Rejects, *r)
			}
		}

		out = append(out, &e)
	}
	return out
}

// lastDeletion returns the position of the last deletion of a user.
func lastDeletion(envs []*events.Envelope, user string) (seq uint64, slot uint16, ok bool) {
	for _, env := range envs {
		for _, ev := range env.Events {
			if ev.Kind == events.UserDeleted && ev.User == user {
				seq, slot, ok = ev.Seq, ev.Slot, true
			}
		}
	}
	return seq, slot, ok
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func rowsOf(t failer, p projections.Projection, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: p})
	if err == nil {
		err = s.Fold(envs)
	}
	if err == nil {
		err = s.Flush()
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer s.Close()

	v, err := s.View()
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer v.Close()

	var rows conformance.Rows
	for it := v.Iter(nil, nil); ; {
		if !it.Next() {
			if err := it.Close(); err != nil {
				t.Fatalf("%v", err)
			}
			return rows
		}

		rows = append(rows, conformance.Row{Key: bytes.Clone(it.Key()), Value: bytes.Clone(it.Value())})
	}
}

// checkFoldsAlike compares the rows of all projections over a log with those over the log without a user. It does nothing if the user is not deleted.
func checkFoldsAlike(t failer, set all.Settings, envs []*events.Envelope, user string, what fmt.Stringer) {
	t.Helper()
	seq, slot, ok := lastDeletion(envs, user)
	if !ok {
		return
	}

	clean := scrubEnvelopes(envs, newScrubber(envs[0].Cursor.Log, user, seq, slot))
	for _, maker := range all.Constructors(set) {
		want, got := rowsOf(t, maker(), envs), rowsOf(t, maker(), clean)
		for i := range max(len(want), len(got)) {
			if i < len(want) && i < len(got) && bytes.Equal(want[i].Key, got[i].Key) && bytes.Equal(want[i].Value, got[i].Value) {
				continue
			}

			tell := func(rows conformance.Rows) string {
				if i >= len(rows) {
					return "nothing"
				}
				text, err := all.Describe(maker().Name(), rows[i].Key, rows[i].Value)
				return fmt.Sprint(text, " ", err)
			}
			t.Fatalf("%s after the erasure of %s at %d: row %d of the scrubbed log is\n%s\nexpected, as of the original log:\n%s\n%v", maker().Name(), user, seq, i,
				tell(got), tell(want), what)
		}
	}
}

type history []events.Event

func (h history) String() string {
	var b bytes.Buffer
	for _, ev := range h {
		fmt.Fprintf(&b, "%d/%d %v backfill=%v user=%q peer=%q board=%q pin=%q item=%q repin=%q\n", ev.Seq, ev.Slot, ev.Kind, ev.Backfill,
			ev.User, ev.Peer, ev.Board, ev.Pin, ev.Item, ev.RepinUser)
	}
	return b.String()
}

// From the deletion of a user on, a fold of the scrubbed log has the same rows as a fold of the original log (I12, I4).
func TestScrubbedLogFoldsAlike(t *testing.T) {
	for name, opt := range map[string]histories.Options{
		"graph": {}, "feeds": {Feeds: true}, "plays": {Plays: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				evs := histories.History(rt, opt)
				user := rapid.SampledFrom(evs).Draw(rt, "of").User
				if user == "" {
					return
				}

				end := rapid.IntRange(1, len(evs)).Draw(rt, "deleted after")
				evs = insertDeletion(evs, end, user)
				checkFoldsAlike(rt, smallSettings(), histories.Envelopes(evs), user, history(evs))
			})
		})
	}
}

// insertDeletion inserts the deletion of a user, in an envelope of its own, after the envelope of the n-th event.
func insertDeletion(evs []events.Event, n int, user string) []events.Event {
	for n < len(evs) && evs[n].Seq == evs[n-1].Seq {
		n++
	}

	last := histories.Envelopes(evs[:n])
	at := last[len(last)-1].Cursor.LastTime + 1

	out := append(append([]events.Event(nil), evs[:n]...), events.Event{
		Kind: events.UserDeleted, User: user, Seq: evs[n-1].Seq + 1, Time: at,
	})
	for _, ev := range evs[n:] {
		ev.Seq++
		if !ev.Backfill {
			ev.Time += 2
		}
		out = append(out, ev)
	}

	return out
}

// TestScrubbedWorldFoldsAlike checks the same with longer logs, in which 40 users do everything.
func TestScrubbedWorldFoldsAlike(t *testing.T) {
	for seed := range uint64(4) {
		w := memlog.NewWorld(seed, 40)
		envs := w.Envelopes(1500)
		envs[700].Rejects = append(envs[700].Rejects, events.Reject{Seq: envs[700].Seq(), Slot: -1, Data: []byte("of user3 or user1")})

		for _, user := range []string{"user0", "user3", "user17"} {
			envs := append(append(slices.Clip(envs), w.Envelope(events.Event{Kind: events.UserDeleted, User: user})),
				w.Envelopes(100)...)
			checkFoldsAlike(t, smallSettings(), envs, user, seedOf(seed))
		}
	}
}

type seedOf uint64

func (s seedOf) String() string { return fmt.Sprint("seed ", uint64(s)) }

// The report names every kind of text in which a scrubbed event still contains the id, and no other.
func TestScrubberReportsRemainingTexts(t *testing.T) {
	const user = "zoe-to-be-erased"
	all := "names of import sources, item ids, ids of boards or pins, titles of boards of others, attributes of pins of others"
	for name, c := range map[string]struct {
		event events.Event
		want  string
	}{
		"an event of others without the id": {events.Event{User: "ann", Peer: "bob", Item: "film", Title: "Films"}, ""},
		"the id as the user of an event":    {events.Event{User: user, Peer: "bob"}, ""},
		"a title of the user, which is removed": {events.Event{
			User: user, Title: "of " + user, Items: []string{user}, Attributes: []byte(user),
		}, ""},
		"an import source":  {events.Event{User: "ann", Source: "export-of-" + user}, "names of import sources"},
		"an item":           {events.Event{User: "ann", Item: user + "/film"}, "item ids"},
		"a pin of the user": {events.Event{User: user, Pin: user + "-1"}, "ids of boards or pins"},
		"a later event":     {events.Event{User: "ann", Item: user, Seq: 11}, ""},
		"everything at once": {events.Event{
			User: "ann", Source: user, Item: user, Board: user, Title: user, Attributes: []byte(user),
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScrubber(events.LogID{}, user, 10, 0)
			s.scrubEvent(&c.event)
			if got := s.remaining.String(); got != c.want {
				t.Errorf("expected %q, got %q", c.want, got)
			}
		})
	}
}
