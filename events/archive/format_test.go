package archive

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// newEnvelopeOfEveryKind returns an envelope with rejects and with an event of every kind, and also
// a backfill of every kind that allows one.
func newEnvelopeOfEveryKind() *events.Envelope { return newEnvelopeOfKinds(events.AllKinds) }

// goldenKinds are the kinds in the golden files. Later kinds do not change the form of these.
const goldenKinds = events.AllKinds & (1<<(events.BackfillClosed+1) - 1)

// newEnvelopeOfKinds returns an envelope like that of newEnvelopeOfEveryKind, with events of the given
// kinds only.
func newEnvelopeOfKinds(kinds events.KindSet) *events.Envelope {
	env := &events.Envelope{
		Repeats: 2, Repeated: []events.Repeat{{Key: 1 << 60, Time: start}, {Key: 5, Time: start - 1}}, Bytes: 4321, Kinds: kinds,
		Rejects: []events.Reject{
			{Seq: 7, Slot: 3, Data: []byte("bad"), Rejection: events.Rejection{
				Index: 3, Reason: skeinv1.Reason_REASON_INVALID_FIELD, Field: "played.user_id", Message: "must not be empty",
			}},
		},
	}

	// add appends an event of a kind. The slots have holes.
	add := func(k events.Kind, backfill bool) {
		i := len(env.Events)
		slot := uint16(2*i + i%2)
		fields := k.Fields()

		// Set all fields that the kind has.
		ev := events.Event{Kind: k, Seq: 7, Slot: slot, Time: start + events.Micros(slot), Backfill: backfill}
		set := func(field events.FieldSet, target *string, value string) {
			if fields&field != 0 {
				*target = value
			}
		}
		set(hasUser, &ev.User, "1001")
		set(hasPeer, &ev.Peer, "9f3c1d52-7a46-4b1e-8f0d-2b5f3a9c0e11")
		set(hasBoard, &ev.Board, "board")
		set(hasPin, &ev.Pin, "pin-1")
		set(hasItem, &ev.Item, "18446744073709551615")
		set(hasRepin, &ev.RepinUser, "1002")
		set(hasRepin, &ev.RepinPin, "pin-0")

		// The golden files are older than these fields of pin_deleted.
		if k == events.PinDeleted && kinds == goldenKinds {
			ev.RepinUser, ev.RepinPin = "", ""
		}

		set(hasReaction, &ev.Reaction, "_bookmark")
		set(hasGroup, &ev.Group, "r20421:pin-1")
		set(hasTitle, &ev.Title, "A title")
		set(hasSource, &ev.Source, "old")
		if fields&hasItems != 0 {
			ev.Items = []string{"1", "2", "1"}
		}
		if fields&hasAttributes != 0 {
			ev.Attributes = []byte{0, 255}
		}
		switch {
		case fields&hasRead != 0:
			ev.Read = start - 1e6
		case fields&hasScore != 0:
			ev.Score = -5
		case fields&hasSettings != 0:
			ev.Settings = events.SettingHideRepins
		}

		if backfill {
			ev.Source = "old"
			ev.Offset = uint64(1000 - slot)
			ev.Time = start - events.Micros(slot)*1e9
			ev.FillDerivedFields()
		}

		env.Events = append(env.Events, ev)
	}

	for _, k := range kinds.Slice() {
		add(k, false)
		if k.Backfillable() {
			add(k, true)
		}
	}

	env.Cursor = events.Cursor{Log: testLog, Epoch: 1, Seq: 7, LastTime: start + 100, Checksum: 8, WarmSeq: 3, WarmTime: start - 1}
	return env
}

// TestGoldenFilesAreStillRead checks that the formats on disk do not change: archives of earlier
// versions are read, and new files have the same bytes.
func TestGoldenFilesAreStillRead(t *testing.T) {
	ctx := t.Context()

	// The golden files are older than these fields of reactions.
	env := newEnvelopeOfKinds(goldenKinds)
	for i := range env.Events {
		if ev := &env.Events[i]; ev.Kind.Fields().Has(events.FieldReaction) {
			ev.Reaction, ev.RepinUser, ev.RepinPin = "", "", ""
		}
	}

	want := toArchival([]*events.Envelope{env})
	if *update {
		writeGolden(t, env)
	}

	b := readGoldenFiles(t, "testdata/golden/archive-v1", 4)
	a := mustOpen(t, b)
	got, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil {
		t.Fatal(err)
	}

	want[0].Cursor = a.End()
	if d := diffEnvelopes(want, got); d != "" {
		t.Errorf("envelopes of the golden files (-want +got):\n%s", d)
	}

	repeats, err := a.Repeats(ctx, 1)
	if err != nil || len(repeats) != 2 || repeats[1] != (events.Repeat{Key: 1 << 60, Time: start}) {
		t.Errorf("repeats of the golden files: got %v and error %v, want two", repeats, err)
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Error(err)
	}

	// New files have the same bytes, apart from their random names. Only a new version of the
	// compression library may change them.
	for name, data := range writeArchive(t, env).objects {
		if name == ManifestName {
			continue
		}
		prefix, _, _ := strings.Cut(name, "-")
		compared := 0
		for goldenName, golden := range b.objects {
			if !strings.HasPrefix(goldenName, prefix) {
				continue
			}
			compared++
			if !bytes.Equal(golden, data) {
				t.Errorf("%s: got other bytes; a new version of the format needs another number, and the previous one must still be read",
					goldenName)
			}
		}
		if compared == 0 {
			t.Errorf("%s: there is no golden file %s-*", name, prefix)
		}
	}
}

