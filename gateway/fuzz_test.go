package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/gateway/internal/http1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// fuzzWorld is a service that has a few rows of each kind, and the values with which requests to it
// are filled.
type fuzzWorld struct {
	*world
	// methods are the procedures that answer once and change nothing, in order.
	methods []string
	// texts are the values of string and bytes fields. A field whose name is in textsByField has
	// the values from there instead, because the others would all be refused.
	texts        []string
	textsByField map[protoreflect.Name][]string
}

func newFuzzWorld(f *testing.F) *fuzzWorld {
	w := &fuzzWorld{world: newWorld(f, withFeeds, withSeen, withCounters, func(o *worldOptions) {
		o.Operator = idle{}
		o.AllowedHosts = []string{"*"}
	})}
	at := w.publish(
		createBoard("bob", "cats", "Cats"), follow("ann", "bob"), follow("cid", "ann"), followBoard("cid", "bob", "cats"), block("ann", "dan"),
		mute("ann", "eve"), follow("1001", "1002"), follow("ann", "1002"),
	)
	for i := range 5 {
		at = w.publish(pinned("bob", "cats", fmt.Sprint("pin", i)), pinned("1002", "", fmt.Sprint(i)), played("ann", fmt.Sprint(i)))
	}

	// Get page tokens of each kind of list.
	feed := ask(w.world, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	list := ask(w.world, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "1002", PageSize: 1, AtLeast: at})
	trending := ask(w.world, w.counterClient.ListTrending, &skeinv1.ListTrendingRequest{PageSize: 1, AtLeast: at})

	// FuzzCallFields compares answers, so no store may be folding any more. Nothing is published
	// from here on except by FuzzPublish.
	w.caughtUp(at)

	w.texts = []string{"", "ann", "bob", "cid", "1001", "1002", "cats", "pin3", "4", "ünïcode", "\x00", strings.Repeat("x", 129), "000", at}
	w.textsByField = map[protoreflect.Name][]string{
		"page_token": {"", feed.GetNextPageToken(), list.GetNextPageToken(), trending.GetNextPageToken(), "x"},
		"at_least":   {"", at, at + "0", "x"},
	}

	for procedure := range w.server.methods {
		if w.server.streams[procedure] || strings.Contains(procedure, "AdminService") && !strings.HasSuffix(procedure, "GetStatus") ||
			procedure == connectv1.EventServicePublishProcedure {
			continue
		}
		w.methods = append(w.methods, procedure)
	}
	slices.Sort(w.methods)
	return w
}

// choices are the bytes of a fuzzer from which requests are made.
type choices []byte

// choose returns a number from 0 to n-1, which the next byte decides. It returns 0 once all bytes
// are used.
func (c *choices) choose(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// fillMessage sets fields of a message as the choices say. Fields stay empty once all bytes are
// used, so that messages that contain themselves come to an end.
func (w *fuzzWorld) fillMessage(c *choices, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if len(*c) == 0 || c.choose(4) == 0 {
			continue
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for range c.choose(5) {
				element := list.NewElement()
				if f.Message() != nil {
					w.fillMessage(c, element.Message())
				} else {
					element = w.chooseScalar(c, f)
				}
				list.Append(element)
			}
		case f.IsMap():
			// Maps stay empty.
		case f.Message() != nil:
			w.fillMessage(c, m.Mutable(f).Message())
		default:
			m.Set(f, w.chooseScalar(c, f))
		}
	}
}

