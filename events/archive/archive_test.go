package archive

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

// TestArchiveReturnsWhatWasWritten tests I3 and I4: a reader gets exactly the envelopes that were
// archived, however they were split into segments, from every cursor, and in portions of any size. A
// fold that reads only facts gets the same as after filtering all envelopes.
func TestArchiveReturnsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newMemoryBucket()
		envs := drawLog(rt, 30)
		a := mustOpen(rt, b)
		mustSeal(rt, a, drawSegments(rt, envs)...)
		a = mustOpen(rt, b)
		end := envs[len(envs)-1].Cursor
		if a.End() != end || a.Epoch() != 1 {
			rt.Fatalf("end of the archive: got %+v in epoch %d, want %+v in epoch 1", a.End(), a.Epoch(), end)
		}

		want := toArchival(envs)
		portion := rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "portion")
		from := rapid.IntRange(0, len(envs)).Draw(rt, "from")
		cursor := events.Cursor{Log: testLog}
		if from > 0 {
			cursor = want[from-1].Cursor
		}
		got, err := readAll(a, cursor, events.AllKinds, portion)
		if err != nil {
			rt.Fatal(err)
		}
		if d := diffEnvelopes(want[from:], got); d != "" {
			rt.Fatalf("envelopes from %d (-want +got):\n%s", from, d)
		}

		got, err = readAll(a, cursor, events.AllKinds&^ActivityKinds, portion)
		if err != nil {
			rt.Fatal(err)
		}
		if d := diffEnvelopes(keepFacts(want[from:]), got); d != "" {
			rt.Fatalf("facts from %d (-want +got):\n%s", from, d)
		}
		if err := a.Check(context.Background(), nil); err != nil {
			rt.Fatal(err)
		}
	})
}

// newEnvelope returns an envelope with n events of a kind, as a decoder returns it.
func newEnvelope(seq uint64, kind events.Kind, n int) *events.Envelope {
	last := start + events.Micros(1000*seq)
	env := &events.Envelope{
		Bytes: 30 * n, Kinds: events.Kinds(kind),
		Cursor: events.Cursor{Log: testLog, Epoch: 1, Seq: seq, LastTime: last, Checksum: seq, WarmSeq: 1, WarmTime: start},
	}
	for i := range n {
		ev := events.Event{Kind: kind, Seq: seq, Slot: uint16(i), Time: last - events.Micros(n-1-i), User: "1"}
		if kind == events.Played {
			ev.Item = "2"
		} else {
			ev.Peer = "3"
		}
		env.Events = append(env.Events, ev)
	}

	return env
}

// TestUnneededClassIsNotOpened checks that a fold that needs no kind of class activity does not open
// the files of that class.
func TestUnneededClassIsNotOpened(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	envs := []*events.Envelope{
		newEnvelope(1, events.Played, 2),
		newEnvelope(2, events.UserFollowed, 2),
		newEnvelope(3, events.Played, 1),
	}
	mustSeal(t, a, envs[:2], envs[2:])

	// Without the files of activity, only a fold that needs them fails.
	objects, err := b.List(t.Context(), objectPrefix+"activity-")
	if err != nil || len(objects) != 2 {
		t.Fatalf("files of activity: got %v and error %v, want 2", objects, err)
	}
	for _, o := range objects {
		if err := b.Delete(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}

	got, err := readAll(a, events.Cursor{Log: testLog}, events.Kinds(events.UserFollowed), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Errorf("envelopes for a fold of follows: got %d, want 2", len(got))
	}
	if d := diffEnvelopes(keepFacts(toArchival(envs)), got); d != "" {
		t.Errorf("envelopes for a fold of follows (-want +got):\n%s", d)
	}
	if _, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1); !errors.Is(err, ErrDamaged) {
		t.Errorf("all kinds without the files of activity: got error %v, want %v", err, ErrDamaged)
	}

	if objects, err := b.List(t.Context(), objectPrefix+"facts-"); err != nil || len(objects) != 1 {
		t.Errorf("files of facts: got %v and error %v, want one: the second segment has no facts", objects, err)
	}
}

