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

// referenceDecode reads an envelope with the standard decoder and Validate: the events with their slots, and the
// rejections by slot, -1 for the whole.
func referenceDecode(data []byte) (evs []Event, rejects map[int]Rejection, slots int) {
	var batch skeinv1.EventBatch
	err := proto.Unmarshal(data, &batch)
	if err != nil || len(data) > MaxEnvelopeBytes || len(batch.GetEvents()) > MaxEnvelopeEvents || batch.GetVersion() > 1 {
		return nil, map[int]Rejection{-1: {}}, 0
	}
	rejects = map[int]Rejection{}
	for slot, msg := range batch.GetEvents() {
		ev, r := FromProto(msg)
		if r != nil {
			r.Index = slot
			rejects[slot] = *r
			continue
		}
		ev.Seq, ev.Slot = 9, uint16(slot)
		evs = append(evs, ev)
	}
	return evs, rejects, len(batch.GetEvents())
}

// checkDecode compares the decoder with the reference.
func checkDecode(data []byte) error {
	var env Envelope
	d := NewDecoder(Cursor{})
	slots := d.decodeEvents(9, data, &env)
	evs, rejects, wantSlots := referenceDecode(data)
	if slots != wantSlots || len(env.Events) != len(evs) || len(env.Rejects) != len(rejects) {
		return fmt.Errorf("%d slots, %d events, rejects %v; want %d, %d, %v",
			slots, len(env.Events), env.Rejects, wantSlots, len(evs), rejects)
	}
	for i := range evs {
		got, want := env.Events[i], evs[i]
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("event %d is\n%+v, want\n%+v", i, got, want)
		}
	}
	for _, r := range env.Rejects {
		want, ok := rejects[r.Slot]
		if !ok || (r.Slot >= 0 && r.Rejection != want) {
			return fmt.Errorf("slot %d: %q, want %q", r.Slot, r.Rejection.Message, want.Message)
		}
	}
	return nil
}

// speller writes messages in all the ways that the wire format allows, and some that it does not.
type speller struct {
	*rand.Rand
	// odd is the chance in percent of each oddity.
	odd int
}

func (s speller) oddly() bool { return s.IntN(100) < s.odd }

func (s speller) message(m protoreflect.Message) []byte {
	var fields [][]byte
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsList() {
			fields = append(fields, s.field(f, v)...)
			return true
		}
		for i := range v.List().Len() {
			fields = append(fields, s.field(f, v.List().Get(i))...)
		}
		return true
	})
	if s.oddly() {
		fields = append(fields, s.unknown())
	}
	if known := m.Descriptor().Fields(); s.oddly() && known.Len() > 0 {
		fields = append(fields, s.stray(known.Get(s.IntN(known.Len()))))
	}
	if s.oddly() {
		s.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	var b []byte
	for _, f := range fields {
		b = append(b, f...)
	}
	return b
}

// field writes a value, perhaps more than once, perhaps in two parts that merge.
func (s speller) field(f protoreflect.FieldDescriptor, v protoreflect.Value) [][]byte {
	num := f.Number()
	one := func(typ protowire.Type, body []byte) []byte { return append(s.tag(num, typ), body...) }
	switch f.Kind() {
	case protoreflect.MessageKind:
		if s.oddly() {
			var parts [][]byte
			for _, part := range s.split(v.Message()) {
				parts = append(parts, one(protowire.BytesType, s.sized(s.message(part))))
			}
			return parts
		}
		return [][]byte{one(protowire.BytesType, s.sized(s.message(v.Message())))}
	case protoreflect.StringKind:
		fields := [][]byte{one(protowire.BytesType, s.sized([]byte(v.String())))}
		if s.oddly() {
			other := []string{"", "zoe", "two words", "\xff", "日本"}[s.IntN(5)]
			fields = append([][]byte{one(protowire.BytesType, s.sized([]byte(other)))}, fields...)
		}
		return fields
	case protoreflect.BytesKind:
		return [][]byte{one(protowire.BytesType, s.sized(v.Bytes()))}
	case protoreflect.Sint64Kind:
		return [][]byte{one(protowire.VarintType, s.varint(protowire.EncodeZigZag(v.Int())))}
	case protoreflect.Fixed64Kind:
		return [][]byte{one(protowire.Fixed64Type, protowire.AppendFixed64(nil, v.Uint()))}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return [][]byte{one(protowire.VarintType, s.varint(v.Uint()))}
	default:
		return [][]byte{one(protowire.VarintType, s.varint(uint64(v.Int())))}
	}
}

