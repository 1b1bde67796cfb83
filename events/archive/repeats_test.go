package archive

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
)

// Files of event ids that are damaged are all named, what the others hold is still known, and they can be replaced.
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
		t.Fatalf("%+v, %v", m, want)
	}
	if r, err := a.Remembered(t.Context()); err != nil || len(r.Damaged) > 0 || !slices.Equal(r.Repeats, want) || r.From < r.To {
		t.Errorf("of whole files: %+v, %v", r, err)
	}
	broken := []string{m.repeats.name, m.recent[1].name}
	b.objects[broken[0]] = append([]byte("x"), b.objects[broken[0]][1:]...)
	delete(b.objects, broken[1])
	err := a.Check(t.Context(), nil)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), broken[0]) || !strings.Contains(err.Error(), broken[1]) {
		t.Errorf("checked: %v", err)
	}
	if err := a.BeginEpoch(t.Context(), 3, a.End()); !errors.Is(err, ErrDamaged) {
		t.Errorf("an epoch that forgets event ids: %v", err)
	}
	r, err := a.Remembered(t.Context())
	if err != nil || len(r.Damaged) != 2 || r.End != a.End() || r.From != a.End().LastTime-events.Horizon-1 || r.To != a.End().LastTime {
		t.Errorf("%+v, %v", r, err)
	}
	if !slices.Equal(r.Repeats, withinHorizon(listLastUses(a.End(), parts[1]), a.End().LastTime)) {
		t.Errorf("of the file that is left: %v", r.Repeats)
	}
	if err := a.ReplaceRepeats(t.Context(), before, want); !errors.Is(err, ErrChanged) {
		t.Errorf("event ids of another position: %v", err)
	}
	if err := a.ReplaceRepeats(t.Context(), a.End(), want); err != nil {
		t.Fatal(err)
	}
	a = mustOpen(t, b)
	if r, err := a.Remembered(t.Context()); err != nil || len(r.Damaged) > 0 || !slices.Equal(r.Repeats, want) {
		t.Errorf("replaced: %+v, %v", r, err)
	}
	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, left := b.objects[broken[0]]; left {
		t.Error("the damaged file is still there")
	}
}

// Ids of before the horizon do not count: that their file is damaged costs nothing.
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
	r, err := a.Remembered(t.Context())
	if err != nil || len(r.Damaged) != 1 || r.From < r.To || !slices.Equal(r.Repeats, listLastUses(a.End(), parts[1])) {
		t.Errorf("%+v, %v", r, err)
	}
}