// TestManyBlocksReadFromEveryBorder checks that an archive of many blocks and segments is read
// correctly from every cursor near their borders.
func TestManyBlocksReadFromEveryBorder(t *testing.T) {
	a := mustOpen(t, newBucket(t))
	var envs []*events.Envelope
	for seq := uint64(1); seq <= 300; seq++ {
		kind := events.Played
		if seq%3 == 0 {
			kind = events.UserFollowed
		}
		envs = append(envs, newEnvelope(seq, kind, 1000))
	}

	mustSeal(t, a, envs[:140], envs[140:])
	want := toArchival(envs)
	for _, from := range []int{0, 1, 65, 66, 97, 98, 99, 139, 140, 141, 299, 300} {
		cursor := events.Cursor{Log: testLog}
		if from > 0 {
			cursor = want[from-1].Cursor
		}

		// Read everything once. From the other cursors, read to behind the next border.
		some := want[from:]
		if from > 0 {
			some = some[:min(60, len(some))]
		}
		got, err := readSome(a, cursor, len(some))
		if err != nil {
			t.Fatal(err)
		}
		if d := diffEnvelopes(some, got); d != "" {
			t.Fatalf("envelopes from %d (-want +got):\n%s", from, d)
		}
	}

	info := a.Info()
	if info.Envelopes != 300 || info.End.Seq != 300 || info.Epoch != 1 {
		t.Errorf("info: got %+v, want 300 envelopes up to 300 in epoch 1", info)
	}
	if got := info.Classes[Facts]; got.Events != 100_000 || got.Segments != 2 {
		t.Errorf("info of facts: got %+v, want 100000 events in 2 segments", got)
	}
	if got := info.Classes[Activity]; got.Events != 200_000 || got.Bytes == 0 {
		t.Errorf("info of activity: got %+v, want 200000 events in more than 0 bytes", got)
	}
}

// TestReadChecksCursor checks that Read rejects cursors of other logs, cursors with another time, and
// cursors after the end.
func TestReadChecksCursor(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	envs := []*events.Envelope{
		newEnvelope(1, events.Played, 2),
		newEnvelope(2, events.UserFollowed, 2),
		newEnvelope(5, events.Played, 1),
	}
	mustSeal(t, a, envs)

	facts := events.Kinds(events.UserFollowed)
	cursor := func(seq uint64, last events.Micros) events.Cursor {
		return events.Cursor{Log: testLog, Epoch: 1, Seq: seq, LastTime: last}
	}
	timeOf := func(i int) events.Micros { return envs[i].Cursor.LastTime }

	for _, c := range []struct {
		name  string
		from  events.Cursor
		kinds events.KindSet
		want  error
	}{
		{"beginning", events.Cursor{Log: testLog}, facts, nil},
		{"other log", events.Cursor{Log: events.LogID{9}, Seq: 1}, facts, events.ErrOtherLog},
		{"activity", cursor(1, timeOf(0)), events.AllKinds, nil},
		{"activity at another time", cursor(1, timeOf(0)+1), events.AllKinds, events.ErrRewritten},
		{"facts at another time", cursor(2, timeOf(1)-1), facts, events.ErrRewritten},
		{"no time", cursor(2, 0), facts, nil},
		{"no such envelope", cursor(3, timeOf(1)), events.AllKinds, events.ErrRewritten},
		{"end", cursor(5, timeOf(2)), facts, nil},
		{"end at another time", cursor(5, timeOf(2)+1), facts, events.ErrRewritten},
		{"after the end", cursor(6, timeOf(2)), facts, events.ErrLogShorter},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readAll(a, c.from, c.kinds, 1); !errors.Is(err, c.want) {
				t.Errorf("read: got error %v, want %v", err, c.want)
			}
		})
	}
}