// split deals the fields of a message to two that merge to it again.
func (s speller) split(m protoreflect.Message) [2]protoreflect.Message {
	parts := [2]protoreflect.Message{m.New(), m.New()}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		parts[s.IntN(2)].Set(f, v)
		return true
	})
	return parts
}

// unknown writes a field that no version knows, sometimes a broken one.
func (s speller) unknown() []byte {
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
		return append(s.tag(num, protowire.BytesType), s.sized([]byte("\xffwhatever"))...)
	}
}

// stray writes a known field with a wire type that is not its own, or empty.
func (s speller) stray(f protoreflect.FieldDescriptor) []byte {
	switch s.IntN(4) {
	case 0:
		return protowire.AppendVarint(s.tag(f.Number(), protowire.VarintType), uint64(s.IntN(300)))
	case 1:
		return protowire.AppendFixed32(s.tag(f.Number(), protowire.Fixed32Type), 0)
	case 2:
		return protowire.AppendFixed64(s.tag(f.Number(), protowire.Fixed64Type), 2)
	default:
		return append(s.tag(f.Number(), protowire.BytesType), s.sized(nil)...)
	}
}

func (s speller) tag(num protowire.Number, typ protowire.Type) []byte {
	return s.varint(uint64(num)<<3 | uint64(typ))
}

func (s speller) sized(b []byte) []byte { return append(s.varint(uint64(len(b))), b...) }

// varint writes a number, sometimes with a zero too many.
func (s speller) varint(v uint64) []byte {
	b := protowire.AppendVarint(nil, v)
	if s.oddly() && len(b) < 9 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// genEnvelope draws envelopes of good and bad events in odd spellings.
func genEnvelope() *rapid.Generator[[]byte] {
	pool := everyKind()
	for _, c := range badEvents() {
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
		s := speller{rand.New(rand.NewPCG(seed, 1)), rapid.SampledFrom([]int{0, 1, 3, 10, 30}).Draw(t, "odd")}
		data := s.message(batch.ProtoReflect())
		if s.oddly() && len(data) > 0 {
			data[s.IntN(len(data))] = byte(s.Uint32())
		}
		if s.oddly() {
			data = data[:s.IntN(len(data)+1)]
		}
		return data
	})
}

// The decoder accepts exactly what the standard decoder and Validate accept, with the same values, however it is
// spelled.
func TestDecodeLikeStandard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := genEnvelope().Draw(t, "envelope")
		if err := checkDecode(data); err != nil {
			t.Fatalf("%x: %v", data, err)
		}
	})
}

func FuzzDecodeEnvelope(f *testing.F) {
	for _, msg := range everyKind() {
		f.Add(mustEncode(f, msg))
	}
	f.Add(mustEncode(f, everyKind()...))
	for i := range 64 {
		f.Add(genEnvelope().Example(i))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkDecode(data); err != nil {
			t.Fatal(err)
		}
	})
}

// Everything that producers write as they should takes the fast path, or the decoder is slow.
func TestFastPathTaken(t *testing.T) {
	for _, msg := range everyKind() {
		b, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, 0xfa, 0x3e, 1, 'x') // a later version's field 1007 changes nothing
		var ev Event
		head := []byte("\x1a\x00")
		all := body{data: append(head, b...), text: string(append(head, b...))}
		if !all.decodeEventFast(len(head), len(all.data), &ev) {
			t.Errorf("%v takes the slow path", msg)
		}
	}
}
