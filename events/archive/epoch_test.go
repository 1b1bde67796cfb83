package archive

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
)

// TestBeginEpochKeepsEarlierPart checks that BeginEpoch keeps the archived envelopes and their event
// ids, and that archives continue in the new epoch. It rejects heads that are not the end of the
// archive.
func TestBeginEpochKeepsEarlierPart(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildHistory()

	// Some event ids are repeats, one of them from before the horizon.
	parts[0][0].Repeated = []events.Repeat{{Key: 1 << 63, Time: start + 3}, {Key: 1, Time: start - events.Horizon}}
	parts[1][0].Repeated = []events.Repeat{{Key: 1 << 63, Time: start + 5001}}
	mustSeal(t, a, parts[:2]...)
	end := a.End()
	want := listLastUses(end, parts[0], parts[1])
	if len(want) != 13 || want[len(want)-1].Key < 1<<63 {
		t.Fatalf("repeats at the end: got %v, want 13, the last with the top bit set", want)
	}

	beforeEnd := end
	beforeEnd.Seq--
	atOtherTime := end
	atOtherTime.LastTime--
	for name, c := range map[string]struct {
		epoch uint32
		head  events.Cursor
		want  error
	}{
		"before the end":   {2, beforeEnd, ErrOrder},
		"at another time":  {2, atOtherTime, ErrOrder},
		"of another log":   {2, events.Cursor{Seq: end.Seq, LastTime: end.LastTime}, events.ErrOtherLog},
		"an earlier epoch": {0, end, events.ErrOtherEpoch},
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
	if a.End() != head || a.Epoch() != 2 {
		t.Errorf("end of the archive in the new epoch: got %+v in epoch %d, want %+v in epoch 2", a.End(), a.Epoch(), head)
	}
	if diff := cmp.Diff([]eventlog.Predecessor{{Epoch: 1, Last: end.Seq}}, a.Predecessors()); diff != "" {
		t.Errorf("predecessors in the new epoch (-want +got):\n%s", diff)
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

	// A later epoch keeps the event ids of both epochs before it.
	if err := a.BeginEpoch(t.Context(), 4, a.End()); err != nil {
		t.Fatal(err)
	}
	got, err = mustOpen(t, b).Repeats(t.Context(), 1)
	if want := listLastUses(a.End(), parts...); err != nil || !slices.Equal(got, want) {
		t.Errorf("repeats of both epochs: got %v and error %v, want %v", got, err, want)
	}
	wantPredecessors := []eventlog.Predecessor{{Epoch: 1, Last: end.Seq}, {Epoch: 2, Last: envs[11].Seq()}}
	if diff := cmp.Diff(wantPredecessors, a.Predecessors()); diff != "" {
		t.Errorf("predecessors (-want +got):\n%s", diff)
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

	for key, lastUse := range last {
		if lastUse >= end.LastTime-events.Horizon {
			uses = append(uses, events.Repeat{Key: key, Time: lastUse})
		}
	}

	slices.SortFunc(uses, compareKeys)
	return uses
}

// compareKeys compares repeats by their keys.
func compareKeys(a, b events.Repeat) int {
	switch {
	case a.Key < b.Key:
		return -1
	case a.Key > b.Key:
		return 1
	}
	return 0
}

// TestRepeatsSurviveEncoding checks that decodeRepeats returns the event ids that were passed to
// encodeRepeats, sorted by key.
func TestRepeatsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var repeats []events.Repeat
		for _, key := range rapid.SliceOfDistinct(rapid.Uint64(), rapid.ID).Draw(t, "keys") {
			repeats = append(repeats, events.Repeat{Key: key, Time: events.Micros(rapid.Int64().Draw(t, "time"))})
		}

		got, err := decodeRepeats(encodeRepeats(repeats))
		slices.SortFunc(repeats, compareKeys)
		if err != nil || !slices.Equal(got, repeats) {
			t.Fatalf("decoded repeats: got %v and error %v, want %v", got, err, repeats)
		}
	})
}
