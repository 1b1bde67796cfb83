//go:build !race

// The race detector makes pools forget on purpose, so nothing can be said of allocations there.

package gateway

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// emptyWriter takes an answer and keeps its status and length.
type emptyWriter struct {
	header        http.Header
	status, bytes int
}

func (w *emptyWriter) Header() http.Header    { return w.header }
func (w *emptyWriter) WriteHeader(status int) { w.status = status }
func (w *emptyWriter) Write(p []byte) (int, error) {
	w.bytes += len(p)
	return len(p), nil
}

// reread is a body that is read anew by every call.
type reread struct{ bytes.Reader }

func (*reread) Close() error { return nil }

// bareCall returns a function that puts a plain request to the server, with as little around it as can be, and returns
// the length of the answer.
func bareCall(t testing.TB, s *Server, procedure string, req proto.Message, headers ...http.Header) func() int {
	t.Helper()
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+procedure, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/proto")
	r.Header.Set("Connect-Protocol-Version", "1")
	for _, header := range headers {
		maps.Copy(r.Header, header)
	}
	r.ContentLength = int64(len(body))
	data := &reread{}
	r.Body = data
	w := &emptyWriter{header: http.Header{}}
	return func() int {
		data.Reset(body)
		clear(w.header)
		w.status, w.bytes = 0, 0
		s.ServeHTTP(w, r)
		if w.status > http.StatusOK {
			t.Fatalf("%s: %d", procedure, w.status)
		}
		return w.bytes
	}
}

// What the hot calls may allocate, net/http apart: each allocation costs some 0.1 µs of a call, and more when they are
// collected. Of a list it is one for each entry, its id, beside a few.
func TestPlainAllocations(t *testing.T) {
	w := newWorld(t)
	var evs []*skeinv1.Event
	filter := &skeinv1.FilterFollowedRequest{ViewerId: "7"}
	for i := range 50 {
		evs = append(evs, follow(fmt.Sprint(100+i), "7"), follow("7", fmt.Sprint(100+i)))
		if i < 25 {
			filter.UserIds = append(filter.UserIds, fmt.Sprint(100+2*i))
		}
	}
	w.caughtUp(w.publish(evs...))
	for _, c := range []struct {
		name, procedure string
		req             proto.Message
		most            float64
	}{
		{
			"check 1", connectv1.GraphServiceCheckFollowsProcedure,
			&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("7", "100")}}, 16,
		},
		{"filter 25", connectv1.GraphServiceFilterFollowedProcedure, filter, 20},
		{"newest 50", connectv1.GraphServiceListFollowersProcedure, &skeinv1.ListFollowersRequest{UserId: "7"}, 140},
	} {
		call := bareCall(t, w.server, c.procedure, c.req)
		if got := testing.AllocsPerRun(500, func() { call() }); got > c.most {
			t.Errorf("%s: %v allocations, at most %v", c.name, got, c.most)
		} else {
			t.Logf("%s: %v allocations", c.name, got)
		}
	}
}

// repeated is a connection on which one request comes again and again, so often.
type repeated struct {
	net.Conn
	request     []byte
	times, said int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.times == 0 {
		return 0, io.EOF
	}
	r.times--
	return copy(p, r.request), nil
}

func (r *repeated) Write(p []byte) (int, error) {
	r.said += len(p)
	return len(p), nil
}

func (*repeated) SetReadDeadline(time.Time) error  { return nil }
func (*repeated) SetWriteDeadline(time.Time) error { return nil }
func (*repeated) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// loopCall returns a function that puts a request to the loop so many times, on one connection.
func loopCall(t testing.TB, s *Server, request []byte) func(times int) {
	t.Helper()
	f := newFront(s, newPipes(), s.httpServer())
	conn := &repeated{request: request}
	c := newFrontConn(f, conn, &clientConn{})
	return func(times int) {
		conn.times, conn.said = times, 0
		if c.state.Store(fresh); c.converse() || conn.said < times*len("HTTP/1.1 200 OK") {
			t.Fatal("the loop gave up")
		}
	}
}

// The loop allocates nothing for a call, whatever is in its head.
func TestFrontAllocations(t *testing.T) {
	s := &Server{limits: Limits{}.withDefaults(), hosts: hosts{any: true}, log: slog.New(slog.DiscardHandler), methods: map[string]http.Handler{checkPath: echo{}}}
	call := loopCall(t, s, []byte(requestText(checkPath, "Authorization: Bearer "+strings.Repeat("x", 500)+
		"\r\nUser-Agent: connect-go/1.21.1 (go1.26)\r\nAccept-Encoding: identity\r\nConnect-Protocol-Version: 1\r\n", "abc")))
	call(1)
	if got := testing.AllocsPerRun(100, func() { call(1000) }); got > 3 {
		t.Errorf("%v allocations in 1000 calls", got)
	}
}

// BenchmarkLoop is a call in the loop, without the system calls.
func BenchmarkLoop(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		call := loopCall(b, w.server, []byte(requestText(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(b, c.req)))))
		if proto.Size(c.req) > 3<<10 {
			continue // in more than one part
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			call(b.N)
		})
	}
}

// BenchmarkPlain is a call without net/http.
func BenchmarkPlain(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		call := bareCall(b, w.server, c.procedure, c.req)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
