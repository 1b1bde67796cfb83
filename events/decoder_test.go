package events

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// epoch2023 is a log time in 2023, from which tests count.
const epoch2023 = Micros(1_700_000_000_000_000)

// minute is one minute of log time.
const minute = Micros(time.Minute / time.Microsecond)

// newLike returns a like of an item.
func newLike(user, item, id string) *skeinv1.Event {
	return &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
}

// newMalformedLike returns an event that can be decoded but is rejected, because it names no item.
func newMalformedLike(user, id string) *skeinv1.Event { return newLike(user, "", id) }

// feeder passes envelopes with consecutive sequences to a decoder, and fails the test if one cannot be
// decoded.
type feeder struct {
	*testing.T
	d   *Decoder
	seq uint64
}

// newFeeder returns a feeder with a new decoder.
func newFeeder(t *testing.T) *feeder { return &feeder{T: t, d: NewDecoder(Cursor{})} }

// feedBytes decodes the body of the next message.
func (f *feeder) feedBytes(stamp Micros, data []byte) *Envelope {
	f.Helper()
	f.seq++
	env, err := f.d.Decode(f.seq, stamp, data)
	if err != nil || env.Seq() != f.seq || env.Bytes != len(data) {
		f.Fatalf("Decode: got %+v and error %v, want envelope %d of %d bytes", env, err, f.seq, len(data))
	}
	return env
}

// feed decodes events as the next envelope.
func (f *feeder) feed(stamp Micros, msgs ...*skeinv1.Event) *Envelope {
	f.Helper()
	return f.feedBytes(stamp, mustEncode(f, msgs...))
}

// listTimes returns the times of the events, in microseconds since epoch2023.
func listTimes(env *Envelope) (ts []Micros) {
	for _, ev := range env.Events {
		ts = append(ts, ev.Time-epoch2023)
	}
	return ts
}

// TestTimesNeverRepeat demands that the times of events rise by at least one microsecond, whatever
// the clock of the server does (I5).
func TestTimesNeverRepeat(t *testing.T) {
	f := newFeeder(t)
	first := newLike("a", "1", "")
	second := newLike("a", "2", "")
	third := newLike("a", "3", "")

	for i, step := range []struct {
		stamp  Micros // since epoch2023
		events int
		want   []Micros
	}{
		{100, 3, []Micros{100, 101, 102}},
		{100, 1, []Micros{103}},         // the clock stands still
		{103, 2, []Micros{104, 105}},    // the clock shows a time that is already assigned
		{-60_000_000, 1, []Micros{106}}, // the clock goes back a minute
		{107, 1, []Micros{107}},         // the next free time
		{5000, 3, []Micros{5000, 5001, 5002}},
		{5002, 2, []Micros{5003, 5004}},
	} {
		env := f.feed(epoch2023+step.stamp, []*skeinv1.Event{first, second, third}[:step.events]...)
		if got := listTimes(env); !slices.Equal(got, step.want) {
			t.Errorf("envelope %d at %d: got times %v, want %v", i, step.stamp, got, step.want)
		}
		if want := epoch2023 + step.want[step.events-1]; env.Cursor.LastTime != want {
			t.Errorf("envelope %d: got last time %d, want %d", i, env.Cursor.LastTime, want)
		}
	}
}

// TestMalformedEventTakesSlot demands that a malformed event takes a slot and with it a time,
// wherever it is in the envelope (I5, I11).
func TestMalformedEventTakesSlot(t *testing.T) {
	f := newFeeder(t)
	bad := newMalformedLike("a", "")
	good := newLike("a", "1", "")
	env := f.feed(epoch2023, bad, good, bad, good, bad)
	if got, want := listTimes(env), []Micros{1, 3}; !slices.Equal(got, want) {
		t.Errorf("times: got %v, want %v", got, want)
	}
	if got := env.Cursor.LastTime - epoch2023; got != 4 {
		t.Errorf("last time: got %d, want 4", got)
	}
	if env.Kinds != Kinds(Reacted) {
		t.Errorf("kinds: got %b, want %b", env.Kinds, Kinds(Reacted))
	}
	if env.Events[0].Slot != 1 || env.Events[1].Slot != 3 || env.Events[1].Seq != 1 {
		t.Errorf("events: got %+v, want likes in slots 1 and 3 of envelope 1", env.Events)
	}
	if len(env.Rejects) != 3 {
		t.Fatalf("rejects: got %+v, want 3", env.Rejects)
	}
	for i, r := range env.Rejects {
		if r.Seq != 1 || r.Slot != 2*i || r.Rejection.Index != 2*i || r.Rejection.Field != "reacted.item_id" || len(r.Data) == 0 {
			t.Errorf("reject %d: got %+v, want slot %d of envelope 1, field reacted.item_id and some data", i, r, 2*i)
		}
	}

	if env = f.feed(epoch2023, bad); len(env.Rejects) != 1 || env.Kinds != 0 || env.Cursor.LastTime != epoch2023+5 {
		t.Errorf("envelope with only a malformed event: got %+v, want one reject and the next time", env)
	}
}

