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
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/gateway/internal/http1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// fuzzWorld is a service with a little of everything, and what a caller may have learnt of it.
type fuzzWorld struct {
	*world
	// methods are those that answer once and change nothing, in order.
	methods []string
	// texts are for any field, named for those that need something better.
	texts []string
	named map[protoreflect.Name][]string
}

func newFuzzWorld(f *testing.F) *fuzzWorld {
	w := &fuzzWorld{world: newWorld(f, withFeeds, withSeen, withCounters, func(o *worldOptions) { o.Operator, o.AllowedHosts = idle{}, []string{"*"} })}
	at := w.publish(
		createBoard("bob", "cats", "Cats"), follow("ann", "bob"), follow("cid", "ann"), followBoard("cid", "bob", "cats"), block("ann", "dan"),
		mute("ann", "eve"), follow("1001", "1002"), follow("ann", "1002"),
	)
	for i := range 5 {
		at = w.publish(pinned("bob", "cats", fmt.Sprint("pin", i)), pinned("1002", "", fmt.Sprint(i)), played("ann", fmt.Sprint(i)))
	}
	feed := ask(w.world, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: 1, AtLeast: at})
	list := ask(w.world, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "1002", PageSize: 1, AtLeast: at})
	trending := ask(w.world, w.counterClient.ListTrending, &skeinv1.ListTrendingRequest{PageSize: 1, AtLeast: at})
	// Nothing is worth waiting for from here on.
	w.server.limits.AtLeastWait, w.server.limits.VisibleWait = time.Millisecond, time.Millisecond
	w.texts = []string{"", "ann", "bob", "cid", "1001", "1002", "cats", "pin3", "4", "ünïcode", "\x00", strings.Repeat("x", 129), "000", at}
	w.named = map[protoreflect.Name][]string{
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

// choices makes decisions of bytes: zeros when they have run out.
type choices []byte

func (c *choices) next(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// message fills a message by choices. Fields stay empty once the choices have no bytes left, so
// that it ends.
func (w *fuzzWorld) message(c *choices, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if len(*c) == 0 || c.next(4) == 0 {
			continue
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for range c.next(5) {
				e := list.NewElement()
				if f.Message() != nil {
					w.message(c, e.Message())
				} else {
					e = w.scalar(c, f)
				}
				list.Append(e)
			}
		case f.IsMap():
		case f.Message() != nil:
			w.message(c, m.Mutable(f).Message())
		default:
			m.Set(f, w.scalar(c, f))
		}
	}
}

func (w *fuzzWorld) scalar(c *choices, f protoreflect.FieldDescriptor) protoreflect.Value {
	numbers := []int64{0, 1, 2, 3, 20, 200, 201, 1000, 1001, -1, 1 << 31, -1 << 63, 1<<63 - 1}
	number := func() int64 { return numbers[c.next(len(numbers))] }
	switch f.Kind() {
	case protoreflect.StringKind:
		texts := w.texts
		if better := w.named[f.Name()]; better != nil {
			texts = better
		}
		return protoreflect.ValueOfString(texts[c.next(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(w.texts[c.next(len(w.texts))]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.next(2) == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(c.next(8)))
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

// Ways to call.
const (
	asProto = iota
	asJSON
	asGRPCWeb
	asGRPC
	asGzip
	asGET
	numWays
)

// framed is a message as gRPC sends it.
func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// requestBy is a call with a body, which need not be one.
func requestBy(t *testing.T, way int, procedure string, body []byte) *http.Request {
	t.Helper()
	post := func(contentType string, body []byte) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, procedure, bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		return r
	}
	switch way {
	case asJSON:
		return post("application/json", body)
	case asGRPCWeb:
		return post("application/grpc-web+proto", body)
	case asGRPC:
		r := post("application/grpc+proto", body)
		r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
		return r
	case asGzip:
		r := post("application/proto", body)
		r.Header.Set("Content-Encoding", "gzip")
		return r
	case asGET:
		query := url.Values{"connect": {"v1"}, "encoding": {"proto"}, "base64": {"1"}, "message": {base64.RawURLEncoding.EncodeToString(body)}}
		return httptest.NewRequestWithContext(t.Context(), http.MethodGet, procedure+"?"+query.Encode(), nil)
	}
	return post("application/proto", body)
}

// demandAnswer: the answer to a call is one, or an error of the caller's that says what it is. It
// returns the message; nil means there is none.
func demandAnswer(t *testing.T, way int, rec *httptest.ResponseRecorder, out protoreflect.MessageType) proto.Message {
	t.Helper()
	data := rec.Body.Bytes()
	if way == asGRPC || way == asGRPCWeb {
		if rec.Code != http.StatusOK {
			t.Fatalf("status %d", rec.Code)
		}
		status := rec.Header().Get("Grpc-Status") + rec.Result().Trailer.Get("Grpc-Status")
		var message []byte
		for len(data) >= 5 {
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
			return decoded(t, out, func(m proto.Message) error { return proto.Unmarshal(message, m) })
		case fmt.Sprint(int(connect.CodeInternal)):
			// Connect calls a broken frame of gRPC that, and more than one message.
			text := fmt.Sprint(rec.Header(), rec.Result().Trailer, rec.Body)
			if strings.Contains(text, "protocol error") || strings.Contains(text, "corrupt response") {
				return nil
			}
			fallthrough
		case "", fmt.Sprint(int(connect.CodeUnknown)):
			t.Fatalf("gRPC status %q: %v %q", status, rec.Header(), rec.Body)
		}
		return nil
	}
	if rec.Code == http.StatusOK {
		return decoded(t, out, func(m proto.Message) error {
			if way == asJSON {
				return protojson.Unmarshal(data, m)
			}
			return proto.Unmarshal(data, m)
		})
	}
	if rec.Code >= 500 && rec.Code != http.StatusServiceUnavailable && rec.Code != http.StatusNotImplemented {
		t.Fatalf("status %d: %s", rec.Code, data)
	}
	if len(data) > 0 && rec.Header().Get("Content-Type") == "application/json" && parseError(t, data).Code == "" {
		t.Fatalf("an error without a code: %s", data)
	}
	return nil
}

func decoded(t *testing.T, out protoreflect.MessageType, decode func(proto.Message) error) proto.Message {
	t.Helper()
	m := out.New().Interface()
	if err := decode(m); err != nil {
		t.Fatalf("the answer is no %s: %v", out.Descriptor().FullName(), err)
	}
	return m
}

func trailerStatus(trailer []byte) string {
	for line := range strings.Lines(string(trailer)) {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "grpc-status") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func typesOf(t testing.TB, procedure string) (in, out protoreflect.MessageType) {
	t.Helper()
	d := descriptorOf(procedure)
	in, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	if out, err = protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName()); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// Whatever comes as body of whatever call in whatever encoding, the answer is one, or an error of
// the caller's.
func FuzzCallBytes(f *testing.F) {
	w := newFuzzWorld(f)
	for i, procedure := range w.methods {
		in, _ := typesOf(f, procedure)
		m := in.New()
		c := choices(bytes.Repeat([]byte{1, 2, 3, 5, 9}, 40))
		w.message(&c, m)
		data, _ := proto.Marshal(m.Interface())
		text, _ := protojson.Marshal(m.Interface())
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(data)
		_ = z.Close()
		for way, body := range [numWays][]byte{data, text, framed(data), framed(data), zipped.Bytes(), data} {
			f.Add(byte(i), byte(way), body)
		}
	}
	f.Fuzz(func(t *testing.T, which, way byte, body []byte) {
		procedure := w.methods[int(which)%len(w.methods)]
		_, out := typesOf(t, procedure)
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, requestBy(t, int(way)%numWays, procedure, body))
		demandAnswer(t, int(way)%numWays, rec, out)
	})
}

// A request that is well formed means the same in every encoding, and in the loop.
func FuzzCallFields(f *testing.F) {
	w := newFuzzWorld(f)
	for i := range w.methods {
		for seed := range 8 {
			f.Add(byte(i), bytes.Repeat([]byte{byte(1 + seed), byte(3 * seed), byte(7 + seed), 2}, 10))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, seed []byte) {
		procedure := w.methods[int(which)%len(w.methods)]
		in, out := typesOf(t, procedure)
		m := in.New()
		c := choices(seed)
		w.message(&c, m)
		data, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		call := func(way int, body []byte) proto.Message {
			rec := httptest.NewRecorder()
			w.server.ServeHTTP(rec, requestBy(t, way, procedure, body))
			res := demandAnswer(t, way, rec, out)
			if res != nil {
				forget(res.ProtoReflect())
			}
			return res
		}
		first := call(asProto, data)
		w.demandPlainAnswer(t, procedure, data)
		others := map[string]proto.Message{"gRPC-Web": call(asGRPCWeb, framed(data)), "gRPC": call(asGRPC, framed(data))}
		if hasNoSideEffects(descriptorOf(procedure)) {
			others["GET"] = call(asGET, data)
		}
		// Not every time can be written as JSON.
		if text, err := protojson.Marshal(m.Interface()); err == nil {
			others["JSON"] = call(asJSON, text)
		}
		for way, res := range others {
			if (first == nil) != (res == nil) || first != nil && !proto.Equal(first, res) {
				t.Fatalf("%s %v\nis answered %v\nas %s %v", procedure, m, first, way, res)
			}
		}
	})
}

// demandPlainAnswer fails unless a method answers a plain call of the loop as Connect's handler
// does, errors included.
func (w *fuzzWorld) demandPlainAnswer(t *testing.T, procedure string, body []byte) {
	t.Helper()
	method, ok := w.server.methods[procedure].(plainMethod)
	if !ok {
		return
	}
	expected, got := httptest.NewRecorder(), httptest.NewRecorder()
	w.server.ServeHTTP(expected, requestBy(t, asProto, procedure, body))
	answer, _, err := method.answerPlain(t.Context(), w.server.authenticate("", nil), body, nil)
	if err != nil {
		if err := http1.WriteError(got, err); err != nil {
			t.Fatal(err)
		}
	} else {
		_, _ = got.Write(answer)
	}

	_, out := typesOf(t, procedure)
	if expected.Code == http.StatusOK && got.Code == http.StatusOK {
		a, b := demandAnswer(t, asProto, expected, out), demandAnswer(t, asProto, got, out)
		forget(a.ProtoReflect())
		forget(b.ProtoReflect())
		if !proto.Equal(a, b) {
			t.Fatalf("%s %x: net/http answers %v, the loop %v", procedure, body, a, b)
		}
	} else if expected.Code != got.Code || expected.Body.String() != got.Body.String() {
		t.Fatalf("%s %x: net/http answers %d %s, the loop %d %s", procedure, body, expected.Code, expected.Body, got.Code, got.Body)
	}
}

// forget removes what is different in two answers to the same question: tokens hold the time, a
// status tells of it.
func forget(m protoreflect.Message) {
	if m.Descriptor().Name() == "GetStatusResponse" {
		proto.Reset(m.Interface())
		return
	}
	if f := m.Descriptor().Fields().ByName("next_page_token"); f != nil {
		m.Clear(f)
	}
}

// Events are appended whole or refused with a reason each, in every encoding, and the service
// continues.
func FuzzPublish(f *testing.F) {
	w := newFuzzWorld(f)
	for seed := range 16 {
		f.Add(byte(seed), bytes.Repeat([]byte{byte(1 + seed), byte(3 * seed), byte(7 + seed), 2}, 10))
	}
	f.Add(byte(asProto|0x80), []byte{0x0a, 0x00})
	f.Add(byte(asJSON|0x80), []byte(`{"events":[{"userFollowed":{"userId":"ann","targetUserId":"bob"}}]}`))
	_, out := typesOf(f, connectv1.EventServicePublishProcedure)
	f.Fuzz(func(t *testing.T, how byte, seed []byte) {
		way, body := int(how&0x7f)%numWays, seed
		if how&0x80 == 0 {
			var req skeinv1.PublishRequest
			c := choices(seed)
			w.message(&c, req.ProtoReflect())
			var err error
			switch body, err = proto.Marshal(&req); {
			case err != nil:
				t.Fatal(err)
			case way == asGRPC || way == asGRPCWeb:
				body = framed(body)
			case way == asJSON:
				if body, err = protojson.Marshal(&req); err != nil {
					return // a time that JSON has not
				}
			}
		}
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, requestBy(t, way, connectv1.EventServicePublishProcedure, body))
		if way == asGET {
			if rec.Code != http.StatusMethodNotAllowed {
				t.Fatalf("what writes was called by GET: %d %s", rec.Code, rec.Body)
			}
			return
		}
		demandAnswer(t, way, rec, out)
	})
}
