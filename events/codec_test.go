package events

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// mustEncode encodes events as one envelope.
func mustEncode(tb testing.TB, msgs ...*skeinv1.Event) []byte {
	tb.Helper()
	data, err := EncodeEnvelope(msgs)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestGoldenEnvelopesDecodeUnchanged demands that existing logs stay readable: the golden envelope
// must be decoded to the same events and the same cursor, and encoding must give the same bytes.
func TestGoldenEnvelopesDecodeUnchanged(t *testing.T) {
	want, err := hex.DecodeString(readGolden(t, "envelope.hex"))
	if err != nil {
		t.Fatal(err)
	}

	// The golden file has the kinds and fields that existed when it was written. Later ones do not
	// change it.
	const kinds = AllKinds & (1<<(BackfillClosed+1) - 1)
	msgs := slices.DeleteFunc(newEventsOfEveryKind(), func(msg *skeinv1.Event) bool {
		return !kinds.Has(KindOf(msg)) || isReactionWithKind(msg) || msg.GetUserMuted().GetUntil() != nil
	})
	if got := mustEncode(t, msgs...); !bytes.Equal(got, want) {
		t.Errorf("EncodeEnvelope: got %x, want %x", got, want)
	}

	env, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, want)
	if err != nil || len(env.Events) != len(msgs) {
		t.Fatalf("Decode: got %+v and error %v, want %d events", env, err, len(msgs))
	}
	if env.Bytes != len(want) || env.Repeats != 0 {
		t.Errorf("Decode: got %d bytes and %d repeats, want %d and 0", env.Bytes, env.Repeats, len(want))
	}
	if env.Kinds != kinds {
		t.Errorf("kinds: got %b, want %b", env.Kinds, kinds)
	}
	for i, got := range env.Events {
		ev, r := FromProto(msgs[i])
		if r != nil {
			t.Fatalf("FromProto of event %d: got rejection %v, want none", i, r)
		}
		ev.Seq = 1
		ev.Slot = uint16(i)
		if !ev.Backfill {
			ev.Time = 1_700_000_000_000_000 + Micros(i)
		}
		if diff := cmp.Diff(ev, got); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}

	if got, want := encodeCursorHex(t, env.Cursor), readGolden(t, "cursor-after-envelope.hex"); got != want {
		t.Errorf("cursor: got %s, want %s", got, want)
	}
}

// isReactionWithKind reports whether an event is a reaction with a kind. Kinds 25 and 26 did not have
// that field when they were likes.
func isReactionWithKind(msg *skeinv1.Event) bool {
	return msg.GetReacted().GetKind()+msg.GetUnreacted().GetKind() != ""
}

// TestGoldenReactionsDecodeUnchanged demands that the bytes of reactions with a kind and a pin stay
// readable, too.
func TestGoldenReactionsDecodeUnchanged(t *testing.T) {
	want, err := hex.DecodeString(readGolden(t, "envelope-reactions.hex"))
	if err != nil {
		t.Fatal(err)
	}
	msgs := slices.DeleteFunc(newEventsOfEveryKind(), func(msg *skeinv1.Event) bool { return !isReactionWithKind(msg) })
	if got := mustEncode(t, msgs...); !bytes.Equal(got, want) {
		t.Errorf("EncodeEnvelope: got %x, want %x", got, want)
	}

	env, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, want)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range env.Events {
		got = append(got, fmt.Sprintf("%v %s %s %q on %s/%s", ev.Kind, ev.User, ev.Item, ev.Reaction, ev.RepinUser, ev.RepinPin))
	}
	wantEvents := []string{
		`reacted ann film "_bookmark" on /`,
		`reacted ann film "save" on bob/p1`,
		`unreacted ann film "save" on bob/p1`,
	}
	if diff := cmp.Diff(wantEvents, got); diff != "" {
		t.Errorf("decoded events (-want +got):\n%s", diff)
	}
}

