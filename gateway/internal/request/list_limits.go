package request

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A body of some KiB, inflated, has room for millions of empty items, each of which is an allocation once it is decoded, and a
// violation once it is checked. So the lists of a request are counted in its encoding, before it is decoded: a list that is longer
// than its rule in the proto allows refuses the request there. The decoders report other errors, at the same place.

// listShape is what counting has to know of a message.
type messageShape struct {
	// byNumber has the fields that are lists, or messages with lists, and byName all fields, by the names that JSON may use.
	byNumber map[protowire.Number]*fieldShape
	byName   map[string]*fieldShape
	// lists is how many lists there are in it, at any depth.
	listCount int
	// least is the limit of the shortest of them: a body that has no room for so many items needs no counting.
	minLimit int
}

// listField is a field.
type fieldShape struct {
	path string
	// at is the index of its count; negative: it is no list.
	countIndex int
	// limit is for all lists of this field together: that of the list, times those of the lists that it stands in.
	limit int
	// packs: the list may be packed numbers, of so many bytes each, or, with 0, varints.
	isPackable  bool
	packedBytes int
	// message is nil for a list of anything else.
	message *messageShape
}

// listShapes are those of the requests, by name.
var messageShapes sync.Map //nolint:gochecknoglobals // derived from the protos

func messageShapeOf(m proto.Message) *messageShape {
	d := m.ProtoReflect().Descriptor()
	if known, ok := messageShapes.Load(d.FullName()); ok {
		shape, _ := known.(*messageShape)
		return shape
	}
	count := 0
	shape := newMessageShape(d, "", 1, &count)
	shape.listCount = count
	messageShapes.Store(d.FullName(), shape)
	return shape
}

func newMessageShape(d protoreflect.MessageDescriptor, path string, times int, count *int) *messageShape {
	shape := &messageShape{
		byNumber: map[protowire.Number]*fieldShape{}, byName: map[string]*fieldShape{}, minLimit: math.MaxInt,
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &fieldShape{path: path + string(fd.Name()), countIndex: -1, limit: times}
		if fd.IsList() || fd.IsMap() {
			f.countIndex, f.limit = *count, times*maxItemsOf(fd)
			*count++
			f.isPackable, f.packedBytes = packingOf(fd)
			shape.minLimit = min(shape.minLimit, f.limit)
		}
		if fd.Message() != nil && fd.Message().ParentFile().Package() != "google.protobuf" && !fd.IsMap() {
			f.message = newMessageShape(fd.Message(), f.path+".", f.limit, count)
			shape.minLimit = min(shape.minLimit, f.message.minLimit)
		}
		if f.countIndex >= 0 || f.message != nil && f.message.minLimit < math.MaxInt {
			shape.byNumber[fd.Number()] = f
		}
		shape.byName[fd.JSONName()], shape.byName[fd.TextName()] = f, f
	}
	return shape
}

// maxItemsOf is the rule of a list, or what one without a rule may have.
func maxItemsOf(fd protoreflect.FieldDescriptor) int {
	if rules, ok := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules); ok {
		if most := rules.GetRepeated().GetMaxItems(); most > 0 {
			return int(most)
		}
	}
	return maxItems
}

// packingOf returns how a list of numbers may be encoded.
func packingOf(fd protoreflect.FieldDescriptor) (packs bool, bytes int) {
	switch fd.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return false, 0
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return true, 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return true, 8
	default:
		return true, 0
	}
}

// listCounter counts the items of the lists of one request.
type listCounter struct{ counts []int }

// add counts items, and refuses them if there are too many.
func (c *listCounter) addItems(f *fieldShape, n int) *apierror.Failure {
	if c.counts[f.countIndex] += n; c.counts[f.countIndex] <= f.limit {
		return nil
	}
	v := apierror.InvalidField(f.path, "has more than %d items: must have at most %d", f.limit, f.limit)
	if f.limit == events.MaxEnvelopeEvents && f.path == "events" {
		v.Reason, v.Text = skeinv1.Reason_REASON_TOO_LARGE, fmt.Sprintf("has more than %d events: at most %d", f.limit, f.limit)
	}
	return apierror.Invalid(v)
}

// countProto refuses an encoded message that has a list which is too long.
func countProto(data []byte, m proto.Message) error {
	shape := messageShapeOf(m)
	if len(data) <= shape.minLimit { // an item takes a byte, at least
		return nil
	}
	c := listCounter{make([]int, shape.listCount)}
	if f := c.countMessage(data, shape); f != nil {
		return f
	}
	return nil
}