// TestFormerKindsAreReadFromOldArchives checks an archive of a version that had repins_hidden and
// repins_shown, and mutes without an end. It is read as follow_settings_set and mutes that do not end.
func TestFormerKindsAreReadFromOldArchives(t *testing.T) {
	b := readGoldenFiles(t, "testdata/golden/archive-v1-former-kinds", 3)
	got, err := readAll(mustOpen(t, b), events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("envelopes of the golden files: got %d, want 1", len(got))
	}

	// The version wrote a live event and a backfill of each kind, but no backfill of repins_shown.
	type eventFields struct {
		Kind     events.Kind
		Backfill bool
		Settings events.FollowSettings
		Until    events.Micros
	}
	want := []eventFields{
		{Kind: events.UserMuted},
		{Kind: events.UserMuted, Backfill: true},
		{Kind: events.FollowSettingsSet, Settings: events.SettingHideRepins},
		{Kind: events.FollowSettingsSet, Backfill: true, Settings: events.SettingHideRepins},
		{Kind: events.FollowSettingsSet},
	}
	var gotFields []eventFields
	for _, ev := range got[0].Events {
		if ev.User != "1001" || ev.Peer == "" {
			t.Errorf("users of event %d: got %q and %q, want 1001 and another one", ev.Slot, ev.User, ev.Peer)
		}
		gotFields = append(gotFields, eventFields{ev.Kind, ev.Backfill, ev.Settings, ev.Until})
	}
	if diff := cmp.Diff(want, gotFields); diff != "" {
		t.Errorf("events of the golden files (-want +got):\n%s", diff)
	}
}

// TestMutesKeepTheirEnds checks that the archive keeps when a mute ends, and that another mute does not
// end, in the same envelope.
func TestMutesKeepTheirEnds(t *testing.T) {
	env := newEnvelopeOfKinds(events.Kinds(events.UserMuted, events.FollowSettingsSet))
	for i := range env.Events {
		ev := &env.Events[i]
		switch {
		case ev.Kind == events.FollowSettingsSet:
			ev.Settings = events.AllFollowSettings
		case ev.Backfill:
			ev.Until = ev.Time - 5 // the backfilled mute ended before it began
		}
	}

	got, err := readAll(mustOpen(t, writeArchive(t, env)), events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("envelopes: got %d, want 1", len(got))
	}
	want := toArchival([]*events.Envelope{env})
	if d := cmp.Diff(want[0].Events, got[0].Events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// TestEveryKindIsReadAsWritten checks that every kind is read as it was written, also kinds above 31,
// of which the form stores only the lower bits.
func TestEveryKindIsReadAsWritten(t *testing.T) {
	env := newEnvelopeOfEveryKind()
	a := mustOpen(t, writeArchive(t, env))
	got, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1)
	if err != nil {
		t.Fatal(err)
	}

	want := toArchival([]*events.Envelope{env})
	want[0].Cursor = a.End()
	if d := diffEnvelopes(want, got); d != "" {
		t.Errorf("envelope (-want +got):\n%s", d)
	}
}

// writeArchive writes an archive with one envelope, whose log has begun epoch 2.
func writeArchive(t *testing.T, env *events.Envelope) *memoryBucket {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	mustSeal(t, a, []*events.Envelope{env})
	if err := a.BeginEpoch(t.Context(), 2, a.End()); err != nil {
		t.Fatal(err)
	}
	return b
}

// writeGolden writes the golden files from an envelope.
func writeGolden(t *testing.T, env *events.Envelope) {
	const dir = "testdata/golden/archive-v1"
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	for name, data := range writeArchive(t, env).objects {
		text := hex.EncodeToString(data)
		var lines strings.Builder
		for len(text) > 0 {
			n := min(len(text), 100)
			lines.WriteString(text[:n] + "\n")
			text = text[n:]
		}

		file := filepath.Join(dir, strings.TrimPrefix(name, objectPrefix)+".hex")
		if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readGoldenFiles returns a bucket with the objects of an archive from a directory of golden files.
func readGoldenFiles(t *testing.T, dir string, wantFiles int) *memoryBucket {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.hex"))
	if err != nil || len(files) != wantFiles {
		t.Fatalf("golden files: got %v and error %v, want %d", files, err, wantFiles)
	}
	b := newMemoryBucket()
	for _, file := range files {
		b.objects[objectPrefix+strings.TrimSuffix(filepath.Base(file), ".hex")] = readHex(t, file)
	}
	return b
}

// readHex reads a golden file.
func readHex(t *testing.T, file string) []byte {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzBlock checks that no bytes make the decoder panic. If it accepts a block, it can read all of its
// events.
func FuzzBlock(f *testing.F) {
	b := newBlockBuilder()
	for _, r := range splitByClass(newEnvelopeOfEveryKind()) {
		if err := b.addRecord(r); err != nil {
			f.Fatal(err)
		}
	}

	f.Add(b.appendEncoded(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBlock(data)
		if err != nil {
			return
		}

		unread := len(b.forms)
		var r record
		for b.readRecord(&r) {
			unread -= len(r.events)
		}
		if unread != 0 {
			t.Errorf("events that were not read: got %d, want 0", unread)
		}
	})
}

func FuzzRepeats(f *testing.F) {
	f.Add(encodeRepeats([]events.Repeat{{Key: 1, Time: 2}, {Key: 1 << 63, Time: start}}))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = decodeRepeats(data) })
}

func FuzzManifest(f *testing.F) {
	data, err := encodeManifest(&manifest{log: testLog, epoch: 1, end: events.Cursor{Log: testLog, Epoch: 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = decodeManifest(data) })
}
