package events

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func mustEncode(tb testing.TB, msgs ...*skeinv1.Event) []byte {
	tb.Helper()
	data, err := EncodeEnvelope(msgs)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// The bytes in the logs of the world must stay readable, and what they mean must stay.
func TestGoldenEnvelopesDecodeUnchanged(t *testing.T) {
	want, err := hex.DecodeString(readGolden(t, "envelope.hex"))
	if err != nil {
		t.Fatal(err)
	}
	// What was written of the kinds of then does not change with later ones, nor with the fields that reactions have and likes had not.
	const kinds = AllKinds & (1<<(BackfillClosed+1) - 1)
	msgs := slices.DeleteFunc(newEventsOfEveryKind(), func(msg *skeinv1.Event) bool { return !kinds.Has(KindOf(msg)) || isReactionWithKind(msg) })
	if got := mustEncode(t, msgs...); !bytes.Equal(got, want) {
		t.Errorf("EncodeEnvelope gives %x", got)
	}
	env, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, want)
	if err != nil || env.Bytes != len(want) || env.Repeats != 0 || len(env.Events) != len(msgs) {
		t.Fatalf("Decode: %+v, %v", env, err)
	}
	if env.Kinds != kinds {
		t.Errorf("kinds %b", env.Kinds)
	}
	for i, got := range env.Events {
		ev, r := FromProto(msgs[i])
		if r != nil {
			t.Fatal(r)
		}
		ev.Seq, ev.Slot = 1, uint16(i)
		if !ev.Backfill {
			ev.Time = 1_700_000_000_000_000 + Micros(i)
		}
		if !reflect.DeepEqual(got, ev) {
			t.Errorf("event %d is\n%+v, want\n%+v", i, got, ev)
		}
	}
	if c, want := env.Cursor, readGolden(t, "cursor-after-envelope.hex"); encodeCursorHex(t, c) != want {
		t.Errorf("cursor %s, want %s", encodeCursorHex(t, c), want)
	}
}

// isReactionWithKind reports whether an event has fields that kinds 25 and 26 had not when they were likes.
func isReactionWithKind(msg *skeinv1.Event) bool {
	return msg.GetReacted().GetKind()+msg.GetUnreacted().GetKind() != ""
}

// TestReactionsGolden: the bytes of reactions with a kind and a pin stay readable, too.
func TestReactionsGolden(t *testing.T) {
	expected, err := hex.DecodeString(golden(t, "envelope-reactions.hex"))
	if err != nil {
		t.Fatal(err)
	}
	msgs := slices.DeleteFunc(everyKind(), func(msg *skeinv1.Event) bool { return !isReactionWithKind(msg) })
	if got := mustEncode(t, msgs...); !bytes.Equal(got, expected) {
		t.Errorf("EncodeEnvelope gives %x", got)
	}

	env, err := NewDecoder(Cursor{}).Decode(1, 1_700_000_000_000_000, expected)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range env.Events {
		got = append(got, fmt.Sprintf("%v %s %s %q on %s/%s", ev.Kind, ev.User, ev.Item, ev.Reaction, ev.RepinUser, ev.RepinPin))
	}
	if diff := cmp.Diff([]string{
		`reacted ann film "_bookmark" on /`, `reacted ann film "save" on bob/p1`, `unreacted ann film "save" on bob/p1`,
	}, got); diff != "" {
		t.Errorf("decoded events (-expected +got):\n%s", diff)
	}
}

// TestLikeByNameIsTheSame: "like" and no kind are the same reaction, also for a retry with the same event id.
func TestLikeByNameIsTheSame(t *testing.T) {
	named, unnamed := reacted("a", "i", "like", nil), reacted("a", "i", "", nil)
	named.EventId, unnamed.EventId = "r", "r"
	env, err := NewDecoder(Cursor{}).Decode(1, 1, mustEncode(t, named, unnamed))
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Events) != 1 || env.Events[0].Reaction != "" || env.Repeats != 1 {
		t.Errorf("expected one like and one repeat, got %+v", env)
	}
}

func encodeCursorHex(tb testing.TB, c Cursor) string {
	tb.Helper()
	b, err := c.MarshalBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return hex.EncodeToString(b)
}