// message counts in a message. Malformed input ends it, as it will end decoding.
func (c *listCounter) countMessage(data []byte, shape *messageShape) *apierror.Failure {
	for at := 0; at < len(data); {
		field, next := protoscan.Next(data, at)
		if next < 0 {
			return nil
		}
		at = next
		f := shape.byNumber[field.Number]
		if f == nil {
			continue
		}
		value, sized := data[field.From:field.To], field.Type == protowire.BytesType
		if f.countIndex >= 0 {
			items := 1
			if sized && f.isPackable {
				items = countPackedItems(value, f.packedBytes)
			}
			if bad := c.addItems(f, items); bad != nil {
				return bad
			}
		}
		if f.message != nil && sized {
			if bad := c.countMessage(value, f.message); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// packedItems returns how many numbers there are, of so many bytes each or, with 0, varints.
func countPackedItems(value []byte, bytes int) (n int) {
	if bytes > 0 {
		return len(value) / bytes
	}
	for _, b := range value {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// countJSON refuses a message in JSON that has a list which is too long.
func countJSON(data []byte, m proto.Message) error {
	shape := messageShapeOf(m)
	if len(data) <= shape.minLimit {
		return nil
	}
	r := jsonCounter{listCounter{make([]int, shape.listCount)}, data}
	if f := r.countObject(shape); f != nil {
		return f
	}
	return nil
}

// jsonCounter reads JSON. It ends at malformed input, or at a name that is no field of the message: decoding ends there too.
type jsonCounter struct {
	listCounter
	rest []byte
}

// object counts in an object that is a message.
func (r *jsonCounter) countObject(shape *messageShape) *apierror.Failure {
	if !r.consume('{') {
		r.skipValue()
		return nil
	}
	for !r.consume('}') {
		name, ok := r.readString()
		if !ok || !r.consume(':') {
			r.rest = nil
			return nil
		}
		f := shape.byName[name]
		if f == nil {
			r.rest = nil
			return nil
		}
		if bad := r.countField(f); bad != nil {
			return bad
		}
		r.consume(',')
	}
	return nil
}

func (r *jsonCounter) countField(f *fieldShape) *apierror.Failure {
	if f.countIndex < 0 || !r.consume('[') {
		return r.countValue(f.message)
	}
	for !r.consume(']') {
		if bad := r.addItems(f, 1); bad != nil {
			return bad
		}
		left := len(r.rest)
		if bad := r.countValue(f.message); bad != nil {
			return bad
		}
		if r.consume(','); len(r.rest) == left {
			r.rest = nil // neither an item nor the end
		}
	}
	return nil
}

func (r *jsonCounter) countValue(shape *messageShape) *apierror.Failure {
	if shape != nil {
		return r.countObject(shape)
	}
	r.skipValue()
	return nil
}

// takes reads a character behind white space, if it is that one. At the end of the text every character is.
func (r *jsonCounter) consume(c byte) bool {
	for len(r.rest) > 0 && (r.rest[0] == ' ' || r.rest[0] == '\t' || r.rest[0] == '\n' || r.rest[0] == '\r') {
		r.rest = r.rest[1:]
	}
	if len(r.rest) == 0 {
		return true
	}
	if r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// text reads a string.
func (r *jsonCounter) readString() (s string, ok bool) {
	if !r.consume('"') || len(r.rest) == 0 {
		return "", false
	}
	escaped := false
	for i := 0; i < len(r.rest); i++ {
		switch r.rest[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			raw := r.rest[:i]
			r.rest = r.rest[i+1:]
			if !escaped {
				return string(raw), true
			}
			return s, json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &s) == nil
		}
	}
	return "", false
}

// skip reads any value. At the end of what is malformed there is nothing left.
func (r *jsonCounter) skipValue() {
	depth := 0
	for r.consume(' '); len(r.rest) > 0; {
		switch c := r.rest[0]; c {
		case '"':
			if !r.skipString() {
				return
			}
		case '{', '[':
			depth++
			r.rest = r.rest[1:]
		case '}', ']', ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return
			}
			if c == '}' || c == ']' {
				depth--
			}
			r.rest = r.rest[1:]
		default:
			r.rest = r.rest[1:]
			continue // a number or a word has several
		}
		if depth == 0 {
			return
		}
	}
}

func (r *jsonCounter) skipString() bool {
	for i := 1; i < len(r.rest); i++ {
		switch r.rest[i] {
		case '\\':
			i++
		case '"':
			r.rest = r.rest[i+1:]
			return true
		}
	}
	r.rest = nil
	return false
}
