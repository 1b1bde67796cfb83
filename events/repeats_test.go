package events

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestRepeatIsDropped demands that an event with the acting user, kind and event id of another one
// within the horizon is dropped as a repeat, or becomes a reject if its content differs (I6).
func TestRepeatIsDropped(t *testing.T) {
	f := newFeeder(t)
	unliked := &skeinv1.Event{EventId: "r", Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "a", ItemId: "1"}}}
	scored := func(item string) *skeinv1.Event {
		return &skeinv1.Event{EventId: "r", Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: item}}}
	}

	env := f.feed(epoch2023,
		// One event id of one user: a repeat in slot 1 and a reused id in slot 2.
		newLike("a", "1", "r"), newLike("a", "1", "r"), newLike("a", "2", "r"),
		// Another user, kind or id.
		newLike("b", "1", "r"), unliked, newLike("a", "1", "r2"),
		// Without an id.
		newLike("a", "1", ""), newLike("a", "1", ""),
		// Without an acting user: a reused id in slot 9.
		scored("1"), scored("2"))
	if len(env.Rejects) != 2 || env.Rejects[0].Slot != 2 || env.Rejects[1].Slot != 9 {
		t.Fatalf("rejects: got %+v, want the reused ids in slots 2 and 9", env.Rejects)
	}
	reject := env.Rejects[0]
	if reject.Rejection.Reason != skeinv1.Reason_REASON_EVENT_ID_REUSED || reject.Rejection.Field != "event_id" || len(reject.Data) == 0 {
		t.Errorf("first reject: got %+v, want the reason EVENT_ID_REUSED, the field event_id and some data", reject)
	}
	if env.Repeats != 1 {
		t.Errorf("repeats: got %d, want 1", env.Repeats)
	}
	if want := Kinds(Reacted, Unreacted, ItemScored); env.Kinds != want {
		t.Errorf("kinds: got %b, want %b", env.Kinds, want)
	}
	if len(env.Events) != 7 {
		t.Fatalf("events: got %+v, want 7", env.Events)
	}
	for i, slot := range []uint16{0, 3, 4, 5, 6, 7, 8} {
		if ev := env.Events[i]; ev.Slot != slot || ev.Time != epoch2023+Micros(slot) {
			t.Errorf("event %d: got slot %d and time %d, want %d for both", i, ev.Slot, ev.Time-epoch2023, slot)
		}
	}

	env = f.feed(epoch2023+minute, newLike("a", "1", "r"))
	if env.Repeats != 1 || len(env.Rejects) != 0 || len(env.Events) != 0 || env.Kinds != 0 {
		t.Errorf("envelope with only a repeat: got %+v, want one repeat and no events", env)
	}
	if want := epoch2023 + minute; env.Cursor.LastTime != want {
		t.Errorf("last time after a repeat: got %d, want the time of its slot, %d", env.Cursor.LastTime, want)
	}
}

// TestRepeatHorizonIsExact demands that the horizon is exactly 15 minutes of log time (I6).
func TestRepeatHorizonIsExact(t *testing.T) {
	for _, c := range []struct {
		later Micros
		want  int
	}{{1, 1}, {minute, 1}, {Horizon - 1, 1}, {Horizon, 1}, {Horizon + 1, 0}, {2 * Horizon, 0}, {100 * Horizon, 0}} {
		f := newFeeder(t)
		f.feed(epoch2023-minute, newLike("b", "1", "r"))
		f.feed(epoch2023, newLike("a", "1", "r"))
		if env := f.feed(epoch2023+c.later, newLike("a", "1", "r")); env.Repeats != c.want {
			t.Errorf("same event %v later: got %d repeats, want %d", c.later, env.Repeats, c.want)
		}
	}
}