// TestLikeByNameIsTheSame demands that "like" and no kind are the same reaction, also for a retry
// with the same event id.
func TestLikeByNameIsTheSame(t *testing.T) {
	named := newReaction("a", "i", "like", nil)
	unnamed := newReaction("a", "i", "", nil)
	named.EventId = "r"
	unnamed.EventId = "r"

	env, err := NewDecoder(Cursor{}).Decode(1, 1, mustEncode(t, named, unnamed))
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Events) != 1 || env.Events[0].Reaction != "" {
		t.Errorf("events: got %+v, want one like", env.Events)
	}
	if env.Repeats != 1 {
		t.Errorf("repeats: got %d, want 1", env.Repeats)
	}
}

// encodeCursorHex returns the encoded cursor in hexadecimal.
func encodeCursorHex(tb testing.TB, c Cursor) string {
	tb.Helper()
	b, err := c.MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// TestEncodeEnvelopeEnforcesLimits demands that EncodeEnvelope rejects envelopes with no events,
// too many events or too many bytes, and that an envelope names its version and the kinds of its
// events.
func TestEncodeEnvelopeEnforcesLimits(t *testing.T) {
	follow := newEventsOfEveryKind()[0]
	many := make([]*skeinv1.Event, MaxEnvelopeEvents+1)
	for i := range many {
		many[i] = follow
	}
	big := &skeinv1.Event{EventId: strings.Repeat("x", MaxEnvelopeBytes), Kind: follow.Kind}

	for _, c := range []struct {
		name string
		msgs []*skeinv1.Event
		want error
	}{
		{"no events", nil, ErrEnvelopeEmpty},
		{"most events", many[1:], nil},
		{"too many events", many, ErrEnvelopeTooLarge},
		{"too many bytes", []*skeinv1.Event{big}, ErrEnvelopeTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := EncodeEnvelope(c.msgs)
			if !errors.Is(err, c.want) {
				t.Errorf("EncodeEnvelope: got error %v, want %v", err, c.want)
			}
			if (err == nil) != (data != nil) {
				t.Errorf("EncodeEnvelope: got %d bytes and error %v, want one of them", len(data), err)
			}
		})
	}

	if _, err := EncodeEnvelope([]*skeinv1.Event{{EventId: "\xff"}}); err == nil {
		t.Error("event id with invalid UTF-8: got no error, want one")
	}

	// An envelope names its version and the kinds of its events.
	var batch skeinv1.EventBatch
	if err := proto.Unmarshal(mustEncode(t, newEventsOfEveryKind()[19], follow, follow), &batch); err != nil {
		t.Fatal(err)
	}
	if batch.GetVersion() != 1 || len(batch.GetEvents()) != 3 {
		t.Errorf("batch: got version %d and %d events, want 1 and 3", batch.GetVersion(), len(batch.GetEvents()))
	}
	if got, want := batch.GetKinds(), uint64(Kinds(ItemScored, UserFollowed)); got != want {
		t.Errorf("kinds of the batch: got %b, want %b", got, want)
	}
	if err := proto.Unmarshal(mustEncode(t, &skeinv1.Event{}), &batch); err != nil {
		t.Fatal(err)
	}
	if got := batch.GetKinds(); got != 0 {
		t.Errorf("kinds of an event without kind: got %b, want none", got)
	}
}

