//go:build !race

// The race detector makes pools forget on purpose, so nothing can be said of allocations there.

package http1

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
)

// repeatedRequest is a connection on which one request comes again and again, left times.
type repeatedRequest struct {
	net.Conn
	request []byte
	left    int
}

func (r *repeatedRequest) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	return copy(p, r.request), nil
}

func (*repeatedRequest) Write(p []byte) (int, error)      { return len(p), nil }
func (*repeatedRequest) SetReadDeadline(time.Time) error  { return nil }
func (*repeatedRequest) SetWriteDeadline(time.Time) error { return nil }

// TestLoopAllocatesNothing demands that the loop allocates nothing for a call, whatever its head
// contains.
func TestLoopAllocatesNothing(t *testing.T) {
	s := &echoServer{}
	conn := &repeatedRequest{request: []byte(http1test.Request(http1test.MethodPath, "Authorization: Bearer "+strings.Repeat("x", 500)+
		"\r\nUser-Agent: connect-go/1.21.1 (go1.26)\r\nAccept-Encoding: identity\r\nConnect-Protocol-Version: 1\r\n", "abc"))}
	c := newConn(New(http1test.NewPipes(), s.options()), conn, echoSession{s})
	call := func(times int) {
		conn.left = times
		c.state.Store(stateNew)
		if c.serve() || conn.left != 0 {
			t.Fatal("the loop gave up")
		}
	}

	call(1)
	if got := testing.AllocsPerRun(100, func() { call(1000) }); got > 3 {
		t.Errorf("got %v allocations in 1000 calls, expected at most 3", got)
	}
}
