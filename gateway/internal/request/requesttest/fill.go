// Package requesttest makes random messages for tests of decoders.
package requesttest

import (
	"math/rand/v2"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fill sets the fields of a message to random values, each field with the given probability. With
// the probability 1 it sets all fields, but of a oneof only the last field keeps its value.
func Fill(r *rand.Rand, m protoreflect.Message, probability float64) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if r.Float64() > probability {
			continue
		}
		switch f := fields.Get(i); {
		case f.IsList():
			appendRandomItems(r, f, m.Mutable(f).List(), probability)
		case f.Message() != nil:
			Fill(r, m.Mutable(f).Message(), probability)
		default:
			m.Set(f, randomScalar(r, f))
		}
	}
}

// appendRandomItems appends 1 to 4 random items to a list.
func appendRandomItems(
	r *rand.Rand, f protoreflect.FieldDescriptor, list protoreflect.List, probability float64,
) {
	for range 1 + r.IntN(4) {
		if f.Message() == nil {
			list.Append(randomScalar(r, f))
			continue
		}
		item := list.NewElement()
		Fill(r, item.Message(), probability)
		list.Append(item)
	}
}

// randomScalar returns a random value for a field that is not a message.
func randomScalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	// The shift gives short and long varints, and sometimes the default value 0.
	n := r.Uint64() >> r.IntN(64)
	switch f.Kind() {
	case protoreflect.StringKind:
		texts := []string{"", "ann", "7", "ünïcode", string(make([]byte, 200))}
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%4 != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	}
	return protoreflect.ValueOfUint32(uint32(n))
}
