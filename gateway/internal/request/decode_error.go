package request

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/apierror"
)

// explainDecodeError returns a better error for a JSON message that the decoder has refused. It
// finds the first value that does not fit its field, and says what the field accepts. The decoder's
// own error has a line number and the value, but neither the path of the field nor what would be
// valid. If something else is wrong before that value, such as an unknown field or a syntax error,
// explainDecodeError returns nil, because the decoder's error describes that well enough.
func explainDecodeError(data []byte, m proto.Message) *apierror.Failure {
	r := mismatchReader{Decoder: json.NewDecoder(bytes.NewReader(data))}
	r.UseNumber() // a float64 would round large integers, and the error would quote another number
	r.readMessage(m.ProtoReflect().Descriptor(), "")
	return r.failure
}

// mismatchReader reads a JSON message in the same order as the decoder, until it finds a value that
// does not fit its field. Its read methods return false when reading must stop: at such a value, or
// at an error that the decoder reports.
type mismatchReader struct {
	*json.Decoder
	// failure describes the value that does not fit. It is nil as long as no such value was found.
	failure *apierror.Failure
}

// refuse sets the failure for the field at path. It returns false, so that reading stops.
func (r *mismatchReader) refuse(path, format string, args ...any) bool {
	r.failure = apierror.Invalid(apierror.InvalidField(path, format, args...))
	return false
}

// readMessage reads the JSON of a message. path is the path of the message with a dot at its end,
// such as "pairs[3].", or "" for the request itself.
func (r *mismatchReader) readMessage(d protoreflect.MessageDescriptor, path string) bool {
	start, err := r.Token()
	if err != nil || start == nil {
		return err == nil // null is valid for each field
	}
	if start != json.Delim('{') {
		if path == "" {
			return false // the decoder's error about the whole request is good enough
		}
		return r.refuse(strings.TrimSuffix(path, "."), "must be a JSON object")
	}

	for n := 1; r.More(); n++ {
		key, err := r.Token()
		name, isName := key.(string)
		if err != nil || !isName {
			return false
		}
		// With more names than fields, some name occurs twice. The decoder refuses that, and its
		// error says so.
		if n > d.Fields().Len() {
			return false
		}
		field := d.Fields().ByJSONName(name)
		if field == nil {
			field = d.Fields().ByTextName(name)
		}
		if field == nil || field.IsMap() || !r.readField(field, path+string(field.Name())) {
			return false
		}
	}
	_, err = r.Token()
	return err == nil
}

// readField reads the value of a field, which may be a list.
func (r *mismatchReader) readField(field protoreflect.FieldDescriptor, path string) bool {
	if !field.IsList() {
		return r.readValue(field, path)
	}
	start, err := r.Token()
	if err != nil || start == nil {
		return err == nil // null is valid for each field
	}
	if start != json.Delim('[') {
		return r.refuse(path, "must be a JSON array")
	}

	for i := 0; r.More(); i++ {
		if !r.readValue(field, path+"["+strconv.Itoa(i)+"]") {
			return false
		}
	}
	_, err = r.Token()
	return err == nil
}

// timestampName is the only message of google.protobuf that requests contain. Its JSON is a string.
const timestampName = "google.protobuf.Timestamp"

// readValue reads the value of a field that is not a list, or one item of a list.
func (r *mismatchReader) readValue(field protoreflect.FieldDescriptor, path string) bool {
	if m := field.Message(); m != nil && m.FullName() != timestampName {
		return r.readMessage(m, path+".")
	}
	token, err := r.Token()
	if err != nil || token == nil {
		return err == nil // null is valid for each field
	}
	if acceptsToken(field, token) {
		return true
	}
	return r.refuse(path, "%s", expectedValue(field, token))
}

// acceptsToken reports whether a field accepts a JSON value. It returns true where it cannot be
// sure, as for the range of floating-point fields. The client then gets the decoder's error.
func acceptsToken(field protoreflect.FieldDescriptor, token json.Token) bool {
	text, isText := token.(string)
	number, isNumber := token.(json.Number)
	switch field.Kind() {
	case protoreflect.StringKind:
		return isText
	case protoreflect.BoolKind:
		_, ok := token.(bool)
		return ok
	case protoreflect.BytesKind:
		return isText && isBase64(text)
	case protoreflect.EnumKind:
		return isNumber && isIntegerBetween(string(number), math.MinInt32, math.MaxInt32) ||
			isText && field.Enum().Values().ByName(protoreflect.Name(text)) != nil
	case protoreflect.MessageKind: // a timestamp, because readValue handles all other messages
		t, err := time.Parse(time.RFC3339Nano, text)
		return isText && err == nil && timestamppb.New(t).IsValid()
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return isNumber || isText
	}

	// The field is an integer. JSON may represent it as a number or as a string.
	if isNumber {
		text = string(number)
	}
	least, most := integerRange(field.Kind())
	return (isText || isNumber) && isIntegerBetween(text, least, most)
}

// expectedValue returns what a field accepts instead of the given JSON value, in words that follow
// the path of the field.
func expectedValue(field protoreflect.FieldDescriptor, token json.Token) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		return "must be a JSON string"
	case protoreflect.BoolKind:
		return "must be true or false"
	case protoreflect.BytesKind:
		return `must be base64, in which {"a":1} is "eyJhIjoxfQ=="`
	case protoreflect.EnumKind:
		return enumRequirement(field) + ", not " + quoteToken(token)
	case protoreflect.MessageKind:
		return `must be a time as in "2026-01-31T12:00:00Z" (RFC 3339), not ` + quoteToken(token)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "must be a number"
	}
	return fmt.Sprintf("must be a whole number of type %v, not %s", field.Kind(), quoteToken(token))
}

// quoteToken returns a JSON value for an error, cut to 64 bytes.
func quoteToken(token json.Token) string {
	text := fmt.Sprint(token)
	if len(text) > 64 {
		text = strings.ToValidUTF8(text[:64], "") + "…" // the cut may be within a character
	}
	if _, ok := token.(string); ok {
		return strconv.Quote(text)
	}
	return text
}

// integerRange returns the smallest and the largest value of an integer kind.
func integerRange(kind protoreflect.Kind) (least, most float64) {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 0, math.MaxUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 0, math.MaxUint64
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return math.MinInt64, math.MaxInt64
	default:
		return math.MinInt32, math.MaxInt32
	}
}

// isIntegerBetween reports whether text is an integer from least to most. It may have a fraction of
// zero or an exponent, as in JSON.
func isIntegerBetween(text string, least, most float64) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == math.Trunc(n) && n >= least && n <= most
}

// isBase64 reports whether text is base64 of the standard or the URL alphabet, with or without
// padding. The JSON encoding of protos accepts all four.
func isBase64(text string) bool {
	encoding := base64.StdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	_, err := encoding.DecodeString(text)
	return err == nil
}
