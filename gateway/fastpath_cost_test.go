//go:build !race

// The race detector makes pools forget on purpose, so nothing can be said of allocations there.

package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/admission"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// What the frequent calls may allocate, net/http apart: each allocation costs some 0.1 µs of a call, and more when they are
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
			&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("7", "100")}}, 10,
		},
		{"filter 25", connectv1.GraphServiceFilterFollowedProcedure, filter, 10},
		{"newest 50", connectv1.GraphServiceListFollowersProcedure, &skeinv1.ListFollowersRequest{UserId: "7"}, 90},
	} {
		call := loopCall(t, w.server, []byte(requestText(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(t, c.req)))))
		if got := testing.AllocsPerRun(500, func() { call(1) }); got > c.most {
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
	s.hosts = anyHost()
	f := newFastPath(s, newPipes(), s.httpServer(s, &s.conns))
	conn := &repeated{request: request}
	c := newFastConn(f, conn, &admission.Conn{})
	return func(times int) {
		conn.times, conn.said = times, 0
		if c.state.Store(fresh); c.converse() || conn.said < times*len("HTTP/1.1 200 OK") {
			t.Fatal("the loop gave up")
		}
	}
}

// The loop allocates nothing for a call, whatever is in its head.
func TestFrontAllocations(t *testing.T) {
	s := &Server{limits: Limits{}.withDefaults(), hosts: anyHost(), logger: slog.New(slog.DiscardHandler), methods: map[string]http.Handler{checkPath: echo{}}}
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
