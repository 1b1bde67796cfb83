package events

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// I6: the same (acting user, kind, event id) within the horizon is dropped, and kept as refused where it says something else.
func TestRepeatIsDropped(t *testing.T) {
	f := newFeeder(t)
	unliked := &skeinv1.Event{EventId: "r", Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: "a", ItemId: "1"}}}
	scored := func(item string) *skeinv1.Event {
		return &skeinv1.Event{EventId: "r", Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: item}}}
	}
	env := f.feed(epoch2023,
		newLike("a", "1", "r"), newLike("a", "1", "r"), newLike("a", "2", "r"), // one act of one user
		newLike("b", "1", "r"), unliked, newLike("a", "1", "r2"), // another user, kind, id
		newLike("a", "1", ""), newLike("a", "1", ""), // no id
		scored("1"), scored("2")) // no user acts
	if len(env.Rejects) != 2 || env.Rejects[0].Slot != 2 || env.Rejects[1].Slot != 9 || len(env.Rejects[0].Data) == 0 ||
		env.Rejects[0].Rejection.Reason != skeinv1.Reason_REASON_EVENT_ID_REUSED || env.Rejects[0].Rejection.Field != "event_id" {
		t.Errorf("rejects %+v", env.Rejects)
	}
	if env.Repeats != 1 || len(env.Events) != 7 || env.Kinds != Kinds(Reacted, Unreacted, ItemScored) {
		t.Errorf("%d repeats, events %+v", env.Repeats, env.Events)
	}
	for i, slot := range []uint16{0, 3, 4, 5, 6, 7, 8} {
		if ev := env.Events[i]; ev.Slot != slot || ev.Time != epoch2023+Micros(slot) {
			t.Errorf("event %d has slot %d and time %d", i, ev.Slot, ev.Time-epoch2023)
		}
	}
	env = f.feed(epoch2023+minute, newLike("a", "1", "r"))
	if env.Repeats != 1 || len(env.Rejects) != 0 || len(env.Events) != 0 || env.Kinds != 0 || env.Cursor.LastTime != epoch2023+minute {
		t.Errorf("a repeat alone: %+v", env)
	}
}

// I6: the horizon is 15 minutes of log time, to the microsecond.
func TestRepeatHorizonIsExact(t *testing.T) {
	for _, c := range []struct {
		later Micros
		want  int
	}{{1, 1}, {minute, 1}, {Horizon - 1, 1}, {Horizon, 1}, {Horizon + 1, 0}, {2 * Horizon, 0}, {100 * Horizon, 0}} {
		f := newFeeder(t)
		f.feed(epoch2023-minute, newLike("b", "1", "r"))
		f.feed(epoch2023, newLike("a", "1", "r"))
		if env := f.feed(epoch2023+c.later, newLike("a", "1", "r")); env.Repeats != c.want {
			t.Errorf("after %v: %d repeats, want %d", c.later, env.Repeats, c.want)
		}
	}
}

// I6: what was said with an id counts for as long as the id does, in whichever order it is said again.
func TestReusedIDIsRemembered(t *testing.T) {
	f, at := newFeeder(t), epoch2023
	for i, c := range []struct {
		after            Micros
		item             string
		repeats, refused int
	}{
		{0, "1", 0, 0},
		{minute, "2", 0, 1},             // another content
		{minute, "1", 1, 0},             // the first again
		{minute, "2", 1, 0},             // and the other: it was said, and refused, before
		{Horizon - 2*minute, "1", 1, 0}, // as late as can be
		{3 * minute, "2", 0, 1},         // the id counts since the last use, what it said before no longer does
		{Horizon + 1, "3", 0, 0},        // a new fact
	} {
		at += c.after
		env := f.feed(at, newLike("a", c.item, "r"))
		if env.Repeats != c.repeats || len(env.Rejects) != c.refused || len(env.Events) != 1-c.repeats-c.refused {
			t.Errorf("%d: %d repeats, %d refused", i, env.Repeats, len(env.Rejects))
		}
	}
}