// TestReusedIDIsRemembered demands that each content that was seen with an event id is remembered
// for the horizon, whatever the order in which the contents occur again (I6).
func TestReusedIDIsRemembered(t *testing.T) {
	f := newFeeder(t)
	now := epoch2023
	for i, step := range []struct {
		after       Micros
		item        string
		wantRepeats int
		wantRejects int
	}{
		{0, "1", 0, 0},
		{minute, "2", 0, 1},             // another content
		{minute, "1", 1, 0},             // the first content again
		{minute, "2", 1, 0},             // the other content again, which was seen before, as a reject
		{Horizon - 2*minute, "1", 1, 0}, // just within the horizon
		{3 * minute, "2", 0, 1},         // the id is still within the horizon, but this content is not
		{Horizon + 1, "3", 0, 0},        // after the horizon it is a new event
	} {
		now += step.after
		env := f.feed(now, newLike("a", step.item, "r"))
		if env.Repeats != step.wantRepeats || len(env.Rejects) != step.wantRejects {
			t.Errorf("event %d: got %d repeats and %d rejects, want %d and %d",
				i, env.Repeats, len(env.Rejects), step.wantRepeats, step.wantRejects)
		}
		if got, want := len(env.Events), 1-step.wantRepeats-step.wantRejects; got != want {
			t.Errorf("event %d: got %d events, want %d", i, got, want)
		}
	}
}

// TestContentKeyCoversEveryField demands that every field of an event is part of its content key,
// except for its place in the log and its times (I6).
func TestContentKeyCoversEveryField(t *testing.T) {
	seen := map[uint64]string{}
	addKey := func(name string, ev Event) {
		t.Helper()
		key := ContentKey(&ev)
		if other, ok := seen[key]; ok {
			t.Errorf("keys of events with %s and with %s: got the same, want different ones", name, other)
		}
		seen[key] = name
	}

	addKey("no field", Event{})

	// Set one field of an event at a time.
	typ := reflect.TypeFor[Event]()
	for i := range typ.NumField() {
		var ev Event
		field := reflect.ValueOf(&ev).Elem().Field(i)
		switch name := typ.Field(i).Name; {
		case name == "Seq" || name == "Slot" || name == "Time" || name == "Backfill" || name == "Encoded":
			// These fields follow from the others or are no content.
			continue
		case field.Kind() == reflect.String:
			field.SetString("x")
		case field.CanInt():
			field.SetInt(7)
		case field.CanUint():
			field.SetUint(7)
		case name == "Items":
			ev.Items = []string{"x"}
		case name == "Attributes":
			ev.Attributes = []byte("x")
		default:
			t.Fatalf("field %s: this test must say how it is part of the content", name)
		}

		addKey(typ.Field(i).Name, ev)
	}

	if got, want := ContentKey(&Event{User: "ann", Peer: "bob", Kind: UserFollowed, ID: "req-0"}), uint64(0xa17a1f6de0cfdf21); got != want {
		t.Errorf("content key: got %#x, want %#x, which archives contain", got, want)
	}
}

// TestDroppedRepeatIsRemembered demands that a dropped repeat is remembered like a first
// occurrence, so that it extends the time in which the id is a repeat (I6).
func TestDroppedRepeatIsRemembered(t *testing.T) {
	f := newFeeder(t)
	f.feed(epoch2023, newLike("a", "1", "r"))
	for i := 1; i <= 5; i++ {
		if env := f.feed(epoch2023+Micros(i)*10*minute, newLike("a", "1", "r")); env.Repeats != 1 {
			t.Errorf("%d minutes after the first and 10 after the last occurrence: got no repeat, want one", 10*i)
		}
	}

	if env := f.feed(epoch2023+66*minute, newLike("a", "1", "r")); env.Repeats != 0 {
		t.Error("16 minutes after the last occurrence: got a repeat, want none")
	}
}

// TestMalformedEventRegistersNothing demands that the event ids of malformed events, and of
// envelopes that cannot be decoded, are not remembered (I6, I11).
func TestMalformedEventRegistersNothing(t *testing.T) {
	f := newFeeder(t)
	f.feed(epoch2023, newLike("b", "1", "r"))
	f.feed(epoch2023, newMalformedLike("a", "r"))

	broken := append(mustEncode(t, newLike("a", "1", "r")), 0x1a, 1, 0xff)
	f.feedBytes(epoch2023, broken)
	if env := f.feed(epoch2023, newLike("a", "1", "r")); env.Repeats != 0 || len(env.Events) != 1 {
		t.Errorf("event with the id of malformed ones: got %+v, want it kept", env)
	}

	if env := f.feed(epoch2023, newMalformedLike("a", "r")); env.Repeats != 0 || len(env.Rejects) != 1 {
		t.Errorf("malformed event with the id of a good one: got %+v, want a reject and no repeat", env)
	}
}

