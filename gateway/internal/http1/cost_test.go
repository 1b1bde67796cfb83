//go:build !race

// Under the race detector, sync.Pool drops values at random, so the number of allocations varies.

package http1

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
)

// repeatedRequest is a connection on which the same request arrives again and again.
type repeatedRequest struct {
	net.Conn
	request []byte
	// remaining is how many times the request will still arrive. Then the connection ends.
	remaining int
}

func (r *repeatedRequest) Read(p []byte) (int, error) {
	if r.remaining == 0 {
		return 0, io.EOF
	}
	r.remaining--
	return copy(p, r.request), nil
}

func (*repeatedRequest) Write(p []byte) (int, error)      { return len(p), nil }
func (*repeatedRequest) SetReadDeadline(time.Time) error  { return nil }
func (*repeatedRequest) SetWriteDeadline(time.Time) error { return nil }

// TestLoopAllocatesNothing checks that the loop allocates nothing for a call, whatever its head
// contains.
func TestLoopAllocatesNothing(t *testing.T) {
	s := &echoServer{}
	headers := "Authorization: Bearer " + strings.Repeat("x", 500) + "\r\n" +
		"User-Agent: connect-go/1.21.1 (go1.26)\r\nAccept-Encoding: identity\r\nConnect-Protocol-Version: 1\r\n"
	netConn := &repeatedRequest{request: []byte(http1test.Request(http1test.MethodPath, headers, "abc"))}
	c := newConn(New(http1test.NewPipes(), s.options()), netConn, echoSession{s})
	answerCalls := func(calls int) {
		netConn.remaining = calls
		c.state.Store(stateNew)
		if pass := c.serve(); pass || netConn.remaining != 0 {
			t.Fatalf("the loop passed the connection to net/http: %t, with %d of %d calls not answered; want all answered",
				pass, netConn.remaining, calls)
		}
	}

	// The first call allocates buffers, which the connection keeps. The limit for the others is not
	// 0, because some things are not made per call, such as the header Date once per second.
	answerCalls(1)
	if got := testing.AllocsPerRun(100, func() { answerCalls(1000) }); got > 3 {
		t.Errorf("allocations in 1000 calls: got %v, want at most 3", got)
	}
}