// TestUndecodableEnvelopeTakesNoTime demands that an envelope that cannot be decoded has one reject
// and no events, and takes no time (I11). The decoder must continue after it.
func TestUndecodableEnvelopeTakesNoTime(t *testing.T) {
	good := mustEncode(t, newLike("a", "1", "x"), newLike("a", "2", "y"))
	many := slices.Repeat(good[bytes.IndexByte(good, 0x1a):], 501)
	for name, test := range map[string]struct {
		data        []byte
		wantReason  skeinv1.Reason
		wantMessage string // what the message contains
	}{
		"truncated":           {good[:len(good)-1], skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch"},
		"text":                {[]byte("hello, log"), skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch"},
		"a field of number 0": {append([]byte{2, 0}, good...), skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch"},
		"a field of number 2³⁰": {
			append(protowire.AppendVarint(nil, 1<<33|2), append([]byte{0}, good...)...),
			skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch",
		},
		"a malformed third event": {append(bytes.Clone(good), 0x1a, 1, 0xff), skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch"},
		"invalid UTF-8":           {append(bytes.Clone(good), 0x1a, 3, 0x0a, 1, 0xff), skeinv1.Reason_REASON_INVALID_FIELD, "EventBatch"},
		"version 2":               {append(bytes.Clone(good), 8, 2), skeinv1.Reason_REASON_INVALID_FIELD, "version 2"},
		"1002 events":             {many, skeinv1.Reason_REASON_TOO_LARGE, "1000"},
		"more than 768 KiB": {
			append(bytes.Clone(good), append([]byte{0x7a, 0xf0, 0xff, 0x2f}, make([]byte, MaxEnvelopeBytes-16)...)...),
			skeinv1.Reason_REASON_TOO_LARGE, "786432",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeeder(t)
			before := f.feed(epoch2023, newLike("a", "0", ""))
			env := f.feedBytes(epoch2023+minute, test.data)
			if len(env.Events) != 0 || env.Kinds != 0 || env.Repeats != 0 || len(env.Rejects) != 1 {
				t.Fatalf("envelope: got %+v, want only one reject", env)
			}

			// The reject says why, and has the start of the data.
			r := env.Rejects[0]
			if r.Slot != -1 || r.Seq != 2 || r.Rejection.Index != 0 {
				t.Errorf("reject: got slot %d, sequence %d and index %d, want -1, 2 and 0", r.Slot, r.Seq, r.Rejection.Index)
			}
			if r.Rejection.Reason != test.wantReason || !strings.Contains(r.Rejection.Message, test.wantMessage) {
				t.Errorf("rejection: got %+v, want %v with %q", r.Rejection, test.wantReason, test.wantMessage)
			}
			if len(r.Data) > MaxRejectData || !bytes.HasPrefix(test.data, r.Data) {
				t.Errorf("data of the reject: got %x, want at most %d bytes from the start of the message", r.Data, MaxRejectData)
			}

			// The envelope takes no time, and the decoder continues after it.
			if env.Cursor.LastTime != before.Cursor.LastTime || env.Cursor.Seq != 2 || env.Cursor.Checksum == before.Cursor.Checksum {
				t.Errorf("cursor after %+v: got %+v, want sequence 2, the same last time and another checksum", before.Cursor, env.Cursor)
			}
			next := f.feedBytes(epoch2023, good)
			if got, want := listTimes(next), []Micros{1, 2}; !slices.Equal(got, want) || next.Repeats != 0 {
				t.Errorf("next envelope: got times %v and %d repeats, want %v and no repeat", got, next.Repeats, want)
			}
		})
	}
}

// TestEmptyEnvelopeTakesNoTime demands that an envelope without events takes no time. An empty
// event takes a slot, and is rejected because it has no kind.
func TestEmptyEnvelopeTakesNoTime(t *testing.T) {
	f := newFeeder(t)
	for _, data := range [][]byte{nil, {8, 1}} {
		if env := f.feedBytes(epoch2023, data); len(env.Events)+len(env.Rejects) != 0 || env.Cursor.LastTime != 0 {
			t.Errorf("envelope %x: got %+v, want no events, rejects or time", data, env)
		}
	}

	// This envelope has one event, which is empty.
	env := f.feedBytes(epoch2023, []byte{0x1a, 0})
	if len(env.Rejects) != 1 || env.Rejects[0].Rejection.Reason != skeinv1.Reason_REASON_UNKNOWN_KIND || env.Cursor.LastTime != epoch2023 {
		t.Errorf("empty event: got %+v, want one reject of an unknown kind", env)
	}
}

// TestLargestEnvelopeDecodes demands that an envelope with exactly the largest number of events and
// bytes is decoded, and that one with one byte more is rejected.
func TestLargestEnvelopeDecodes(t *testing.T) {
	msgs := make([]*skeinv1.Event, MaxEnvelopeEvents)
	for i := range msgs {
		msgs[i] = newLike(strings.Repeat("u", 128), strings.Repeat("i", 128), strings.Repeat("e", 64))
	}

	// Fill the envelope up to the limit with an unknown field, number 15.
	data := mustEncode(t, msgs...)
	fill := MaxEnvelopeBytes - len(data) - 4
	data = append(protowire.AppendVarint(append(data, 0x7a), uint64(fill)), make([]byte, fill)...)
	if len(data) != MaxEnvelopeBytes {
		t.Fatalf("size of the envelope: got %d bytes, want %d", len(data), MaxEnvelopeBytes)
	}

	f := newFeeder(t)
	env := f.feedBytes(epoch2023, data)
	if len(env.Events) != 1 || env.Repeats != 999 {
		t.Errorf("envelope: got %d events and %d repeats, want 1 and 999", len(env.Events), env.Repeats)
	}
	if want := epoch2023 + 999; env.Cursor.LastTime != want {
		t.Errorf("last time: got %d, want %d", env.Cursor.LastTime, want)
	}

	env = f.feedBytes(epoch2023, append(data, 0))
	if len(env.Rejects) != 1 || env.Rejects[0].Rejection.Reason != skeinv1.Reason_REASON_TOO_LARGE {
		t.Errorf("envelope with one byte more: got %+v, want one reject as too large", env)
	}
}

// TestBackfillKeepsItsTimeUpToLogTime demands that a backfill keeps its own time, unless that is
// after its log time; then it gets its log time (I5).
func TestBackfillKeepsItsTimeUpToLogTime(t *testing.T) {
	f := newFeeder(t)
	newBackfill := func(occurred Micros, nanos int32) *skeinv1.Event {
		msg := newLike("a", "1", "")
		msg.Source = "s"
		msg.Offset = 1
		msg.OccurredAt = timestamppb.New(occurred.Time())
		msg.OccurredAt.Nanos += nanos
		return msg
	}

	env := f.feed(epoch2023,
		newBackfill(epoch2023-minute, 999), newBackfill(epoch2023+1, 999), newBackfill(epoch2023+3, 0),
		newBackfill(0, 0), newBackfill(maxSeconds*1_000_000, 0))
	if got, want := listTimes(env), []Micros{-minute, 1, 2, -epoch2023, 4}; !slices.Equal(got, want) {
		t.Errorf("times: got %v, want %v", got, want)
	}
	for _, ev := range env.Events {
		if !ev.Backfill || ev.Source != "s" || ev.Offset != 1 {
			t.Errorf("event: got %+v, want a backfill of source s at offset 1", ev)
		}
	}
}

// TestDecoderRejectsFallingSequences demands that the decoder rejects a sequence that was passed
// before, or that is lower than one that was. Gaps are allowed.
func TestDecoderRejectsFallingSequences(t *testing.T) {
	d := NewDecoder(Cursor{Seq: 10, LastTime: epoch2023})
	if d.IsWarmingUp() || d.WarmUpFrom() != 11 {
		t.Errorf("new decoder: got warming %v from %d, want false from 11", d.IsWarmingUp(), d.WarmUpFrom())
	}

	data := mustEncode(t, newLike("a", "1", ""))
	for _, c := range []struct {
		seq  uint64
		want error
	}{{10, ErrSequenceOrder}, {12, nil}, {12, ErrSequenceOrder}, {3, ErrSequenceOrder}, {1 << 40, nil}} {
		env, err := d.Decode(c.seq, 0, data)
		if !errors.Is(err, c.want) || (err == nil) != (env != nil) {
			t.Errorf("sequence %d: got %v and error %v, want error %v", c.seq, env, err, c.want)
		}
	}

	if env, err := d.Decode(1<<40+1, 0, data); err != nil || env.Cursor.LastTime != epoch2023+3 || env.Cursor.WarmSeq != 12 {
		t.Errorf("last envelope: got %+v and error %v, want the third time and a warm-up from 12", env, err)
	}
}

// TestEnvelopeDoesNotShareBuffer demands that a decoded envelope does not share memory with the
// body of the message, so that the caller may reuse its buffer.
func TestEnvelopeDoesNotShareBuffer(t *testing.T) {
	data := mustEncode(t, append(newEventsOfEveryKind(), newMalformedLike("a", "x"))...)
	f := newFeeder(t)
	env := f.feedBytes(epoch2023, data)
	want := newFeeder(t).feedBytes(epoch2023, bytes.Clone(data))

	clear(data)
	if !equalEnvelopes(env, want) {
		t.Errorf("envelope after its buffer was cleared: got %+v, want %+v", env, want)
	}
}