// I6: every field of an event is part of what it says, but for the times.
func TestContentKeyCoversEveryField(t *testing.T) {
	seen := map[uint64]string{}
	note := func(name string, ev Event) {
		t.Helper()
		key := ContentKey(&ev)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
	note("none", Event{})
	typ := reflect.TypeFor[Event]()
	for i := range typ.NumField() {
		var ev Event
		field := reflect.ValueOf(&ev).Elem().Field(i)
		switch name := typ.Field(i).Name; {
		case name == "Seq" || name == "Slot" || name == "Time" || name == "Backfill" || name == "Encoded": // the others follow from those that count
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
			t.Fatalf("say how %s is a part of the content", name)
		}
		note(typ.Field(i).Name, ev)
	}
	if got, want := ContentKey(&Event{User: "ann", Peer: "bob", Kind: UserFollowed, ID: "req-0"}), uint64(0xa17a1f6de0cfdf21); got != want {
		t.Errorf("key %#x, want %#x: archives hold it", got, want)
	}
}

// I6: a repeat that is dropped is remembered like the first.
func TestDroppedRepeatIsRemembered(t *testing.T) {
	f := newFeeder(t)
	f.feed(epoch2023, newLike("a", "1", "r"))
	for i := 1; i <= 5; i++ {
		if env := f.feed(epoch2023+Micros(i)*10*minute, newLike("a", "1", "r")); env.Repeats != 1 {
			t.Errorf("%d minutes after the first and 10 after the last: not dropped", 10*i)
		}
	}
	if env := f.feed(epoch2023+66*minute, newLike("a", "1", "r")); env.Repeats != 0 {
		t.Error("16 minutes after the last: dropped")
	}
}

// I6 and I11: a malformed event registers nothing, nor does one of an envelope that does not decode.
func TestMalformedEventRegistersNothing(t *testing.T) {
	f := newFeeder(t)
	f.feed(epoch2023, newLike("b", "1", "r"))
	f.feed(epoch2023, newMalformedLike("a", "r"))
	broken := append(mustEncode(t, newLike("a", "1", "r")), 0x1a, 1, 0xff)
	f.feedBytes(epoch2023, broken)
	if env := f.feed(epoch2023, newLike("a", "1", "r")); env.Repeats != 0 || len(env.Events) != 1 {
		t.Errorf("dropped: %+v", env)
	}
	if env := f.feed(epoch2023, newMalformedLike("a", "r")); env.Repeats != 0 || len(env.Rejects) != 1 {
		t.Errorf("a malformed repeat is malformed: %+v", env)
	}
}

// The window remembers as much as one that forgets nothing, and does forget.
func TestRepeatWindowMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w repeatWindow
		last := map[uint64]Micros{}
		at := epoch2023
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			at += rapid.OneOf(
				rapid.SampledFrom([]Micros{0, 1, Horizon - 1, Horizon, Horizon + 1, 2 * Horizon, 2*Horizon + 1}),
				rapid.Custom(func(t *rapid.T) Micros { return Micros(rapid.Int64Range(0, int64(Horizon)/3).Draw(t, "step")) }),
			).Draw(t, "later")
			// Few keys, so that they repeat, and all for the same slots.
			key := rapid.Uint64Range(1, 40).Draw(t, "key") << 16
			before, ok := last[key]
			want := ok && at-before <= Horizon
			if got := w.remember(key, at); got != want {
				t.Fatalf("key %d at %d: %v, want %v", key, at, got, want)
			}
			last[key] = at
		}
		w.forgetBefore(at + 3*Horizon)
		if w.previous != nil || w.current.tables[0].used != 0 {
			t.Fatalf("%d keys are remembered for ever", w.current.tables[0].used)
		}
	})
}

// Archives hold these keys.
func TestRepeatKeyIsPinned(t *testing.T) {
	seen := map[uint64]string{}
	for _, user := range []string{"", "a", "ab"} {
		for _, kind := range []Kind{Reacted, Played} {
			for _, id := range []string{"r", "br", "abr"} {
				name := fmt.Sprint(user, "/", kind, "/", id)
				key := RepeatKey(&Event{User: user, Kind: kind, ID: id})
				if other, ok := seen[key]; ok {
					t.Errorf("%s and %s have one key", name, other)
				}
				seen[key] = name
			}
		}
	}
	if got, want := RepeatKey(&Event{User: "ann", Kind: UserFollowed, ID: "req-0"}), uint64(0xccf23b991511566); got != want {
		t.Errorf("key %#x, want %#x", got, want)
	}
}

// I6: each call that shares an envelope learns of its own repeats and reused ids.
func TestSkippedSlotsAreReportedPerCall(t *testing.T) {
	f := newFeeder(t)
	env := f.feed(epoch2023,
		newLike("a", "1", "r"), newLike("a", "2", "r"), // a reused id
		newLike("b", "1", ""), newLike("a", "1", "r"), newLike("b", "1", "r"), // a repeat
		newLike("a", "3", "r"), newLike("a", "1", "r")) // one of each
	for _, c := range []struct {
		from, n          int
		repeats, refused []int
	}{{0, 2, nil, []int{1}}, {2, 3, []int{1}, nil}, {5, 2, []int{1}, []int{0}}, {4, 1, nil, nil}, {0, 7, []int{3, 6}, []int{1, 5}}} {
		repeats, rejections, ok := env.SkippedSlots(c.from, c.n)
		var refused []int
		for _, r := range rejections {
			refused = append(refused, r.Index)
		}
		if !ok || !slices.Equal(repeats, c.repeats) || !slices.Equal(refused, c.refused) {
			t.Errorf("%d from %d: repeats %v, refused %v, %v", c.n, c.from, repeats, refused, ok)
		}
	}
	archived := *env
	archived.Cursor.Checksum, archived.Cursor.WarmSeq = 0, 0
	if _, _, ok := archived.SkippedSlots(0, 1); ok {
		t.Error("an archived envelope knows")
	}
	if _, _, ok := env.SkippedSlots(7, 3); ok {
		t.Error("an envelope knows of events that it does not have")
	}
}