// TestRepeatWindowMatchesModel demands that the window finds the same repeats as a model that
// forgets nothing, and forgets what is before the horizon.
func TestRepeatWindowMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var window repeatWindow
		lastTimes := map[uint64]Micros{}
		now := epoch2023
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.OneOf(
				rapid.SampledFrom([]Micros{0, 1, Horizon - 1, Horizon, Horizon + 1, 2 * Horizon, 2*Horizon + 1}),
				rapid.Custom(func(t *rapid.T) Micros { return Micros(rapid.Int64Range(0, int64(Horizon)/3).Draw(t, "step")) }),
			).Draw(t, "later")

			// There are few keys, so that they repeat, and all of them hash to the same slots.
			key := rapid.Uint64Range(1, 40).Draw(t, "key") << 16
			lastTime, ok := lastTimes[key]
			want := ok && now-lastTime <= Horizon
			if got := window.remember(key, now); got != want {
				t.Fatalf("remember key %d at %d: got repeat %v, want %v", key, now, got, want)
			}
			lastTimes[key] = now
		}

		window.forgetBefore(now + 3*Horizon)
		if window.previous != nil {
			t.Fatalf("previous keys after three horizons: got %+v, want none", window.previous)
		}
		if got := window.current.tables[0].used; got != 0 {
			t.Fatalf("keys after three horizons: got %d, want 0", got)
		}
	})
}

// TestRepeatKeyIsPinned demands that the keys of repeats never change, because archives contain
// them.
func TestRepeatKeyIsPinned(t *testing.T) {
	seen := map[uint64]string{}
	for _, user := range []string{"", "a", "ab"} {
		for _, kind := range []Kind{Reacted, Played} {
			for _, id := range []string{"r", "br", "abr"} {
				name := fmt.Sprint(user, "/", kind, "/", id)
				key := RepeatKey(&Event{User: user, Kind: kind, ID: id})
				if other, ok := seen[key]; ok {
					t.Errorf("keys of %s and %s: got the same, want different ones", name, other)
				}
				seen[key] = name
			}
		}
	}

	if got, want := RepeatKey(&Event{User: "ann", Kind: UserFollowed, ID: "req-0"}), uint64(0xccf23b991511566); got != want {
		t.Errorf("repeat key: got %#x, want %#x", got, want)
	}
}

// TestSkippedSlotsAreReportedPerCall demands that each of the calls that share an envelope learns
// of its own repeats and reused event ids, and not of those of others (I6).
func TestSkippedSlotsAreReportedPerCall(t *testing.T) {
	f := newFeeder(t)
	env := f.feed(epoch2023,
		newLike("a", "1", "r"), newLike("a", "2", "r"), // a reused id
		newLike("b", "1", ""), newLike("a", "1", "r"), newLike("b", "1", "r"), // a repeat
		newLike("a", "3", "r"), newLike("a", "1", "r")) // one of each

	for _, test := range []struct {
		from, slots             int
		wantRepeats, wantReused []int // indexes within the call
	}{
		{0, 2, nil, []int{1}},
		{2, 3, []int{1}, nil},
		{5, 2, []int{1}, []int{0}},
		{4, 1, nil, nil},
		{0, 7, []int{3, 6}, []int{1, 5}},
	} {
		repeats, rejections, ok := env.SkippedSlots(test.from, test.slots)
		var reused []int
		for _, r := range rejections {
			reused = append(reused, r.Index)
		}
		if !ok || !slices.Equal(repeats, test.wantRepeats) || !slices.Equal(reused, test.wantReused) {
			t.Errorf("%d slots from %d: got repeats %v and reused ids %v (%v), want %v and %v",
				test.slots, test.from, repeats, reused, ok, test.wantRepeats, test.wantReused)
		}
	}

	archived := *env
	archived.Cursor.Checksum = 0
	archived.Cursor.WarmSeq = 0
	if _, _, ok := archived.SkippedSlots(0, 1); ok {
		t.Error("slots of an archived envelope: got ok, want none")
	}
	if _, _, ok := env.SkippedSlots(7, 3); ok {
		t.Error("slots that the envelope does not have: got ok, want none")
	}
}