func TestEncodeEnvelopeEnforcesLimits(t *testing.T) {
	one := newEventsOfEveryKind()[0]
	many := make([]*skeinv1.Event, MaxEnvelopeEvents+1)
	for i := range many {
		many[i] = one
	}
	big := &skeinv1.Event{EventId: strings.Repeat("x", MaxEnvelopeBytes), Kind: one.Kind}
	for _, c := range []struct {
		name string
		msgs []*skeinv1.Event
		want error
	}{
		{"none", nil, ErrEnvelopeEmpty},
		{"most", many[1:], nil},
		{"too many", many, ErrEnvelopeTooLarge},
		{"too long", []*skeinv1.Event{big}, ErrEnvelopeTooLarge},
	} {
		data, err := EncodeEnvelope(c.msgs)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if (err == nil) != (data != nil) {
			t.Errorf("%s: %d bytes and %v", c.name, len(data), err)
		}
	}
	if _, err := EncodeEnvelope([]*skeinv1.Event{{EventId: "\xff"}}); err == nil {
		t.Error("invalid UTF-8 is encoded")
	}
	var batch skeinv1.EventBatch
	if err := proto.Unmarshal(mustEncode(t, newEventsOfEveryKind()[19], one, one), &batch); err != nil {
		t.Fatal(err)
	}
	if batch.GetVersion() != 1 || batch.GetKinds() != uint64(Kinds(ItemScored, UserFollowed)) || len(batch.GetEvents()) != 3 {
		t.Errorf("version %d, kinds %b, %d events", batch.GetVersion(), batch.GetKinds(), len(batch.GetEvents()))
	}
	if err := proto.Unmarshal(mustEncode(t, &skeinv1.Event{}), &batch); err != nil || bits.OnesCount64(batch.GetKinds()) != 0 {
		t.Errorf("kinds %b of an event without kind, %v", batch.GetKinds(), err)
	}
}

// TestJoinedCallsEqualLibraryEncoding: several calls in one envelope are the bytes that a protobuf library writes of all their events.
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
			t.Fatal("the calls do not fit into one envelope")
		}
		calls = append(calls, &c)
	}

	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&skeinv1.EventBatch{
		Version: EnvelopeVersion, Kinds: uint64(AllKinds), Events: all,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := JoinCalls(calls...); !bytes.Equal(got, want) {
		t.Errorf("expected %x, got %x", want, got)
	}
}

// FromProto and Proto undo each other, and Encoded is what a protobuf library writes.
func TestProtoConversionIsReversible(t *testing.T) {
	for _, msg := range newEventsOfEveryKind() {
		ev, r := FromProto(msg)
		if r != nil {
			t.Fatal(r)
		}
		again := ev.Proto()
		if msg.OccurredAt != nil {
			msg.OccurredAt.Nanos -= msg.OccurredAt.Nanos % 1000
		}
		if !proto.Equal(again, msg) {
			t.Errorf("%v becomes %v", msg, again)
		}
		if ev2, r := FromProto(again); r != nil || !reflect.DeepEqual(ev, ev2) {
			t.Errorf("%+v becomes %+v, %v", ev, ev2, r)
		}
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
				t.Errorf("%v has Encoded", msg)
			}
			continue
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(content)
		if err != nil || !bytes.Equal(ev.Encoded, want) {
			t.Errorf("Encoded of %v is %x, want %x", msg, ev.Encoded, want)
		}
	}
	// An item that repeats the pin says nothing more, so it is the same fact.
	pinned := &skeinv1.PinCreated{Pin: newPin("b", "p")}
	a, _ := FromProto(asBackfill(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pinned}}, 1))
	pinned.ItemId = "p"
	b, _ := FromProto(asBackfill(&skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pinned}}, 1))
	if a.Item != "p" || !reflect.DeepEqual(a, b) {
		t.Errorf("%+v and %+v differ", a, b)
	}
}

// I11: the decoder refuses what Validate refuses, in the same words, and nothing else.
func TestDecodeRejectsWhatValidateRejects(t *testing.T) {
	msgs := newEventsOfEveryKind()
	good := len(msgs)
	for _, c := range listBadEvents() {
		if _, err := proto.Marshal(c.msg); err == nil {
			msgs = append(msgs, c.msg)
		}
	}
	env, err := NewDecoder(Cursor{}).Decode(1, epoch2023, mustEncode(t, msgs...))
	if err != nil || len(env.Events) != good || len(env.Rejects) != len(msgs)-good {
		t.Fatalf("%d events of %d, %d rejects of %d, %v", len(env.Events), good, len(env.Rejects), len(msgs)-good, err)
	}
	for i, r := range env.Rejects {
		want := Validate(msgs[good+i])
		want.Index = good + i
		if r.Slot != good+i || r.Rejection != *want {
			t.Errorf("slot %d: %+v, want %+v", r.Slot, r.Rejection, *want)
		}
	}
}