// TestJoinedCallsEqualLibraryEncoding joins several calls into one envelope. It has the same bytes
// as the encoding of all their events by the protobuf library.
func TestJoinedCallsEqualLibraryEncoding(t *testing.T) {
	all := newEventsOfEveryKind()
	var calls []*EncodedCall
	var size EnvelopeSize
	for _, evs := range [][]*skeinv1.Event{all[:3], all[3:4], all[4:]} {
		c, err := EncodeCall(evs)
		if err != nil {
			t.Fatal(err)
		}
		if !size.Add(&c) {
			t.Fatalf("call of %d events: got no space in the envelope, want all calls to fit", len(evs))
		}
		calls = append(calls, &c)
	}

	// The library encodes the events of all calls.
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&skeinv1.EventBatch{
		Version: EnvelopeVersion, Kinds: uint64(AllKinds), Events: all,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := JoinCalls(calls...); !bytes.Equal(got, want) {
		t.Errorf("joined calls: got %x, want %x", got, want)
	}
}

// TestProtoConversionIsReversible demands that FromProto and Proto are the reverse of each other,
// and that Encoded has the bytes that the protobuf library writes.
func TestProtoConversionIsReversible(t *testing.T) {
	for _, msg := range newEventsOfEveryKind() {
		ev, r := FromProto(msg)
		if r != nil {
			t.Fatalf("FromProto of %v: got rejection %v, want none", msg, r)
		}

		// An event keeps times in microseconds.
		again := ev.Proto()
		if msg.OccurredAt != nil {
			msg.OccurredAt.Nanos -= msg.OccurredAt.Nanos % 1000
		}
		if !proto.Equal(again, msg) {
			t.Errorf("message after FromProto and Proto: got %v, want %v", again, msg)
		}
		if evAgain, r := FromProto(again); r != nil || !reflect.DeepEqual(ev, evAgain) {
			t.Errorf("event after Proto and FromProto: got %+v and rejection %v, want %+v", evAgain, r, ev)
		}

		// Only a backfilled board or pin has Encoded, without the owner of the pin that was pinned again.
		var content proto.Message
		switch k := msg.GetKind().(type) {
		case *skeinv1.Event_BoardCreated:
			content = k.BoardCreated
		case *skeinv1.Event_PinCreated:
			pin, _ := proto.Clone(k.PinCreated).(*skeinv1.PinCreated)
			if of := pin.GetRepinOf(); of != nil {
				of.OwnerId = "" // another user, who may be erased
			}
			content = pin
		}

		if !ev.Backfill || content == nil {
			if ev.Encoded != nil {
				t.Errorf("Encoded of %v: got %x, want none", msg, ev.Encoded)
			}
			continue
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ev.Encoded, want) {
			t.Errorf("Encoded of %v: got %x, want %x", msg, ev.Encoded, want)
		}
	}

	// A pin without an item has itself as its item, so naming that item explicitly gives the same
	// event.
	pinned := &skeinv1.PinCreated{Pin: newPin("b", "p")}
	withoutItem, _ := FromProto(asBackfill(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pinned}}, 1))
	pinned.ItemId = "p"
	withItem, _ := FromProto(asBackfill(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pinned}}, 1))
	if withoutItem.Item != "p" {
		t.Errorf("item of a pin without an item: got %q, want p", withoutItem.Item)
	}
	if diff := cmp.Diff(withItem, withoutItem); diff != "" {
		t.Errorf("pin without its item (-with +without):\n%s", diff)
	}
}

// TestDecodeRejectsWhatValidateRejects demands that the decoder rejects exactly the events that
// Validate rejects, with the same rejections (I11).
func TestDecodeRejectsWhatValidateRejects(t *testing.T) {
	msgs := newEventsOfEveryKind()
	goodCount := len(msgs)
	for _, c := range listBadEvents() {
		if _, err := proto.Marshal(c.msg); err == nil {
			msgs = append(msgs, c.msg)
		}
	}

	env, err := NewDecoder(Cursor{}).Decode(1, epoch2023, mustEncode(t, msgs...))
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Events) != goodCount || len(env.Rejects) != len(msgs)-goodCount {
		t.Fatalf("Decode: got %d events and %d rejects, want %d and %d",
			len(env.Events), len(env.Rejects), goodCount, len(msgs)-goodCount)
	}
	for i, r := range env.Rejects {
		want := Validate(msgs[goodCount+i])
		want.Index = goodCount + i
		if r.Slot != goodCount+i {
			t.Errorf("slot of reject %d: got %d, want %d", i, r.Slot, goodCount+i)
		}
		if r.Rejection != *want {
			t.Errorf("slot %d: got rejection %+v, want %+v", r.Slot, r.Rejection, *want)
		}
	}
}
