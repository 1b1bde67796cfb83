package archive

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestRepeatsHaveTimesOfReader tests I6 and I14: the archive remembers the same times of event ids as a
// reader of the stream, also those of backfilled events and of repeats. Otherwise a reader that
// continues at the end of the archive would take another event for a repeat.
func TestRepeatsHaveTimesOfReader(t *testing.T) {
	follow := func(user string) events.Event {
		return events.Event{Kind: events.UserFollowed, User: user, Peer: "author", ID: "id"}
	}
	imported := follow("imported")
	imported.Backfill = true
	imported.Source = "old"
	imported.Offset = 1
	imported.Time = start - events.Horizon
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

// TestDamagedRepeatsAreNamedAndReplaced checks that all damaged files of event ids are named. The event
// ids of the other files are still known, and the damaged files can be replaced.
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
	if len(m.recent) != 2 || m.repeats.name == "" {
		t.Fatalf("manifest: got %+v, want two recent files and one of the epoch", m)
	}
	if len(want) < 3 {
		t.Fatalf("repeats at the end: got %v, want at least 3", want)
	}
	whole, err := a.ReadRepeats(t.Context())
	if err != nil || len(whole.Damaged) > 0 || whole.From < whole.To {
		t.Errorf("repeats of whole files: got %+v and error %v, want no damage", whole, err)
	}
	if diff := cmp.Diff(want, whole.Repeats); diff != "" {
		t.Errorf("repeats of whole files (-want +got):\n%s", diff)
	}

	// One file is damaged, and another one is missing.
	broken := []string{m.repeats.name, m.recent[1].name}
	b.objects[broken[0]] = append([]byte("x"), b.objects[broken[0]][1:]...)
	delete(b.objects, broken[1])
	err = a.Check(t.Context(), nil)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), broken[0]) || !strings.Contains(err.Error(), broken[1]) {
		t.Errorf("check of damaged files: got error %v, want %v with %q", err, ErrDamaged, broken)
	}
	if err := a.BeginEpoch(t.Context(), 3, a.End()); !errors.Is(err, ErrDamaged) {
		t.Errorf("begin an epoch with damaged files: got error %v, want %v", err, ErrDamaged)
	}

	// The ids of the undamaged file are still known.
	damaged, err := a.ReadRepeats(t.Context())
	if err != nil || len(damaged.Damaged) != 2 || damaged.End != a.End() {
		t.Errorf("repeats of damaged files: got %+v and error %v, want two damaged files and the end %+v", damaged, err, a.End())
	}
	wantFrom, wantTo := a.End().LastTime-events.Horizon-1, a.End().LastTime
	if damaged.From != wantFrom || damaged.To != wantTo {
		t.Errorf("times of the damaged files: got %d to %d, want %d to %d", damaged.From, damaged.To, wantFrom, wantTo)
	}
	wantKnown := withinHorizon(listLastUses(a.End(), parts[1]), a.End().LastTime)
	if diff := cmp.Diff(wantKnown, damaged.Repeats); diff != "" {
		t.Errorf("repeats of the undamaged file (-want +got):\n%s", diff)
	}

	if err := a.ReplaceRepeats(t.Context(), before, want); !errors.Is(err, ErrChanged) {
		t.Errorf("replace at another position: got error %v, want %v", err, ErrChanged)
	}
	if err := a.ReplaceRepeats(t.Context(), a.End(), want); err != nil {
		t.Fatal(err)
	}

	a = mustOpen(t, b)
	replaced, err := a.ReadRepeats(t.Context())
	if err != nil || len(replaced.Damaged) > 0 {
		t.Errorf("replaced repeats: got %+v and error %v, want no damage", replaced, err)
	}
	if diff := cmp.Diff(want, replaced.Repeats); diff != "" {
		t.Errorf("replaced repeats (-want +got):\n%s", diff)
	}
	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, left := b.objects[broken[0]]; left {
		t.Errorf("damaged file %s: got it in the bucket, want it removed", broken[0])
	}

	// The event ids of before the epoch are lost, and the next epoch begins with those at the end.
	if _, err := a.Repeats(t.Context(), 2); !errors.Is(err, ErrDamaged) {
		t.Errorf("repeats before the epoch: got error %v, want %v", err, ErrDamaged)
	}
	if err := a.BeginEpoch(t.Context(), 3, a.End()); err != nil {
		t.Fatal(err)
	}
	next, err := a.Repeats(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Errorf("repeats before the next epoch (-want +got):\n%s", diff)
	}
}

// TestDamagedRepeatsBeforeHorizonAreHarmless checks that a damaged file of event ids from before the
// horizon does no harm, because readers no longer need those ids.
func TestDamagedRepeatsBeforeHorizonAreHarmless(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildHistory()
	mustSeal(t, a, parts[0])
	if err := a.BeginEpoch(t.Context(), 2, a.End()); err != nil {
		t.Fatal(err)
	}

	// The second part comes two horizons later, in a new epoch.
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
	if err != nil || len(r.Damaged) != 1 || r.From < r.To {
		t.Errorf("repeats: got %+v and error %v, want one damaged file and no range of lost times", r, err)
	}
	if diff := cmp.Diff(listLastUses(a.End(), parts[1]), r.Repeats); diff != "" {
		t.Errorf("repeats (-want +got):\n%s", diff)
	}
}
