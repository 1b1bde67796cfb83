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

// misfit finds the first value of a refused JSON message that its field does not take, and says what the field takes.
// The decoder's own error has a line and the value, but neither the path of the field nor what would be right. It returns
// nil when something else is wrong first, which the decoder's error says well enough: an unknown field, a syntax error.
func decodeErrorText(data []byte, m proto.Message) *apierror.Failure {
	r := mismatchReader{Decoder: json.NewDecoder(bytes.NewReader(data))}
	r.UseNumber()
	r.readMessage(m.ProtoReflect().Descriptor(), "")
	return r.failure
}

// misfitReader reads JSON in the order in which the decoder does. Its methods report whether reading continues.
type mismatchReader struct {
	*json.Decoder
	failure *apierror.Failure
}

func (r *mismatchReader) refuse(path, format string, args ...any) bool {
	r.failure = apierror.Invalid(apierror.InvalidField(path, format, args...))
	return false
}

func (r *mismatchReader) readMessage(d protoreflect.MessageDescriptor, path string) bool {
	start, err := r.Token()
	if err != nil || start == nil {
		return err == nil
	}
	if start != json.Delim('{') {
		return path != "" && r.refuse(strings.TrimSuffix(path, "."), "must be a JSON object")
	}
	for n := 1; r.More(); n++ {
		key, err := r.Token()
		name, ok := key.(string)
		if err != nil || !ok || n > d.Fields().Len() { // a field that is there twice is another error
			return false
		}
		fd := d.Fields().ByJSONName(name)
		if fd == nil {
			fd = d.Fields().ByTextName(name)
		}
		if fd == nil || fd.IsMap() || !r.readField(fd, path+string(fd.Name())) {
			return false
		}
	}
	_, err = r.Token()
	return err == nil
}

func (r *mismatchReader) readField(fd protoreflect.FieldDescriptor, path string) bool {
	if !fd.IsList() {
		return r.readValue(fd, path)
	}
	start, err := r.Token()
	if err != nil || start == nil {
		return err == nil
	}
	if start != json.Delim('[') {
		return r.refuse(path, "must be a JSON array")
	}
	for i := 0; r.More(); i++ {
		if !r.readValue(fd, path+"["+strconv.Itoa(i)+"]") {
			return false
		}
	}
	_, err = r.Token()
	return err == nil
}

// timestampName is the one message of google.protobuf that requests have.
const timestampName = "google.protobuf.Timestamp"

func (r *mismatchReader) readValue(fd protoreflect.FieldDescriptor, path string) bool {
	if m := fd.Message(); m != nil && m.FullName() != timestampName {
		return r.readMessage(m, path+".")
	}
	token, err := r.Token()
	if err != nil || token == nil {
		return err == nil
	}
	if acceptsToken(fd, token) {
		return true
	}
	return r.refuse(path, "%s", expectedValue(fd, token))
}

// fits reports whether a field takes a value. In doubt it does: the decoder has its own opinion.
func acceptsToken(fd protoreflect.FieldDescriptor, token json.Token) bool {
	text, isText := token.(string)
	number, isNumber := token.(json.Number)
	switch fd.Kind() {
	case protoreflect.StringKind:
		return isText
	case protoreflect.BoolKind:
		_, ok := token.(bool)
		return ok
	case protoreflect.BytesKind:
		return isText && isBase64(text)
	case protoreflect.EnumKind:
		return isNumber && isIntegerBetween(string(number), math.MinInt32, math.MaxInt32) ||
			isText && fd.Enum().Values().ByName(protoreflect.Name(text)) != nil
	case protoreflect.MessageKind:
		at, err := time.Parse(time.RFC3339Nano, text)
		return isText && err == nil && timestamppb.New(at).IsValid()
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return isNumber || isText
	}
	if isNumber {
		text = string(number)
	}
	least, most := integerRange(fd.Kind())
	return (isText || isNumber) && isIntegerBetween(text, least, most)
}

// takes says what a field takes.
func expectedValue(fd protoreflect.FieldDescriptor, token json.Token) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return "must be a JSON string"
	case protoreflect.BoolKind:
		return "must be true or false"
	case protoreflect.BytesKind:
		return `must be base64, in which {"a":1} is "eyJhIjoxfQ=="`
	case protoreflect.EnumKind:
		return enumRuleText(fd) + ", not " + quoteToken(token)
	case protoreflect.MessageKind:
		return `must be a time as in "2026-01-31T12:00:00Z" (RFC 3339), not ` + quoteToken(token)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "must be a number"
	}
	return fmt.Sprintf("must be a whole number of type %v, not %s", fd.Kind(), quoteToken(token))
}

// quoted is a value as an error shows it.
func quoteToken(token json.Token) string {
	text := fmt.Sprint(token)
	if len(text) > 64 {
		text = strings.ToValidUTF8(text[:64], "") + "…"
	}
	if _, ok := token.(string); ok {
		return strconv.Quote(text)
	}
	return text
}

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

func isIntegerBetween(text string, least, most float64) bool {
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == math.Trunc(n) && n >= least && n <= most
}

// isBase64 reports whether text is either alphabet of base64, with or without padding: JSON of protos takes them all.
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
