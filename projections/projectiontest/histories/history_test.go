package histories

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// TestHistoriesAreWellFormed checks generated and fixed histories of every kind.
func TestHistoriesAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkHistory(t, History(t, Options{})) })
	rapid.Check(t, func(t *rapid.T) { checkHistory(t, History(t, Options{Feeds: true})) })
	rapid.Check(t, func(t *rapid.T) { checkHistory(t, History(t, Options{Plays: true})) })
	for seed := range uint64(20) {
		checkHistory(t, Fixed(seed, 200))
		checkHistory(t, FixedFeeds(seed, 200))
		checkHistory(t, FixedPlays(seed, 200))
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkHistory checks the events of a history, and that its envelopes have them in order.
func checkHistory(t failer, history []events.Event) {
	t.Helper()
	last := Start // the last log time given
	index := 0    // of the next event in the history
	for _, env := range Envelopes(history) {
		first := env.Events[0]
		if first.Seq != env.Seq() {
			t.Fatalf("envelope %d begins with an event of sequence %d, want %d: %+v", env.Seq(), first.Seq, env.Seq(), first)
		}
		if index > 0 && history[index-1].Seq >= first.Seq {
			t.Fatalf("envelope %d comes after sequence %d, want a later one: %+v", env.Seq(), history[index-1].Seq, first)
		}

		before := last
		for i, ev := range env.Events {
			if !reflect.DeepEqual(ev, history[index]) {
				t.Fatalf("event %d of the envelopes is %+v, want %+v as in the history", index, ev, history[index])
			}
			index++
			checkEvent(t, ev)
			if i > 0 && ev.Slot <= env.Events[i-1].Slot {
				t.Fatalf("slot %d comes after slot %d, want rising slots: %+v", ev.Slot, env.Events[i-1].Slot, ev)
			}
			if !ev.Backfill && ev.Time <= last {
				t.Fatalf("time %d comes after %d, want rising times: %+v", ev.Time, last, ev)
			}
			if ev.Time > env.Cursor.LastTime {
				t.Fatalf("time %d is in an envelope that ends at %d, want no later time: %+v", ev.Time, env.Cursor.LastTime, ev)
			}
			if !ev.Backfill {
				last = ev.Time
			}
			if !env.Kinds.Has(ev.Kind) {
				t.Fatalf("the envelope has the kinds %v, want %s among them", env.Kinds.Slice(), ev.Kind)
			}
		}

		// Each slot takes a microsecond of log time.
		last = env.Cursor.LastTime
		end := env.Events[len(env.Events)-1].Slot
		if earliest := before + 1 + events.Micros(end); last < earliest {
			t.Fatalf("envelope %d ends at %d, want %d or later", env.Seq(), last, earliest)
		}
	}
	if index != len(history) {
		t.Fatalf("%d events are in envelopes, want all %d", index, len(history))
	}
}

// checkEvent checks that an event is valid and has the fields of its kind.
func checkEvent(t failer, ev events.Event) {
	t.Helper()
	namesBoard := ev.Kind == events.BoardCreated || ev.Kind == events.BoardDeleted
	wantEncoded := ev.Backfill && (ev.Kind == events.BoardCreated || ev.Kind == events.PinCreated)
	wantUser := ev.Kind != events.BackfillClosed && ev.Kind != events.ItemScored

	for _, c := range []struct {
		rule  string
		holds bool
	}{
		{"a valid kind", ev.Kind.Valid()},
		{"a kind that can be backfilled, if it is a backfill", !ev.Backfill || ev.Kind.Backfillable()},
		{"another peer than the user", ev.User != ev.Peer || ev.User == ""},
		{"a user, unless the kind has none", (ev.User != "") == wantUser},
		{"a board, if its board is created or deleted", !namesBoard || ev.Board != ""},
		{"an item, if its pin is created", ev.Kind != events.PinCreated || ev.Item != ""},
		{"items, if and only if they are served", (ev.Kind == events.Served) == (len(ev.Items) > 0)},
		{"at most 100 items", len(ev.Items) <= 100},
		{"a read marker, if and only if the feed is read", (ev.Kind == events.FeedRead) == (ev.Read > 0)},
		{"no negative time", ev.Time >= 0},
		{"an offset, if and only if it is a backfill", ev.Backfill == (ev.Offset > 0)},
		{
			"a source, if and only if it is a backfill, unless it closes imports",
			ev.Kind == events.BackfillClosed || ev.Backfill == (ev.Source != ""),
		},
		{"its bytes, if and only if it is the backfilled creation of a board or pin", wantEncoded == (ev.Encoded != nil)},
	} {
		if !c.holds {
			t.Fatalf("malformed event %+v, want %s", ev, c.rule)
		}
	}
}

// TestFixedHistoriesStayTheSame checks that a fixed history depends on its seed only, and that a
// longer one begins with the shorter.
func TestFixedHistoriesStayTheSame(t *testing.T) {
	for name, fixed := range map[string]func(uint64, int) []events.Event{
		"graph": Fixed, "feeds": FixedFeeds, "plays": FixedPlays,
	} {
		t.Run(name, func(t *testing.T) {
			first := fixed(7, 100)
			if len(first) != 100 {
				t.Errorf("got %d events, want 100", len(first))
			}
			if diff := cmp.Diff(first, fixed(7, 100)); diff != "" {
				t.Errorf("two histories of one seed differ (-first +second):\n%s", diff)
			}
			if reflect.DeepEqual(first, fixed(8, 100)) {
				t.Error("seeds 7 and 8 give the same history, want two")
			}
			if diff := cmp.Diff(first[:40], fixed(7, 40)); diff != "" {
				t.Errorf("a longer history does not begin with the shorter (-longer +shorter):\n%s", diff)
			}
		})
	}
}

// TestOptions checks the limits that options set: the numbers of users and events, kinds that do
// not occur, and offsets that rise.
func TestOptions(t *testing.T) {
	opt := Options{Users: 2, Events: 20, Without: events.Kinds(events.UserDeleted), RisingOffsets: true}
	rapid.Check(t, func(t *rapid.T) {
		opt := opt
		opt.Feeds = rapid.Bool().Draw(t, "feeds")
		opt.Plays = rapid.Bool().Draw(t, "plays")
		history := History(t, opt)
		if len(history) > 20 {
			t.Fatalf("got %d events, want at most 20", len(history))
		}

		highest := map[string]uint64{}
		for _, ev := range history {
			if ev.Kind == events.UserDeleted {
				t.Fatalf("got %+v, want no event of this kind", ev)
			}
			if ev.User != "" && ev.User != userIDs[0] && ev.User != userIDs[1] {
				t.Fatalf("got an event of user %s, want only users %q: %+v", ev.User, userIDs[:2], ev)
			}
			if ev.Backfill {
				importKey := ev.Source + ev.Kind.String()
				if ev.Offset <= highest[importKey] {
					t.Fatalf("got offset %d after %d, want a higher one: %+v", ev.Offset, highest[importKey], ev)
				}
				highest[importKey] = ev.Offset
			}
		}
	})
}

// TestEventsPassTheLog checks that the log would accept the events of histories: they are valid, and
// are decoded as they were encoded, including the bytes that decide between two backfills of one
// time.
func TestEventsPassTheLog(t *testing.T) {
	for seed := range uint64(30) {
		for _, ev := range slices.Concat(Fixed(seed, 60), FixedFeeds(seed, 60), FixedPlays(seed, 60)) {
			if rejection := events.Validate(ev.Proto()); rejection != nil {
				t.Fatalf("validate %+v: got rejection %v, want none", ev, rejection)
			}
			decoded, rejection := events.FromProto(ev.Proto())
			if rejection != nil {
				t.Fatalf("decode %+v: got rejection %v, want none", ev, rejection)
			}

			// The log gives the position, and the time of live events.
			decoded.Seq = ev.Seq
			decoded.Slot = ev.Slot
			decoded.Time = ev.Time
			if !reflect.DeepEqual(decoded, ev) {
				t.Fatalf("got the decoded event %+v, want %+v", decoded, ev)
			}
		}
	}
}
