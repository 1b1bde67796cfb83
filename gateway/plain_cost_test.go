//go:build !race

// The race detector makes pools forget on purpose, so nothing can be said of allocations there.

package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// What the frequent calls may allocate, net/http apart: each allocation costs some 0.1 µs of a
// call, and more when they are collected. Of a list it is one for each entry, its id, beside a few.
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
		call := loopCall(t, w.server, []byte(http1test.Request(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(t, c.req)))))
		const calls = 1000 // those of the connection are spread over the calls
		call(calls)
		if got := testing.AllocsPerRun(1, func() { call(calls) }) / calls; got > c.most {
			t.Errorf("%s: %v allocations, at most %v", c.name, got, c.most)
		} else {
			t.Logf("%s: %v allocations", c.name, got)
		}
	}
}

// repeatedRequest is a connection on which one request comes again and again, left times.
type repeatedRequest struct {
	net.Conn
	request []byte
	left    int
	// answered is the number of bytes that were written to it.
	answered int
	closed   chan struct{}
}

func (r *repeatedRequest) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	return copy(p, r.request), nil
}

func (r *repeatedRequest) Write(p []byte) (int, error) {
	r.answered += len(p)
	return len(p), nil
}

func (r *repeatedRequest) Close() error {
	close(r.closed)
	return nil
}

func (*repeatedRequest) SetReadDeadline(time.Time) error  { return nil }
func (*repeatedRequest) SetWriteDeadline(time.Time) error { return nil }
func (*repeatedRequest) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// loopCall returns a function that puts a request to the loop so many times, on one connection.
func loopCall(t testing.TB, s *Server, request []byte) func(times int) {
	t.Helper()
	s.hosts = anyHost()
	l := http1test.NewPipes()
	loop := s.clientEndpoint().loop(l, s.httpServer(s, &s.conns))
	served := make(chan error, 1)
	go func() { served <- loop.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(loop.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return func(times int) {
		t.Helper()
		passed := s.conns.HandedOver.Load()
		conn := &repeatedRequest{request: request, left: times, closed: make(chan struct{})}
		l.Offer(conn)
		<-conn.closed
		if conn.answered < times*len("HTTP/1.1 200 OK") || s.conns.HandedOver.Load() != passed {
			t.Fatal("the loop gave up")
		}
	}
}

// BenchmarkLoop is a call in the loop, without the system calls.
func BenchmarkLoop(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		call := loopCall(b, w.server, []byte(http1test.Request(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(b, c.req)))))
		if proto.Size(c.req) > 3<<10 {
			continue // in more than one part
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			call(b.N)
		})
	}
}