// chooseScalar returns a value for a field that is no message.
func (w *fuzzWorld) chooseScalar(c *choices, f protoreflect.FieldDescriptor) protoreflect.Value {
	numbers := []int64{0, 1, 2, 3, 20, 200, 201, 1000, 1001, -1, 1 << 31, -1 << 63, 1<<63 - 1}
	number := func() int64 { return numbers[c.choose(len(numbers))] }
	switch f.Kind() {
	case protoreflect.StringKind:
		texts := w.texts
		if ownTexts := w.textsByField[f.Name()]; ownTexts != nil {
			texts = ownTexts
		}
		return protoreflect.ValueOfString(texts[c.choose(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(w.texts[c.choose(len(w.texts))]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.choose(2) == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(c.choose(8)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(number()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(number())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(number()))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(number()))
	}
	return f.Default()
}

// The encodings of a call.
const (
	encodingProto = iota
	encodingJSON
	encodingGRPCWeb
	encodingGRPC
	encodingGzip
	encodingGET
	numEncodings
)

// grpcFrame returns a message as gRPC sends it: not compressed, after its length.
func grpcFrame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// newCallRequest returns a call in an encoding, in which the body need not be.
func newCallRequest(t *testing.T, encoding int, procedure string, body []byte) *http.Request {
	t.Helper()
	post := func(contentType string, body []byte) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, procedure, bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return r
	}
	switch encoding {
	case encodingJSON:
		return post("application/json", body)
	case encodingGRPCWeb:
		return post("application/grpc-web+proto", body)
	case encodingGRPC:
		r := post("application/grpc+proto", body)
		r.Proto = "HTTP/2.0" // gRPC needs its trailers
		r.ProtoMajor = 2
		r.ProtoMinor = 0
		return r
	case encodingGzip:
		r := post("application/proto", body)
		r.Header.Set("Content-Encoding", "gzip")
		return r
	case encodingGET:
		query := url.Values{"connect": {"v1"}, "encoding": {"proto"}, "base64": {"1"}, "message": {base64.RawURLEncoding.EncodeToString(body)}}
		return httptest.NewRequestWithContext(t.Context(), http.MethodGet, procedure+"?"+query.Encode(), nil)
	}
	return post("application/proto", body)
}

// checkAnswer checks that the answer to a call has a message of the type, or an error that the
// caller caused and that says what it is. It returns the message, or nil if the answer is an
// error.
func checkAnswer(t *testing.T, encoding int, rec *httptest.ResponseRecorder, out protoreflect.MessageType) proto.Message {
	t.Helper()
	if encoding == encodingGRPC || encoding == encodingGRPCWeb {
		return checkGRPCAnswer(t, rec, out)
	}

	data := rec.Body.Bytes()
	if rec.Code == http.StatusOK {
		return mustDecode(t, out, func(m proto.Message) error {
			if encoding == encodingJSON {
				return protojson.Unmarshal(data, m)
			}
			return proto.Unmarshal(data, m)
		})
	}
	if rec.Code >= 500 && rec.Code != http.StatusServiceUnavailable && rec.Code != http.StatusNotImplemented {
		t.Fatalf("got status %d and %s, want an error of the caller", rec.Code, data)
	}
	if len(data) > 0 && rec.Header().Get("Content-Type") == "application/json" && parseError(t, data).Code == "" {
		t.Fatalf("got the error %s, want one with a code", data)
	}
	return nil
}

// checkGRPCAnswer is checkAnswer for gRPC and gRPC-Web, whose errors come with status 200.
func checkGRPCAnswer(t *testing.T, rec *httptest.ResponseRecorder, out protoreflect.MessageType) proto.Message {
	t.Helper()
	if rec.Code != http.StatusOK {
		t.Fatalf("got HTTP status %d, want 200 as of all answers of gRPC", rec.Code)
	}

	// Read the frames. The trailers of gRPC-Web are in a frame whose first byte has the highest
	// bit.
	status := rec.Header().Get("Grpc-Status") + rec.Result().Trailer.Get("Grpc-Status")
	var message []byte
	for data := rec.Body.Bytes(); len(data) >= 5; {
		n := int(binary.BigEndian.Uint32(data[1:]))
		if data[0]&0x80 != 0 {
			status += trailerStatus(data[5 : 5+n])
		} else {
			message = data[5 : 5+n]
		}
		data = data[5+n:]
	}

	switch status {
	case "0":
		return mustDecode(t, out, func(m proto.Message) error { return proto.Unmarshal(message, m) })
	case fmt.Sprint(int(connect.CodeInternal)):
		// Connect gives this code also to callers who send a broken frame or more than one message.
		text := fmt.Sprint(rec.Header(), rec.Result().Trailer, rec.Body)
		if strings.Contains(text, "protocol error") || strings.Contains(text, "corrupt response") {
			return nil
		}
		fallthrough
	case "", fmt.Sprint(int(connect.CodeUnknown)):
		t.Fatalf("got gRPC status %q, header %v and body %q, want an error of the caller", status, rec.Header(), rec.Body)
	}
	return nil
}

// mustDecode returns the message that decode fills.
func mustDecode(t *testing.T, out protoreflect.MessageType, decode func(proto.Message) error) proto.Message {
	t.Helper()
	m := out.New().Interface()
	if err := decode(m); err != nil {
		t.Fatalf("decode the answer as %s: %v", out.Descriptor().FullName(), err)
	}
	return m
}

// trailerStatus returns the status in the trailers of gRPC-Web, or "".
func trailerStatus(trailer []byte) string {
	for line := range strings.Lines(string(trailer)) {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "grpc-status") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// typesOf returns the types of the request and the answer of a method.
func typesOf(t testing.TB, procedure string) (in, out protoreflect.MessageType) {
	t.Helper()
	method := descriptorOf(procedure)
	in, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	out, err = protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}

// FuzzCallBytes checks that, whatever bytes come as the body of a call in any encoding, the answer
// has a message or an error of the caller.
func FuzzCallBytes(f *testing.F) {
	w := newFuzzWorld(f)
	for i, procedure := range w.methods {
		in, _ := typesOf(f, procedure)
		m := in.New()
		c := choices(bytes.Repeat([]byte{1, 2, 3, 5, 9}, 40))
		w.fillMessage(&c, m)

		// A seed of each encoding.
		data, _ := proto.Marshal(m.Interface())
		text, _ := protojson.Marshal(m.Interface())
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(data)
		_ = z.Close()
		for encoding, body := range [numEncodings][]byte{data, text, grpcFrame(data), grpcFrame(data), zipped.Bytes(), data} {
			f.Add(byte(i), byte(encoding), body)
		}
	}

	f.Fuzz(func(t *testing.T, methodByte, encodingByte byte, body []byte) {
		procedure := w.methods[int(methodByte)%len(w.methods)]
		encoding := int(encodingByte) % numEncodings
		_, out := typesOf(t, procedure)
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, newCallRequest(t, encoding, procedure, body))
		checkAnswer(t, encoding, rec, out)
	})
}

// FuzzCallFields checks that a well-formed request gets the same answer in every encoding, through
// net/http and through the HTTP loop.
func FuzzCallFields(f *testing.F) {
	w := newFuzzWorld(f)
	for i := range w.methods {
		for seed := range 8 {
			f.Add(byte(i), bytes.Repeat([]byte{byte(1 + seed), byte(3 * seed), byte(7 + seed), 2}, 10))
		}
	}

	f.Fuzz(func(t *testing.T, methodByte byte, seed []byte) {
		procedure := w.methods[int(methodByte)%len(w.methods)]
		in, out := typesOf(t, procedure)
		m := in.New()
		c := choices(seed)
		w.fillMessage(&c, m)
		data, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		call := func(encoding int, body []byte) proto.Message {
			rec := httptest.NewRecorder()
			w.server.ServeHTTP(rec, newCallRequest(t, encoding, procedure, body))
			res := checkAnswer(t, encoding, rec, out)
			if res != nil {
				clearVaryingFields(res.ProtoReflect())
			}
			return res
		}

		want := call(encodingProto, data)
		w.checkPlainAnswer(t, procedure, data)
		answers := map[string]proto.Message{"gRPC-Web": call(encodingGRPCWeb, grpcFrame(data)), "gRPC": call(encodingGRPC, grpcFrame(data))}
		if hasNoSideEffects(descriptorOf(procedure)) {
			answers["GET"] = call(encodingGET, data)
		}
		// Not every time can be written as JSON.
		if text, err := protojson.Marshal(m.Interface()); err == nil {
			answers["JSON"] = call(encodingJSON, text)
		}
		for encoding, got := range answers {
			if (want == nil) != (got == nil) || want != nil && !proto.Equal(want, got) {
				t.Fatalf("%s %v\nas %s: got %v\nwant %v as in binary Connect", procedure, m, encoding, got, want)
			}
		}
	})
}

// checkPlainAnswer checks that the HTTP loop, if it serves the method, gives the same answer as
// Connect's handler, errors included.
func (w *fuzzWorld) checkPlainAnswer(t *testing.T, procedure string, body []byte) {
	t.Helper()
	method, ok := w.server.methods[procedure].(plainMethod)
	if !ok {
		return
	}

	want := httptest.NewRecorder()
	w.server.ServeHTTP(want, newCallRequest(t, encodingProto, procedure, body))
	got := httptest.NewRecorder()
	answer, _, err := method.answerPlain(t.Context(), w.server.authenticate("", nil), body, nil)
	if err != nil {
		if err := http1.WriteError(got, err); err != nil {
			t.Fatal(err)
		}
	} else {
		_, _ = got.Write(answer)
	}

	_, out := typesOf(t, procedure)
	if want.Code == http.StatusOK && got.Code == http.StatusOK {
		wantMessage := checkAnswer(t, encodingProto, want, out)
		gotMessage := checkAnswer(t, encodingProto, got, out)
		clearVaryingFields(wantMessage.ProtoReflect())
		clearVaryingFields(gotMessage.ProtoReflect())
		if !proto.Equal(wantMessage, gotMessage) {
			t.Fatalf("%s %x: got %v from the loop, want %v as from net/http", procedure, body, gotMessage, wantMessage)
		}
		return
	}
	if want.Code != got.Code || want.Body.String() != got.Body.String() {
		t.Fatalf("%s %x: got %d %s from the loop, want %d %s as from net/http", procedure, body, got.Code, got.Body, want.Code, want.Body)
	}
}

// clearVaryingFields removes the fields that differ between two answers to the same request because
// they depend on the time: page tokens, and all of a status.
func clearVaryingFields(m protoreflect.Message) {
	if m.Descriptor().Name() == "GetStatusResponse" {
		proto.Reset(m.Interface())
		return
	}
	if f := m.Descriptor().Fields().ByName("next_page_token"); f != nil {
		m.Clear(f)
	}
}

// FuzzPublish checks that a call of Publish, well formed or not, in any encoding, gets an answer or
// an error of the caller. A call by GET must be refused.
func FuzzPublish(f *testing.F) {
	w := newFuzzWorld(f)
	for seed := range 16 {
		f.Add(byte(seed), bytes.Repeat([]byte{byte(1 + seed), byte(3 * seed), byte(7 + seed), 2}, 10))
	}
	// The highest bit of the first byte means that the seed is the body itself.
	f.Add(byte(encodingProto|0x80), []byte{0x0a, 0x00})
	f.Add(byte(encodingJSON|0x80), []byte(`{"events":[{"userFollowed":{"userId":"ann","targetUserId":"bob"}}]}`))

	_, out := typesOf(f, connectv1.EventServicePublishProcedure)
	f.Fuzz(func(t *testing.T, how byte, seed []byte) {
		encoding := int(how&0x7f) % numEncodings
		body := seed
		if how&0x80 == 0 {
			// Make a well-formed request from the seed.
			var req skeinv1.PublishRequest
			c := choices(seed)
			w.fillMessage(&c, req.ProtoReflect())
			data, err := proto.Marshal(&req)
			if err != nil {
				t.Fatal(err)
			}
			switch encoding {
			case encodingGRPC, encodingGRPCWeb:
				body = grpcFrame(data)
			case encodingJSON:
				body, err = protojson.Marshal(&req)
				if err != nil {
					return // the request has a time that cannot be written as JSON
				}
			default:
				body = data
			}
		}

		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, newCallRequest(t, encoding, connectv1.EventServicePublishProcedure, body))
		if encoding == encodingGET {
			if rec.Code != http.StatusMethodNotAllowed {
				t.Fatalf("Publish by GET: got status %d and %s, want 405", rec.Code, rec.Body)
			}
			return
		}
		checkAnswer(t, encoding, rec, out)
	})
}
