package events

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// referenceDecode decodes an envelope with the standard protobuf decoder and Validate. It returns
// the events with their slots, and the rejections by slot, where slot -1 stands for the whole
// envelope.
func referenceDecode(data []byte) (evs []Event, rejects map[int]Rejection, slots int) {
	undecodable := map[int]Rejection{-1: {}}
	var batch skeinv1.EventBatch
	err := proto.Unmarshal(data, &batch)
	if err != nil || len(data) > MaxEnvelopeBytes || len(batch.GetEvents()) > MaxEnvelopeEvents || batch.GetVersion() > 1 {
		return nil, undecodable, 0
	}
	for _, msg := range batch.GetEvents() {
		// A former kind whose message cannot be decoded is a field that cannot be decoded, as for
		// the version that knew the kind.
		if err := replaceFormerKind(msg); err != nil {
			return nil, undecodable, 0
		}
	}

	rejects = map[int]Rejection{}
	for slot, msg := range batch.GetEvents() {
		ev, r := FromProto(msg)
		if r != nil {
			r.Index = slot
			rejects[slot] = *r
			continue
		}
		ev.Seq = 9
		ev.Slot = uint16(slot)
		evs = append(evs, ev)
	}

	return evs, rejects, len(batch.GetEvents())
}

// checkDecode compares the decoder with referenceDecode.
func checkDecode(data []byte) error {
	var env Envelope
	d := NewDecoder(Cursor{})
	slots := d.decodeEvents(9, data, &env)
	wantEvents, wantRejects, wantSlots := referenceDecode(data)
	if slots != wantSlots || len(env.Events) != len(wantEvents) || len(env.Rejects) != len(wantRejects) {
		return fmt.Errorf("got %d slots, %d events and rejects %v, want %d, %d and %v",
			slots, len(env.Events), env.Rejects, wantSlots, len(wantEvents), wantRejects)
	}
	for i, want := range wantEvents {
		if got := env.Events[i]; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("event %d: got\n%+v, want\n%+v", i, got, want)
		}
	}

	for _, r := range env.Rejects {
		want, ok := wantRejects[r.Slot]
		if !ok {
			return fmt.Errorf("slot %d: got reject %+v, want none", r.Slot, r)
		}
		if r.Slot >= 0 && r.Rejection != want {
			return fmt.Errorf("slot %d: got rejection %q, want %q", r.Slot, r.Rejection.Error(), want.Error())
		}
	}

	return nil
}

// messageSpeller encodes messages in all the ways that the wire format allows, and in some that the
// wire format does not allow. Each deviation from the regular encoding is an oddity.
type messageSpeller struct {
	*rand.Rand
	// odd is the probability of each oddity, in percent.
	odd int
}

// isOdd draws whether the next step of the encoding has an oddity.
func (s messageSpeller) isOdd() bool { return s.IntN(100) < s.odd }

// spellMessage encodes a message.
func (s messageSpeller) spellMessage(m protoreflect.Message) []byte {
	var fields [][]byte
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsList() {
			fields = append(fields, s.spellField(f, v)...)
			return true
		}
		for i := range v.List().Len() {
			fields = append(fields, s.spellField(f, v.List().Get(i))...)
		}
		return true
	})

	// Add unknown and stray fields, and change the order of the fields.
	if s.isOdd() {
		fields = append(fields, s.unknownField())
	}
	if known := m.Descriptor().Fields(); s.isOdd() && known.Len() > 0 {
		fields = append(fields, s.strayField(known.Get(s.IntN(known.Len()))))
	}
	if s.isOdd() {
		s.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}

	var b []byte
	for _, f := range fields {
		b = append(b, f...)
	}
	return b
}

// spellField encodes a value, sometimes more than once, or in two parts that the decoder merges.
func (s messageSpeller) spellField(f protoreflect.FieldDescriptor, v protoreflect.Value) [][]byte {
	num := f.Number()
	withTag := func(typ protowire.Type, body []byte) []byte { return append(s.tag(num, typ), body...) }
	switch f.Kind() {
	case protoreflect.MessageKind:
		if s.isOdd() {
			var parts [][]byte
			for _, part := range s.splitMessage(v.Message()) {
				parts = append(parts, withTag(protowire.BytesType, s.appendSized(s.spellMessage(part))))
			}
			return parts
		}
		return [][]byte{withTag(protowire.BytesType, s.appendSized(s.spellMessage(v.Message())))}
	case protoreflect.StringKind:
		fields := [][]byte{withTag(protowire.BytesType, s.appendSized([]byte(v.String())))}
		if s.isOdd() {
			other := []string{"", "zoe", "two words", "\xff", "日本"}[s.IntN(5)]
			fields = append([][]byte{withTag(protowire.BytesType, s.appendSized([]byte(other)))}, fields...)
		}
		return fields
	case protoreflect.BytesKind:
		return [][]byte{withTag(protowire.BytesType, s.appendSized(v.Bytes()))}
	case protoreflect.Sint64Kind:
		return [][]byte{withTag(protowire.VarintType, s.varint(protowire.EncodeZigZag(v.Int())))}
	case protoreflect.Fixed64Kind:
		return [][]byte{withTag(protowire.Fixed64Type, protowire.AppendFixed64(nil, v.Uint()))}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return [][]byte{withTag(protowire.VarintType, s.varint(v.Uint()))}
	case protoreflect.BoolKind:
		return [][]byte{withTag(protowire.VarintType, s.varint(protowire.EncodeBool(v.Bool())))}
	default:
		return [][]byte{withTag(protowire.VarintType, s.varint(uint64(v.Int())))}
	}
}

