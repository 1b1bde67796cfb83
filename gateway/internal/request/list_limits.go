package request

import (
	"bytes"
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

// A compressed body of a few KiB can hold millions of empty items. Each of them would be an
// allocation when the body is decoded, and a violation when the request is checked. So this file
// counts the items of the lists in the encoded request, before it is decoded, and refuses a request
// with a list that has more items than its rule in the proto allows. Counting ignores all other
// errors, because decoding stops at the same place and reports them.

// messageShape has what counting must know about a type of message. It is derived from the proto.
type messageShape struct {
	// byNumber has the fields that are lists, or messages with lists.
	byNumber map[protowire.Number]*fieldShape
	// byName has all fields, by each name that JSON may use.
	byName map[string]*fieldShape
	// listCount is the number of list fields in the message and in the messages that it contains.
	// It is set only for the type of a request, not for the types of the messages in it.
	listCount int
	// minLimit is the lowest limit of these lists, or math.MaxInt without lists. An item needs at
	// least one byte, so a body of up to minLimit bytes needs no counting.
	minLimit int
}

// fieldShape describes one field.
type fieldShape struct {
	// path is the path of the field in the request, without indexes, such as "pairs.board".
	path string
	// countIndex is the index of the field in listCounter.counts. It is -1 for a field that is not
	// a list.
	countIndex int
	// limit is how many items all lists of this field may have together: the limit of one list
	// times the limits of the lists that contain it.
	limit int
	// isPackable says that the list has numbers. The binary encoding may pack them: one field then
	// has all numbers, without a tag for each.
	isPackable bool
	// packedBytes is the size of a packed number. It is 0 for varints, whose sizes vary.
	packedBytes int
	// message is the shape of the messages in a field that is a message or a list of messages.
	// Otherwise it is nil.
	message *messageShape
}

// messageShapes caches the *messageShape of each request, by the full name of its message.
var messageShapes sync.Map //nolint:gochecknoglobals // derived from the protos

// messageShapeOf returns the shape of a request.
func messageShapeOf(m proto.Message) *messageShape {
	d := m.ProtoReflect().Descriptor()
	if cached, ok := messageShapes.Load(d.FullName()); ok {
		shape, _ := cached.(*messageShape)
		return shape
	}

	// Two calls may compute the same shape at the same time. That is harmless, because they get the
	// same result.
	listCount := 0
	shape := newMessageShape(d, "", 1, &listCount)
	shape.listCount = listCount
	messageShapes.Store(d.FullName(), shape)
	return shape
}

// newMessageShape returns the shape of a message. Its fields get paths that begin with prefix. A
// request may have at most maxMessages messages at this place. listCount is the number of list
// fields that already have an index; newMessageShape adds those of the message.
func newMessageShape(
	d protoreflect.MessageDescriptor, prefix string, maxMessages int, listCount *int,
) *messageShape {
	shape := &messageShape{
		byNumber: map[protowire.Number]*fieldShape{},
		byName:   map[string]*fieldShape{},
		minLimit: math.MaxInt,
	}
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		f := &fieldShape{path: prefix + string(field.Name()), countIndex: -1, limit: maxMessages}

		if field.IsList() || field.IsMap() {
			f.countIndex = *listCount
			*listCount++
			f.limit = maxMessages * maxItemsOf(field)
			f.isPackable, f.packedBytes = packingOf(field)
			shape.minLimit = min(shape.minLimit, f.limit)
		}

		// The messages of google.protobuf that requests contain, which are timestamps, have no
		// lists.
		isOwnMessage := field.Message() != nil && field.Message().ParentFile().Package() != "google.protobuf"
		if isOwnMessage && !field.IsMap() {
			f.message = newMessageShape(field.Message(), f.path+".", f.limit, listCount)
			shape.minLimit = min(shape.minLimit, f.message.minLimit)
		}

		// In the binary encoding, counting can skip a field without lists. In JSON it must know all
		// names, because it stops at one that it does not know.
		containsLists := f.message != nil && f.message.minLimit < math.MaxInt
		if f.countIndex >= 0 || containsLists {
			shape.byNumber[field.Number()] = f
		}
		shape.byName[field.JSONName()] = f
		shape.byName[field.TextName()] = f
	}
	return shape
}

