//go:build !race

// The race detector makes sync.Pool drop items at random, so the number of allocations says nothing
// there.

package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestPlainAllocations limits what the frequent calls may allocate, without net/http. Each
// allocation costs about 0.1 µs of a call, and more when it is collected. A list needs one for the
// id of each entry, and a few others.
func TestPlainAllocations(t *testing.T) {
	w := newWorld(t)

	// The user 7 and fifty others follow each other. The filter asks about half of them.
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
		t.Run(c.name, func(t *testing.T) {
			call := loopCall(t, w.server, []byte(http1test.Request(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(t, c.req)))))

			// So many calls share the allocations that the connection itself needs.
			const calls = 1000
			call(calls) // Fills the pools.
			got := testing.AllocsPerRun(1, func() { call(calls) }) / calls
			t.Logf("%v allocations per call", got)
			if got > c.most {
				t.Errorf("got %v allocations per call, want at most %v", got, c.most)
			}
		})
	}
}

// repeatedRequest is a connection on which the same request arrives several times, and then the
// end.
type repeatedRequest struct {
	net.Conn
	request []byte
	// left is how many times the request still arrives.
	left int
	// answered is the number of bytes that were written to the connection.
	answered int
	// closed is closed by the first call of Close.
	closed    chan struct{}
	closeOnce sync.Once
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

// Close may be called twice: a loop that ends closes the connections that it has not yet removed.
func (r *repeatedRequest) Close() error {
	r.closeOnce.Do(func() { close(r.closed) })
	return nil
}

func (*repeatedRequest) SetReadDeadline(time.Time) error  { return nil }
func (*repeatedRequest) SetWriteDeadline(time.Time) error { return nil }
func (*repeatedRequest) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// loopCall returns a function that sends a request to the loop several times, on one connection.
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
		handedOver := s.conns.HandedOver.Load()
		conn := &repeatedRequest{request: request, left: times, closed: make(chan struct{})}
		l.Offer(conn)
		<-conn.closed

		if least := times * len("HTTP/1.1 200 OK"); conn.answered < least {
			t.Fatalf("the loop answered %d bytes to %d calls, want at least %d", conn.answered, times, least)
		}
		if n := s.conns.HandedOver.Load() - handedOver; n != 0 {
			t.Fatalf("the loop passed %d connections to net/http, want none", n)
		}
	}
}

// BenchmarkLoop measures a call in the loop, without the system calls.
func BenchmarkLoop(b *testing.B) {
	w := benchWorld(b)
	for _, c := range benchRequests() {
		// A larger request would not fit into one Read of repeatedRequest.
		if proto.Size(c.req) > 3<<10 {
			continue
		}

		call := loopCall(b, w.server, []byte(http1test.Request(c.procedure, "Connect-Protocol-Version: 1\r\n", string(marshal(b, c.req)))))
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			call(b.N)
		})
	}
}
