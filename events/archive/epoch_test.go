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

// BeginEpoch keeps the archived envelopes and their event ids, and archives continue in the new
// epoch. It rejects heads that are not the end of the archive.
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
		t.Fatalf("repeats at the end: got %v, want 13, the last with the top bit set", want)
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
		t.Run(name, func(t *testing.T) {
			if err := a.BeginEpoch(t.Context(), c.epoch, c.head); !errors.Is(err, c.want) {
				t.Errorf("BeginEpoch: got error %v, want %v", err, c.want)
			}
		})
	}

	head := events.Cursor{Log: testLog, Epoch: 2, Seq: end.Seq, LastTime: end.LastTime}
	for range 2 { // the second call does nothing
		if err := a.BeginEpoch(t.Context(), 2, head); err != nil {
			t.Fatal(err)
		}
	}

	a = mustOpen(t, b)
	if a.End() != head || a.Epoch() != 2 || !slices.Equal(a.Predecessors(), []eventlog.Predecessor{{Epoch: 1, Last: end.Seq}}) {
		t.Errorf("archive in the new epoch: got end %+v, epoch %d and predecessors %v, want end %+v, epoch 2 and epoch 1 before",
			a.End(), a.Epoch(), a.Predecessors(), head)
	}
	got, err := a.Repeats(t.Context(), 1)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("repeats before the new epoch: got %v and error %v, want %v", got, err, want)
	}

	// The old envelopes are read with cursors of the new epoch, and new ones must belong to it.
	if err := a.Writer().Add(parts[2]...); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("add an envelope of the previous epoch: got error %v, want %v", err, events.ErrOtherEpoch)
	}
	for _, env := range parts[2] {
		env.Cursor.Epoch = 2
	}
	mustSeal(t, a, parts[2])
	envs, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil || len(envs) != 12 {
		t.Fatalf("envelopes: got %d and error %v, want 12", len(envs), err)
	}
	for _, env := range envs {
		if env.Cursor.Epoch != 2 {
			t.Errorf("epoch of sequence %d: got %d, want 2", env.Seq(), env.Cursor.Epoch)
		}
	}

	if err := a.BeginEpoch(t.Context(), 4, a.End()); err != nil {
		t.Fatal(err)
	}
	if got, err := mustOpen(t, b).Repeats(t.Context(), 1); err != nil || !slices.Equal(got, listLastUses(a.End(), parts...)) {
		t.Errorf("repeats of both epochs: got %v and error %v, want %v", got, err, listLastUses(a.End(), parts...))
	}
	if want := []eventlog.Predecessor{{Epoch: 1, Last: end.Seq}, {Epoch: 2, Last: envs[11].Seq()}}; !slices.Equal(a.Predecessors(), want) {
		t.Errorf("predecessors: got %v, want %v", a.Predecessors(), want)
	}
}

// listLastUses returns what a reader at the end must remember: each event id within the horizon
// before the end with its last time, sorted by key.
func listLastUses(end events.Cursor, parts ...[]*events.Envelope) (uses []events.Repeat) {
	last := map[uint64]events.Micros{}
	record := func(r events.Repeat) { last[r.Key] = max(last[r.Key], r.Time) }
	for _, env := range slices.Concat(parts...) {
		for _, r := range env.Repeated {
			record(r)
		}
		for _, ev := range env.Events {
			if ev.ID != "" {
				record(events.Repeat{Key: events.RepeatKey(&ev), Time: ev.Time})
				record(events.Repeat{Key: events.ContentKey(&ev), Time: ev.Time})
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

// decodeRepeats returns the event ids that encodeRepeats got, sorted by key.
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
			t.Fatalf("decoded repeats: got %v and error %v, want %v", got, err, repeats)
		}
	})
}