// maxItemsOf returns how many items a list may have: the limit of its rule, or maxItems if it has
// none.
func maxItemsOf(field protoreflect.FieldDescriptor) int {
	if rules, ok := proto.GetExtension(field.Options(), validate.E_Field).(*validate.FieldRules); ok {
		if limit := rules.GetRepeated().GetMaxItems(); limit > 0 {
			return int(limit)
		}
	}
	return maxItems
}

// packingOf returns the values of isPackable and packedBytes for a list field.
func packingOf(field protoreflect.FieldDescriptor) (isPackable bool, packedBytes int) {
	switch field.Kind() {
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
type listCounter struct {
	// counts has the number of items so far for each list field, by [fieldShape.countIndex].
	counts []int
}

// addItems counts n more items of a list field. It returns an error if the lists of this field now
// have too many items.
func (c *listCounter) addItems(f *fieldShape, n int) *apierror.Failure {
	c.counts[f.countIndex] += n
	if c.counts[f.countIndex] <= f.limit {
		return nil
	}

	v := apierror.InvalidField(f.path, "has more than %d items: must have at most %d", f.limit, f.limit)
	// Package eventservice refuses too many events with the same reason.
	if f.limit == events.MaxEnvelopeEvents && f.path == "events" {
		v.Reason = skeinv1.Reason_REASON_TOO_LARGE
		v.Text = fmt.Sprintf("has more than %d events: at most %d", f.limit, f.limit)
	}
	return apierror.Invalid(v)
}

// countProto returns an error if a message in the binary encoding has a list that is too long.
func countProto(data []byte, m proto.Message) error {
	shape := messageShapeOf(m)
	if len(data) <= shape.minLimit {
		return nil
	}
	c := listCounter{make([]int, shape.listCount)}
	failure := c.countMessage(data, shape)
	if failure != nil {
		return failure
	}
	return nil // not failure, because an error that holds a nil *Failure is not nil
}

// countMessage counts the lists of a message in the binary encoding. It stops at malformed input,
// as decoding will.
func (c *listCounter) countMessage(data []byte, shape *messageShape) *apierror.Failure {
	for offset := 0; offset < len(data); {
		field, next := protoscan.Next(data, offset)
		if next < 0 {
			return nil
		}
		offset = next
		f := shape.byNumber[field.Number]
		if f == nil {
			continue // no list is in this field
		}

		value := data[field.From:field.To]
		hasLength := field.Type == protowire.BytesType
		if f.countIndex >= 0 {
			items := 1
			if hasLength && f.isPackable {
				items = countPackedItems(value, f.packedBytes)
			}
			if failure := c.addItems(f, items); failure != nil {
				return failure
			}
		}
		if f.message != nil && hasLength {
			if failure := c.countMessage(value, f.message); failure != nil {
				return failure
			}
		}
	}
	return nil
}

// countPackedItems returns how many packed numbers value has. packedBytes is the size of each, or 0
// for varints.
func countPackedItems(value []byte, packedBytes int) (n int) {
	if packedBytes > 0 {
		return len(value) / packedBytes
	}
	for _, b := range value {
		if b < 0x80 { // the last byte of a varint
			n++
		}
	}
	return n
}

// countJSON returns an error if a message in JSON has a list that is too long.
func countJSON(data []byte, m proto.Message) error {
	shape := messageShapeOf(m)
	if len(data) <= shape.minLimit {
		return nil
	}
	c := jsonCounter{listCounter{make([]int, shape.listCount)}, data}
	failure := c.countObject(shape)
	if failure != nil {
		return failure
	}
	return nil // as in countProto
}

// jsonCounter counts the items of lists in JSON. It stops at malformed input, and at a name that is
// no field of the message. Decoding stops there, too.
type jsonCounter struct {
	listCounter
	// rest is the input that has not been read. Setting it to nil stops the counter.
	rest []byte
}

// countObject counts in the JSON of a message.
func (c *jsonCounter) countObject(shape *messageShape) *apierror.Failure {
	if !c.consume('{') {
		c.skipValue() // null, or a value that is no message, which decoding will refuse
		return nil
	}

	for !c.consume('}') {
		name, ok := c.readString()
		if !ok || !c.consume(':') {
			c.rest = nil
			return nil
		}
		f := shape.byName[name]
		if f == nil {
			c.rest = nil
			return nil
		}
		if failure := c.countField(f); failure != nil {
			return failure
		}
		c.consume(',')
	}
	return nil
}

// countField counts in the JSON of a field, which may be a list.
func (c *jsonCounter) countField(f *fieldShape) *apierror.Failure {
	if f.countIndex < 0 || !c.consume('[') {
		return c.countValue(f.message)
	}
	for !c.consume(']') {
		if failure := c.addItems(f, 1); failure != nil {
			return failure
		}
		before := len(c.rest)
		if failure := c.countValue(f.message); failure != nil {
			return failure
		}
		c.consume(',')
		if len(c.rest) == before {
			c.rest = nil // neither an item nor the end of the list
		}
	}
	return nil
}

// countValue counts in the JSON of one value. shape is nil if the value is not a message.
func (c *jsonCounter) countValue(shape *messageShape) *apierror.Failure {
	if shape != nil {
		return c.countObject(shape)
	}
	c.skipValue()
	return nil
}

// consume skips white space and then, if the next character is want, also that character. It
// reports whether the character was want. At the end of the input it returns true for every want,
// so that each loop over the items of a list or object ends there.
func (c *jsonCounter) consume(want byte) bool {
	c.skipSpace()
	if len(c.rest) == 0 {
		return true
	}
	if c.rest[0] != want {
		return false
	}
	c.rest = c.rest[1:]
	return true
}

// skipSpace skips the white space of JSON.
func (c *jsonCounter) skipSpace() {
	i := 0
	for i < len(c.rest) && isJSONSpace(c.rest[i]) {
		i++
	}
	c.rest = c.rest[i:]
}

func isJSONSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// readString reads a JSON string. It returns false if the next value is not a complete string.
func (c *jsonCounter) readString() (s string, ok bool) {
	c.skipSpace()
	quoted := c.rest
	if len(quoted) == 0 || quoted[0] != '"' || !c.skipString() {
		return "", false
	}
	quoted = quoted[:len(quoted)-len(c.rest)]

	// Nearly all names have no escapes, and need no decoder.
	if !bytes.Contains(quoted, []byte{'\\'}) {
		return string(quoted[1 : len(quoted)-1]), true
	}
	err := json.Unmarshal(quoted, &s)
	return s, err == nil
}

// skipValue skips a JSON value of any kind. In malformed input it stops at a character that cannot
// belong to the value, or at the end.
func (c *jsonCounter) skipValue() {
	c.skipSpace()
	depth := 0 // how many objects and arrays are open
	for len(c.rest) > 0 {
		switch next := c.rest[0]; next {
		case '"':
			if !c.skipString() {
				return
			}
		case '{', '[':
			depth++
			c.rest = c.rest[1:]
		case '}', ']', ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return // the value was a number or a word, which ends before this character
			}
			if next == '}' || next == ']' {
				depth--
			}
			c.rest = c.rest[1:]
		default:
			c.rest = c.rest[1:]
			continue // the next character may belong to the same number or word
		}
		if depth == 0 {
			return
		}
	}
}

// skipString skips a JSON string. rest must begin with its opening quote. skipString returns false
// if the string has no end.
func (c *jsonCounter) skipString() bool {
	for i := 1; i < len(c.rest); i++ {
		switch c.rest[i] {
		case '\\':
			i++ // the next character is escaped, so it cannot be the closing quote
		case '"':
			c.rest = c.rest[i+1:]
			return true
		}
	}
	c.rest = nil
	return false
}
