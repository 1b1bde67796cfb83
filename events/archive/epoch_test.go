package archive

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
)

func TestBeginEpochKeepsEarlierPart(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildHistory()
	parts[0][0].Repeated = []events.Repeat{{Key: 1 << 63, Time: start + 3}, {Key: 1, Time: start - events.Horizon}}
	parts[1][0].Repeated = []events.Repeat{{Key: 1 << 63, Time: start + 5001}}
	mustSeal(t, a, parts[:2]...)
	end := a.End()
	want := listLastUses(end, parts[0], parts[1])
	if want[len(want)-1].Key < 1<<63 || len(want) != 13 {
		t.Fatal(want)
	}
	wrong := end
	wrong.Seq--
	early := end
	early.LastTime--
	for name, c := range map[string]struct {
		epoch uint32
		head  events.Cursor
		want  error
	}{
		"before the end":  {2, wrong, ErrOrder},
		"at another time": {2, early, ErrOrder},
		"of another log":  {2, events.Cursor{Seq: end.Seq, LastTime: end.LastTime}, events.ErrOtherLog},
		"an earlier one":  {0, end, events.ErrOtherEpoch},
	} {
		if err := a.BeginEpoch(t.Context(), c.epoch, c.head); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	head := events.Cursor{Log: testLog, Epoch: 2, Seq: end.Seq, LastTime: end.LastTime}
	for range 2 { // the second time nothing happens
		if err := a.BeginEpoch(t.Context(), 2, head); err != nil {
			t.Fatal(err)
		}
	}
	a = mustOpen(t, b)
	if a.End() != head || a.Epoch() != 2 || !slices.Equal(a.Predecessors(), []eventlog.Predecessor{{Epoch: 1, Last: end.Seq}}) {
		t.Errorf("%+v, epoch %d, %v", a.End(), a.Epoch(), a.Predecessors())
	}
	got, err := a.Repeats(t.Context(), 1)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	// What was archived before is read with cursors of the new epoch, and the log continues in it.
	if err := a.Writer().Add(parts[2]...); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("an envelope of the previous epoch: %v", err)
	}
	for _, env := range parts[2] {
		env.Cursor.Epoch = 2
	}
	mustSeal(t, a, parts[2])
	envs, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil || len(envs) != 12 {
		t.Fatal(len(envs), err)
	}
	for _, env := range envs {
		if env.Cursor.Epoch != 2 {
			t.Errorf("sequence %d is of epoch %d", env.Seq(), env.Cursor.Epoch)
		}
	}
	if err := a.BeginEpoch(t.Context(), 4, a.End()); err != nil {
		t.Fatal(err)
	}
	if got, err := mustOpen(t, b).Repeats(t.Context(), 1); err != nil || !slices.Equal(got, listLastUses(a.End(), parts...)) {
		t.Errorf("repeats of both epochs: %v, %v", got, err)
	}
	if want := []eventlog.Predecessor{{Epoch: 1, Last: end.Seq}, {Epoch: 2, Last: envs[11].Seq()}}; !slices.Equal(a.Predecessors(), want) {
		t.Errorf("predecessors %v", a.Predecessors())
	}
}

// lastUses is what a reader must remember: each event id of the horizon before the end with its last time, by key.
func listLastUses(end events.Cursor, parts ...[]*events.Envelope) (uses []events.Repeat) {
	last := map[uint64]events.Micros{}
	note := func(r events.Repeat) { last[r.Key] = max(last[r.Key], r.Time) }
	for _, env := range slices.Concat(parts...) {
		for _, r := range env.Repeated {
			note(r)
		}
		for _, ev := range env.Events {
			if ev.ID != "" {
				note(events.Repeat{Key: events.RepeatKey(&ev), Time: ev.Time})
				note(events.Repeat{Key: events.ContentKey(&ev), Time: ev.Time})
			}
		}
	}
	for key, at := range last {
		if at >= end.LastTime-events.Horizon {
			uses = append(uses, events.Repeat{Key: key, Time: at})
		}
	}
	slices.SortFunc(uses, func(a, b events.Repeat) int { return cmp.Compare(a.Key, b.Key) })
	return uses
}

func TestRepeatsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var repeats []events.Repeat
		for _, key := range rapid.SliceOfDistinct(rapid.Uint64(), rapid.ID).Draw(t, "keys") {
			repeats = append(repeats, events.Repeat{Key: key, Time: events.Micros(rapid.Int64().Draw(t, "time"))})
		}
		got, err := decodeRepeats(encodeRepeats(repeats))
		slices.SortFunc(repeats, func(a, b events.Repeat) int {
			if a.Key < b.Key {
				return -1
			}
			return 1
		})
		if err != nil || !slices.Equal(got, repeats) {
			t.Fatalf("%v (%v), want %v", got, err, repeats)
		}
	})
}
