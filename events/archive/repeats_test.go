package archive

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// I6, I14: the archive remembers the same times of event ids as a reader of the stream, also those
// of backfilled events and of repeats. Otherwise a reader that continues at the end of the archive
// would take another event for a repeat.
func TestRepeatsHaveTimesOfReader(t *testing.T) {
	follow := func(user string) events.Event {
		return events.Event{Kind: events.UserFollowed, User: user, Peer: "author", ID: "id"}
	}
	imported := follow("imported")
	imported.Backfill, imported.Source, imported.Offset, imported.Time = true, "old", 1, start-events.Horizon
	malformed := follow("")

	d := events.NewDecoder(events.Cursor{Log: testLog, Epoch: 1})
	var envs []*events.Envelope
	for i, evs := range [][]events.Event{
		{imported, follow("1"), malformed, follow("2")},
		{malformed, imported, imported},
		{follow("1"), imported},
	} {
		var msgs []*skeinv1.Event
		for _, ev := range evs {
			msgs = append(msgs, ev.Proto())
		}
		data, err := events.EncodeEnvelope(msgs)
		if err != nil {
			t.Fatal(err)
		}
		env, err := d.Decode(uint64(i+1), start+events.Micros(i)*1e6, data)
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, env)

		a := mustOpen(t, newMemoryBucket())
		mustSeal(t, a, envs)
		repeats, err := a.Repeats(t.Context(), 2)
		if err != nil || !slices.Equal(repeats, d.Repeats()) {
			t.Errorf("repeats after %d envelopes: got %v and error %v, want %v", i+1, repeats, err, d.Repeats())
		}
	}
}

// All damaged files of event ids are named. The event ids of the other files are still known, and
// the damaged files can be replaced.
func TestDamagedRepeatsAreNamedAndReplaced(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildHistory()
	mustSeal(t, a, parts[0])
	before := a.End()
	if err := a.BeginEpoch(t.Context(), 2, before); err != nil {
		t.Fatal(err)
	}
	for _, env := range slices.Concat(parts[1:]...) {
		env.Cursor.Epoch = 2
	}
	mustSeal(t, a, parts[1:]...)
	m := a.currentManifest()
	want := listLastUses(a.End(), parts...)
	if len(m.recent) != 2 || m.repeats.name == "" || len(want) < 3 {
		t.Fatalf("archive: got %+v and repeats %v, want two recent files, one of the epoch, and at least 3 repeats", m, want)
	}
	if r, err := a.ReadRepeats(t.Context()); err != nil || len(r.Damaged) > 0 || !slices.Equal(r.Repeats, want) || r.From < r.To {
		t.Errorf("repeats of whole files: got %+v and error %v, want %v", r, err, want)
	}

	broken := []string{m.repeats.name, m.recent[1].name}
	b.objects[broken[0]] = append([]byte("x"), b.objects[broken[0]][1:]...)
	delete(b.objects, broken[1])
	err := a.Check(t.Context(), nil)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), broken[0]) || !strings.Contains(err.Error(), broken[1]) {
		t.Errorf("check of damaged files: got error %v, want %v with %q", err, ErrDamaged, broken)
	}
	if err := a.BeginEpoch(t.Context(), 3, a.End()); !errors.Is(err, ErrDamaged) {
		t.Errorf("begin an epoch with damaged files: got error %v, want %v", err, ErrDamaged)
	}
	r, err := a.ReadRepeats(t.Context())
	if err != nil || len(r.Damaged) != 2 || r.End != a.End() || r.From != a.End().LastTime-events.Horizon-1 || r.To != a.End().LastTime {
		t.Errorf("repeats of damaged files: got %+v and error %v, want two damaged files and the range of their times", r, err)
	}
	if !slices.Equal(r.Repeats, withinHorizon(listLastUses(a.End(), parts[1]), a.End().LastTime)) {
		t.Errorf("repeats of the undamaged file: got %v", r.Repeats)
	}
	if err := a.ReplaceRepeats(t.Context(), before, want); !errors.Is(err, ErrChanged) {
		t.Errorf("replace at another position: got error %v, want %v", err, ErrChanged)
	}
	if err := a.ReplaceRepeats(t.Context(), a.End(), want); err != nil {
		t.Fatal(err)
	}
	a = mustOpen(t, b)
	if r, err := a.ReadRepeats(t.Context()); err != nil || len(r.Damaged) > 0 || !slices.Equal(r.Repeats, want) {
		t.Errorf("replaced repeats: got %+v and error %v, want %v", r, err, want)
	}
	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, left := b.objects[broken[0]]; left {
		t.Errorf("damaged file %s: got it in the bucket, want it removed", broken[0])
	}
}

// A damaged file of event ids from before the horizon does no harm, because readers no longer need
// those ids.
func TestDamagedRepeatsBeforeHorizonAreHarmless(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildHistory()
	mustSeal(t, a, parts[0])
	if err := a.BeginEpoch(t.Context(), 2, a.End()); err != nil {
		t.Fatal(err)
	}
	for _, env := range parts[1] {
		env.Cursor.Epoch = 2
		env.Cursor.LastTime += 2 * events.Horizon
		for i := range env.Events {
			env.Events[i].Time += 2 * events.Horizon
		}
	}

	mustSeal(t, a, parts[1])
	delete(b.objects, a.currentManifest().repeats.name)
	r, err := a.ReadRepeats(t.Context())
	if err != nil || len(r.Damaged) != 1 || r.From < r.To || !slices.Equal(r.Repeats, listLastUses(a.End(), parts[1])) {
		t.Errorf("repeats: got %+v and error %v, want one damaged file and %v", r, err, listLastUses(a.End(), parts[1]))
	}
}