// TestWriterRejectsWrongEnvelopes checks that a writer rejects envelopes that do not follow the end of
// the archive, or that could not be read back as they are. Of two writers at the same end, only the
// first can seal.
func TestWriterRejectsWrongEnvelopes(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	mustSeal(t, a, []*events.Envelope{newEnvelope(5, events.Played, 2)})
	change := func(changeEnvelope func(*events.Envelope)) *events.Envelope {
		env := newEnvelope(6, events.Played, 3)
		changeEnvelope(env)
		return env
	}

	for name, c := range map[string]struct {
		env  *events.Envelope
		want error
	}{
		"before the end":               {newEnvelope(4, events.Played, 1), ErrOrder},
		"at the end":                   {newEnvelope(5, events.Played, 1), ErrOrder},
		"earlier than the end":         {change(func(e *events.Envelope) { e.Cursor.LastTime = start }), ErrOrder},
		"of another log":               {change(func(e *events.Envelope) { e.Cursor.Log = events.LogID{} }), events.ErrOtherLog},
		"of another epoch":             {change(func(e *events.Envelope) { e.Cursor.Epoch = 2 }), events.ErrOtherEpoch},
		"slots that do not rise":       {change(func(e *events.Envelope) { e.Events[1].Slot = 2 }), ErrOrder},
		"a kind that is not listed":    {change(func(e *events.Envelope) { e.Events[1].Kind = 9 }), ErrOrder},
		"more events than it may have": {newEnvelope(6, events.Played, 1001), ErrOrder},
	} {
		t.Run(name, func(t *testing.T) {
			if err := a.Writer().Add(c.env); !errors.Is(err, c.want) {
				t.Errorf("Add: got error %v, want %v", err, c.want)
			}
		})
	}

	// An event with a field that its kind does not have would be read back without the field, so
	// the segment is not sealed.
	w := a.Writer()
	if err := w.Add(change(func(e *events.Envelope) { e.Events[1].Title = "x" })); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Seal(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("seal of an event that is not read back: got error %v, want %v", err, ErrDamaged)
	}

	// Of two writers at the same end, the first one to seal wins.
	first := a.Writer()
	second := a.Writer()
	for _, w := range []*Writer{first, second} {
		if err := w.Add(newEnvelope(6, events.Played, 1)); err != nil {
			t.Fatal(err)
		}
	}
	otherProcess := mustOpen(t, a.bucket).Writer()

	if _, err := first.Seal(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := second.Seal(t.Context()); !errors.Is(err, ErrChanged) {
		t.Errorf("seal of the second writer: got error %v, want %v", err, ErrChanged)
	}
	if err := otherProcess.Add(newEnvelope(6, events.Played, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := otherProcess.Seal(t.Context()); !errors.Is(err, ErrChanged) {
		t.Errorf("seal of another process: got error %v, want %v", err, ErrChanged)
	}

	if _, err := first.Seal(t.Context()); err == nil {
		t.Error("second Seal: got no error, want one")
	}
}

// TestOpenRejectsOtherArchives checks that Open accepts an empty bucket as an empty archive, and
// rejects the archive of another log.
func TestOpenRejectsOtherArchives(t *testing.T) {
	b := newMemoryBucket()
	if _, ok, err := LogOf(t.Context(), b); ok || err != nil {
		t.Errorf("log id of an empty bucket: got ok %v and error %v, want none", ok, err)
	}

	a := mustOpen(t, b)
	if a.End() != (events.Cursor{Log: testLog}) {
		t.Errorf("end of an empty archive: got %+v, want the start of the log", a.End())
	}
	if got, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1); err != nil || len(got) > 0 {
		t.Errorf("envelopes of an empty archive: got %v and error %v, want none", got, err)
	}

	mustSeal(t, a, []*events.Envelope{newEnvelope(1, events.Played, 2)})
	if _, err := Open(t.Context(), b, events.LogID{1}); !errors.Is(err, events.ErrOtherLog) {
		t.Errorf("Open for another log: got error %v, want %v", err, events.ErrOtherLog)
	}
	if id, ok, err := LogOf(t.Context(), b); !ok || id != testLog || err != nil {
		t.Errorf("log id: got %x (%v) and error %v, want %x", id, ok, err, testLog)
	}
}

// TestSweepRemovesUnnamedObjects checks that Sweep removes the objects of the archive that the
// manifest does not name, and nothing else.
func TestSweepRemovesUnnamedObjects(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	env := newEnvelope(1, events.Played, 2)
	env.Events[0].ID = "e1"
	mustSeal(t, a, []*events.Envelope{env})
	if err := a.BeginEpoch(t.Context(), 2, a.End()); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{objectPrefix + "facts-half", "other/object"} {
		if err := b.Put(t.Context(), name, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}

	if err := a.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Compare the names of the objects without their random ends.
	objects, err := b.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		name, _, _ := strings.Cut(o.Name, "-")
		names = append(names, name)
	}

	want := []string{"archive/MANIFEST", "archive/activity", "archive/repeats", "other/object"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("objects after the sweep (-want +got):\n%s", diff)
	}
	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestTooLargeManifestIsNotWritten checks that a manifest that is too large to be read does not
// replace the previous one.
func TestTooLargeManifestIsNotWritten(t *testing.T) {
	b := newMemoryBucket()
	mustSeal(t, mustOpen(t, b), []*events.Envelope{newEnvelope(1, events.Played, 2)})

	if err := putManifest(t.Context(), b, make([]byte, maxManifestBytes+1)); !errors.Is(err, errManifestTooLarge) {
		t.Errorf("writing a large manifest: got error %v, want %v", err, errManifestTooLarge)
	}
	if err := mustOpen(t, b).Check(t.Context(), nil); err != nil {
		t.Errorf("check of the archive afterwards: %v", err)
	}
}

// TestReaderCanBeClosedAtAnyTime checks that a reader can be closed at any time, also while it
// prefetches. A context that ends interrupts only the call that it was passed to.
func TestReaderCanBeClosedAtAnyTime(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	var envs []*events.Envelope
	for seq := uint64(1); seq <= 500; seq++ {
		envs = append(envs, newEnvelope(seq, events.Played, 1000))
	}

	mustSeal(t, a, envs)
	r, err := a.Read(t.Context(), events.Cursor{Log: testLog}, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := r.Next(t.Context(), 1); err != nil {
		t.Error(err)
	}

	// Next returns what was prefetched, and then the error of the context.
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for err = nil; err == nil; {
		_, err = r.Next(canceled, 1)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Next with an ended context: got error %v, want %v", err, context.Canceled)
	}

	if _, err := r.Next(t.Context(), 1); err != nil {
		t.Errorf("Next after an ended context: got error %v, want none", err)
	}

	r.Close()
	if _, err := r.Next(t.Context(), 1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Next after Close: got error %v, want one that is not %v", err, io.EOF)
	}
}

// The compiler checks that faultyBucket is a bucket.
var _ bucket.Bucket = (*faultyBucket)(nil)