// splitMessage distributes the fields of a message to two messages whose merge is the message
// again.
func (s messageSpeller) splitMessage(m protoreflect.Message) [2]protoreflect.Message {
	parts := [2]protoreflect.Message{m.New(), m.New()}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		parts[s.IntN(2)].Set(f, v)
		return true
	})
	return parts
}

// unknownField encodes a field that no version knows, sometimes a malformed one.
func (s messageSpeller) unknownField() []byte {
	num := protowire.Number([]int{5, 9, 32, 99, 2047, 2048, 1 << 28}[s.IntN(7)])
	switch s.IntN(8) {
	case 0:
		return protowire.AppendVarint(s.tag(num, protowire.VarintType), s.Uint64())
	case 1:
		return protowire.AppendFixed32(s.tag(num, protowire.Fixed32Type), 7)
	case 2:
		return protowire.AppendFixed64(s.tag(num, protowire.Fixed64Type), 7)
	case 3:
		return protowire.AppendGroup(s.tag(num, protowire.StartGroupType), num, s.tag(3, protowire.EndGroupType)[:0])
	case 4:
		return s.tag(num, protowire.EndGroupType)
	case 5:
		return protowire.AppendVarint(s.tag(0, protowire.BytesType), 0)
	default:
		return append(s.tag(num, protowire.BytesType), s.appendSized([]byte("\xffwhatever"))...)
	}
}

// strayField encodes a known field with another wire type, or empty.
func (s messageSpeller) strayField(f protoreflect.FieldDescriptor) []byte {
	switch s.IntN(4) {
	case 0:
		return protowire.AppendVarint(s.tag(f.Number(), protowire.VarintType), uint64(s.IntN(300)))
	case 1:
		return protowire.AppendFixed32(s.tag(f.Number(), protowire.Fixed32Type), 0)
	case 2:
		return protowire.AppendFixed64(s.tag(f.Number(), protowire.Fixed64Type), 2)
	default:
		return append(s.tag(f.Number(), protowire.BytesType), s.appendSized(nil)...)
	}
}

// tag encodes the tag of a field.
func (s messageSpeller) tag(num protowire.Number, typ protowire.Type) []byte {
	return s.varint(uint64(num)<<3 | uint64(typ))
}

// appendSized returns the bytes after their length.
func (s messageSpeller) appendSized(b []byte) []byte { return append(s.varint(uint64(len(b))), b...) }

// varint encodes a number, sometimes with a superfluous zero byte.
func (s messageSpeller) varint(v uint64) []byte {
	b := protowire.AppendVarint(nil, v)
	if s.isOdd() && len(b) < 9 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// drawEnvelope returns a generator of encoded envelopes with good and bad events in odd encodings,
// some of which are damaged.
func drawEnvelope() *rapid.Generator[[]byte] {
	pool := newEventsOfEveryKind()
	for _, c := range listBadEvents() {
		if _, err := proto.Marshal(c.msg); err == nil && c.msg != nil {
			pool = append(pool, c.msg)
		}
	}

	return rapid.Custom(func(t *rapid.T) []byte {
		batch := &skeinv1.EventBatch{Version: rapid.SampledFrom([]uint32{0, 1, 1, 1, 2}).Draw(t, "version")}
		for range rapid.IntRange(0, 6).Draw(t, "events") {
			batch.Events = append(batch.Events, rapid.SampledFrom(pool).Draw(t, "event"))
		}

		seed := rapid.Uint64().Draw(t, "spelling")
		s := messageSpeller{rand.New(rand.NewPCG(seed, 1)), rapid.SampledFrom([]int{0, 1, 3, 10, 30}).Draw(t, "odd")}
		data := s.spellMessage(batch.ProtoReflect())
		if s.isOdd() && len(data) > 0 {
			data[s.IntN(len(data))] = byte(s.Uint32())
		}
		if s.isOdd() {
			data = data[:s.IntN(len(data)+1)]
		}
		return data
	})
}

// TestDecodeEqualsStandardDecoder checks that the decoder accepts exactly what the standard decoder
// and Validate accept, with the same values, whatever the encoding.
func TestDecodeEqualsStandardDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := drawEnvelope().Draw(t, "envelope")
		if err := checkDecode(data); err != nil {
			t.Fatalf("%x: %v", data, err)
		}
	})
}

// FuzzDecodeEnvelope compares the decoder with the standard decoder and Validate.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, msg := range newEventsOfEveryKind() {
		f.Add(mustEncode(f, msg))
	}
	f.Add(mustEncode(f, newEventsOfEveryKind()...))
	for i := range 64 {
		f.Add(drawEnvelope().Example(i))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkDecode(data); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRegularEventsTakeFastPath checks that events in their regular encoding take the fast path of the
// decoder. Otherwise the decoder would be slow.
func TestRegularEventsTakeFastPath(t *testing.T) {
	for _, msg := range newEventsOfEveryKind() {
		b, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}

		// Field 1007 of a later version changes nothing.
		b = append(b, 0xfa, 0x3e, 1, 'x')

		var ev Event
		head := []byte("\x1a\x00")
		all := body{data: append(head, b...), text: string(append(head, b...))}
		if !all.decodeEventFast(len(head), len(all.data), &ev) {
			t.Errorf("decodeEventFast of %v: got false, want true", msg)
		}
	}
}
