package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/testmain"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// start is the time at which the logs of the tests begin.
const start = events.Micros(1_700_000_000_000_000)

// testLog is the id of the logs of the tests.
var testLog = events.LogID{1, 2, 3, 15: 16}

// newBucket returns an empty bucket in a directory.
func newBucket(t testing.TB) bucket.Bucket {
	t.Helper()
	b, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fataler has the methods of [testing.TB] that [rapid.T] has, too.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// mustOpen opens the archive of testLog in a bucket.
func mustOpen(t fataler, b bucket.Bucket) *Archive {
	t.Helper()
	a, err := Open(context.Background(), b, testLog)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// mustSeal archives each list of envelopes as one segment.
func mustSeal(t fataler, a *Archive, segments ...[]*events.Envelope) {
	t.Helper()
	for _, envs := range segments {
		w := a.Writer()
		if err := w.Add(envs...); err != nil {
			t.Fatal(err)
		}
		sealed, err := w.Seal(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if sealed.End != a.End() || sealed.Envelopes != uint64(len(envs)) {
			t.Fatal(fmt.Sprintf("sealed segment: got %+v, want %d envelopes up to %+v", sealed, len(envs), a.End()))
		}
	}
}

// readAll reads all envelopes after a cursor, in portions of maxBytes.
func readAll(a *Archive, from events.Cursor, kinds events.KindSet, maxBytes int) (all []*events.Envelope, err error) {
	r, err := a.Read(context.Background(), from, kinds)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		envs, err := r.Next(context.Background(), maxBytes)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, envs...)
	}
}

// readSome reads up to n envelopes after a cursor. Up to the end, it reads all that there are.
func readSome(a *Archive, from events.Cursor, n int) (some []*events.Envelope, err error) {
	r, err := a.Read(context.Background(), from, events.AllKinds)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for len(some) < n {
		envs, err := r.Next(context.Background(), 1<<20)
		if err != nil {
			return some, err
		}
		some = append(some, envs...)
	}
	return some[:n], nil
}

// toArchival returns envelopes of the stream in the form in which an archive returns them. The last
// envelope is the end of the archive.
func toArchival(envs []*events.Envelope) []*events.Envelope {
	want := make([]*events.Envelope, len(envs))
	for i, env := range envs {
		e := *env
		e.Repeated = nil
		e.Events = append([]events.Event(nil), env.Events...)
		for j := range e.Events {
			e.Events[j].ID = ""
		}
		if i < len(envs)-1 {
			e.Cursor.Checksum, e.Cursor.WarmSeq, e.Cursor.WarmTime = 0, 0, 0
		}
		want[i] = &e
	}

	return want
}

// keepFacts returns the part of archived envelopes that a fold that reads only facts gets.
func keepFacts(envs []*events.Envelope) (want []*events.Envelope) {
	for i, env := range envs {
		e := *env
		e.Events, e.Kinds = nil, 0
		for _, ev := range env.Events {
			if !ActivityKinds.Has(ev.Kind) {
				e.Events = append(e.Events, ev)
				e.Kinds |= events.Kinds(ev.Kind)
			}
		}

		isEmpty := len(e.Events) == 0 && len(e.Rejects) == 0 && e.Repeats == 0 && len(env.Events) > 0
		if isEmpty && i < len(envs)-1 {
			continue
		}
		if isEmpty {
			e.Bytes = 0
		}
		want = append(want, &e)
	}

	return want
}

// diffEnvelopes returns the differences between envelopes, or an empty string. Empty and nil slices
// are equal.
func diffEnvelopes(want, got []*events.Envelope) string {
	if slices.EqualFunc(want, got, equalEnvelopes) {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// equalEnvelopes is a faster comparison than that of diffEnvelopes.
func equalEnvelopes(a, b *events.Envelope) bool {
	return a.Cursor == b.Cursor && a.Kinds == b.Kinds && a.Repeats == b.Repeats && a.Bytes == b.Bytes &&
		slices.EqualFunc(a.Rejects, b.Rejects, func(a, b events.Reject) bool { return cmp.Equal(a, b, cmpopts.EquateEmpty()) }) &&
		slices.EqualFunc(a.Events, b.Events, equalEvents)
}

// equalEvents compares two events. Empty and nil slices are equal.
func equalEvents(a, b events.Event) bool {
	if !slices.Equal(a.Items, b.Items) || !bytes.Equal(a.Attributes, b.Attributes) || !bytes.Equal(a.Encoded, b.Encoded) {
		return false
	}
	a.Items, a.Attributes, a.Encoded = nil, nil, nil
	b.Items, b.Attributes, b.Encoded = nil, nil, nil
	return reflect.DeepEqual(a, b)
}

// drawLog draws the messages of a log, some of them malformed, and decodes them as a reader of the
// stream does.
func drawLog(t *rapid.T, maxEnvelopes int) []*events.Envelope {
	d := events.NewDecoder(events.Cursor{Log: testLog, Epoch: 1})
	var envs []*events.Envelope
	seq := uint64(rapid.IntRange(0, 5).Draw(t, "before"))
	now := start
	for range rapid.IntRange(1, maxEnvelopes).Draw(t, "envelopes") {
		seq++
		now += events.Micros(rapid.SampledFrom([]int{-100, 0, 1, 1000, 10_000_000, 3_600_000_000}).Draw(t, "pause"))
		env, err := d.Decode(seq, now, drawMessage(t))
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, env)
	}

	return envs
}

// drawMessage draws the body of a message.
func drawMessage(t *rapid.T) []byte {
	if rapid.IntRange(0, 19).Draw(t, "garbage") == 0 {
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "message")
	}
	var msgs []*skeinv1.Event
	for range rapid.SampledFrom([]int{1, 1, 2, 3, 10}).Draw(t, "events") {
		msgs = append(msgs, drawEvent(t))
	}
	data, err := events.EncodeEnvelope(msgs)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// testIDs are valid ids of all forms: numbers that fit into 64 bits and larger ones, UUIDs and other
// texts.
var testIDs = []string{
	"0", "1", "2", "18446744073709551615", "18446744073709551616", "007", "a", "b", "zoë", "A-1",
	"00000000-0000-4000-8000-000000000001", "ffffffff-ffff-4fff-bfff-ffffffffffff", "FFFFFFFF-ffff-4fff-bfff-ffffffffffff",
	string(bytes.Repeat([]byte("x"), events.MaxIDBytes)),
}

// drawID draws an id, rarely an invalid one.
func drawID(t *rapid.T, what string) string {
	if rapid.IntRange(0, 30).Draw(t, "bad") == 0 {
		return rapid.SampledFrom([]string{"", "a b", "\x00"}).Draw(t, what)
	}
	if rapid.Bool().Draw(t, "number") {
		return fmt.Sprint(rapid.Uint64().Draw(t, what))
	}
	return rapid.SampledFrom(testIDs).Draw(t, what)
}

// drawEvent draws an event of any kind, sometimes an invalid one.
func drawEvent(t *rapid.T) *skeinv1.Event {
	id := func(what string) string { return drawID(t, what) }
	ev := events.Event{
		Kind: rapid.SampledFrom(events.AllKinds.Slice()).Draw(t, "kind"), User: id("user"), Peer: id("peer"), Board: id("board"),
		Pin: id("pin"), Item: id("item"), Score: rapid.Int64().Draw(t, "score"),
		ID: rapid.SampledFrom([]string{"", "", "e1", "e2"}).Draw(t, "id"),
	}

	switch ev.Kind {
	case events.Served:
		for range rapid.IntRange(1, 5).Draw(t, "items") {
			ev.Items = append(ev.Items, id("item"))
		}
	case events.PinCreated:
		if rapid.Bool().Draw(t, "repin") {
			ev.RepinUser, ev.RepinPin = id("repin user"), id("repin pin")
		}
		if rapid.Bool().Draw(t, "own") {
			ev.Item = ev.Pin
		}
		ev.Attributes = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "attributes")
	case events.Reacted, events.Unreacted:
		ev.Reaction = rapid.SampledFrom([]string{"", "", "save", "_bookmark", "Not valid"}).Draw(t, "reaction")
		if rapid.Bool().Draw(t, "on a pin") {
			ev.RepinUser, ev.RepinPin = id("pin owner"), id("pin of another")
		}
	case events.BoardCreated:
		ev.Title = rapid.StringN(0, 20, 200).Draw(t, "title")
	case events.BackfillClosed:
		ev.Source = rapid.SampledFrom([]string{"", "old"}).Draw(t, "source")
	}

	if ev.Kind.Backfillable() && rapid.Bool().Draw(t, "backfill") {
		ev.Backfill = true
		ev.Source = rapid.SampledFrom([]string{"old", "older", "bad source"}).Draw(t, "source")
		ev.Offset = rapid.Uint64().Draw(t, "offset")
		ev.Time = rapid.SampledFrom([]events.Micros{0, 1, start - 1, start, start + 1e12}).Draw(t, "occurred")
	}
	return ev.Proto()
}

// drawSegments splits envelopes into segments.
func drawSegments(t *rapid.T, envs []*events.Envelope) (segments [][]*events.Envelope) {
	for len(envs) > 0 {
		n := rapid.IntRange(1, len(envs)).Draw(t, "segment")
		segments = append(segments, envs[:n])
		envs = envs[n:]
	}

	return segments
}
