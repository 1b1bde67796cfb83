package histories

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

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

func checkHistory(t failer, history []events.Event) {
	t.Helper()
	last := Start // the last log time given
	var at int
	for _, env := range Envelopes(history) {
		if first := env.Events[0]; first.Seq != env.Seq() || at > 0 && history[at-1].Seq >= first.Seq {
			t.Fatalf("envelope %d begins with %+v", env.Seq(), first)
		}
		before := last
		for i, ev := range env.Events {
			if !reflect.DeepEqual(ev, history[at]) {
				t.Fatalf("envelopes reorder the history")
			}
			at++
			checkEvent(t, ev)
			if i > 0 && ev.Slot <= env.Events[i-1].Slot {
				t.Fatalf("slots fall: %+v", ev)
			}
			if !ev.Backfill && ev.Time <= last || ev.Time > env.Cursor.LastTime {
				t.Fatalf("time of %+v after %d, envelope ends at %d", ev, last, env.Cursor.LastTime)
			}
			if !ev.Backfill {
				last = ev.Time
			}
			if !env.Kinds.Has(ev.Kind) {
				t.Fatalf("kinds %v without %s", env.Kinds.Slice(), ev.Kind)
			}
		}
		last = env.Cursor.LastTime
		if end := env.Events[len(env.Events)-1].Slot; last < before+1+events.Micros(end) {
			t.Fatalf("envelope %d ends at %d", env.Seq(), last)
		}
	}
	if at != len(history) {
		t.Fatalf("%d of %d events are in envelopes", at, len(history))
	}
}

func checkEvent(t failer, ev events.Event) {
	t.Helper()
	named := ev.Kind == events.BoardCreated || ev.Kind == events.BoardDeleted
	encoded := ev.Backfill && (ev.Kind == events.BoardCreated || ev.Kind == events.PinCreated)
	switch {
	case !ev.Kind.Valid(), ev.Backfill && !ev.Kind.Backfillable(),
		ev.User == ev.Peer && ev.User != "",
		(ev.User == "") != (ev.Kind == events.BackfillClosed || ev.Kind == events.ItemScored),
		named && ev.Board == "",
		ev.Kind == events.PinCreated && ev.Item == "",
		(ev.Kind == events.Served) != (len(ev.Items) > 0) || len(ev.Items) > 100,
		(ev.Kind == events.FeedRead) != (ev.Read > 0),
		ev.Time < 0,
		ev.Backfill != (ev.Offset > 0),
		ev.Backfill != (ev.Source != "") && ev.Kind != events.BackfillClosed,
		encoded != (ev.Encoded != nil):
		t.Fatalf("malformed %+v", ev)
	}
}

func TestFixedHistoriesStayTheSame(t *testing.T) {
	for name, fixed := range map[string]func(uint64, int) []events.Event{
		"graph": Fixed, "feeds": FixedFeeds, "plays": FixedPlays,
	} {
		a, b := fixed(7, 100), fixed(7, 100)
		if len(a) != 100 || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the same seed gave two histories", name)
		}
		if reflect.DeepEqual(a, fixed(8, 100)) {
			t.Errorf("%s: two seeds gave the same history", name)
		}
		if !reflect.DeepEqual(a[:40], fixed(7, 40)) {
			t.Errorf("%s: a longer history does not begin with the shorter", name)
		}
	}
}

func TestOptions(t *testing.T) {
	opt := Options{Users: 2, Events: 20, Without: events.Kinds(events.UserDeleted), RisingOffsets: true}
	rapid.Check(t, func(t *rapid.T) {
		opt := opt
		opt.Feeds, opt.Plays = rapid.Bool().Draw(t, "feeds"), rapid.Bool().Draw(t, "plays")
		history := History(t, opt)
		if len(history) > 20 {
			t.Fatalf("%d events", len(history))
		}
		highest := map[string]uint64{}
		for _, ev := range history {
			if ev.Kind == events.UserDeleted || ev.User != "" && ev.User != userIDs[0] && ev.User != userIDs[1] {
				t.Fatalf("%+v", ev)
			}
			if key := ev.Source + ev.Kind.String(); ev.Backfill {
				if ev.Offset <= highest[key] {
					t.Fatalf("offset of %+v is not above %d", ev, highest[key])
				}
				highest[key] = ev.Offset
			}
		}
	})
}

// What is made up here would pass the log: it is valid, and read back as it was, also the bytes
// that decide between two backfills of one time.
func TestEventsPassTheLog(t *testing.T) {
	for seed := range uint64(30) {
		for _, ev := range slices.Concat(Fixed(seed, 60), FixedFeeds(seed, 60), FixedPlays(seed, 60)) {
			if rejection := events.Validate(ev.Proto()); rejection != nil {
				t.Fatalf("%+v: %v", ev, rejection)
			}
			back, rejection := events.FromProto(ev.Proto())
			if rejection != nil {
				t.Fatalf("%+v: %v", ev, rejection)
			}
			back.Seq, back.Slot, back.Time = ev.Seq, ev.Slot, ev.Time // given by the log
			if !reflect.DeepEqual(back, ev) {
				t.Fatalf("went in as %+v and came out as %+v", ev, back)
			}
		}
	}
}
