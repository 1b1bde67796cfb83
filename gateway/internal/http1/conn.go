package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// initialBuffer is the first size of the read buffer of a connection. It holds the head and
	// body of a small request.
	initialBuffer = 4 << 10
	// maxIdleBuffer is the largest read buffer that an idle connection keeps.
	maxIdleBuffer = 16 << 10
	// maxHeadBytes is the largest head that the loop reads.
	maxHeadBytes = 8 << 10
	// maxHeadReads is the number of reads in which a head may arrive. The head is parsed from its
	// start after each read, so one that comes in more parts would cost too much, and goes to
	// net/http.
	maxHeadReads = 16
	// freshPatience is how long a connection on which nothing has come yet stays open during a
	// shutdown. net/http has the same value.
	freshPatience = 5 * time.Second
)

// conn is a connection in the loop. All fields but state belong to the goroutine of run.
type conn struct {
	loop    *Loop
	netConn net.Conn
	session Session
	// tls is nil for a connection without TLS.
	tls *tls.ConnectionState
	// ctx is the parent of the contexts of the calls. It ends with the connection, but not when a
	// client goes away during a call.
	ctx    context.Context //nolint:containedctx // it belongs to the connection, as in net/http
	cancel context.CancelFunc
	state  atomic.Int32

	// buf[start:end] are the bytes that were read and not answered yet.
	buf        []byte
	start, end int
	// readErr is the error that ended reading.
	readErr error
	// head is the head of the current request. Its slices are parts of buf.
	head Head
	// hasAnswered is set once a request of the connection was answered.
	hasAnswered bool
	// answerHead is the buffer in which heads of answers are made.
	answerHead []byte

	// readDeadline and writeDeadline are those that were set last.
	readDeadline, writeDeadline time.Time
}

// The states of a connection. A shutdown may close a connection that is stateIdle, and moves it to
// stateClosed before. The goroutine of the connection makes all other changes.
const (
	// stateNew is a connection on which nothing has come yet.
	stateNew int32 = iota
	// stateIdle is a connection that waits for its next request.
	stateIdle
	// stateBusy is a connection with a request, or a part of one.
	stateBusy
	// stateClosed is a connection that a shutdown has closed.
	stateClosed
)

func newConn(l *Loop, netConn net.Conn, session Session) *conn {
	c := &conn{
		loop: l, netConn: netConn, session: session, buf: make([]byte, initialBuffer), answerHead: make([]byte, 0, headSpace),
	}
	c.ctx, c.cancel = context.WithCancel(l.ctx)
	// The time for the first head, and for the TLS handshake before it, begins here, as in
	// net/http.
	c.setReadDeadline(time.Now().Add(l.NetHTTP.ReadHeaderTimeout), 0)
	return c
}

// closeIfIdle closes the connection if it has no request. A new connection gets [freshPatience]
// instead, because its client may have sent a request that has not arrived. Any goroutine may call
// it.
func (c *conn) closeIfIdle() {
	if c.state.CompareAndSwap(stateIdle, stateClosed) {
		c.netConn.Close()
	} else if c.state.Load() == stateNew {
		_ = c.netConn.SetReadDeadline(time.Now().Add(freshPatience))
	}
}

// run serves the connection until it ends or leaves the loop.
func (c *conn) run() {
	defer c.loop.removeConn(c)
	defer c.cancel()
	defer c.session.Release()
	if c.serve() {
		// The connection counts as one of the loop until net/http has accepted it, so that a
		// shutdown waits for it all the time.
		c.passToNetHTTP()
		return
	}
	c.netConn.Close()
	c.session.Close()
}

// serve answers the requests of the connection, one after the other. It returns true if net/http
// must continue, and false if the connection has ended.
func (c *conn) serve() (pass bool) {
	// A panic ends the connection: what was written of the answer is not known.
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		pass = false
		if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			c.loop.Logger.Error("a call panicked", "client", c.netConn.RemoteAddr().String(), "panic", p, "stack", string(debug.Stack()))
		}
	}()

	if !c.handshake() {
		return true
	}
	for {
		// The next request may have arrived together with the last one.
		if c.start == c.end && !c.awaitRequest() {
			return false
		}
		if !c.readRequest() {
			return !c.rejectHTTP2Preface()
		}
		c.hasAnswered = true
		if !c.answerRequest() {
			return false
		}
	}
}

// handshake does the handshake of TLS, if the connection has TLS. It returns false if net/http must
// continue: for a client that speaks HTTP/2, and for a handshake that failed, which net/http logs
// and answers.
func (c *conn) handshake() bool {
	tlsConn, ok := c.netConn.(*tls.Conn)
	if !ok {
		return true
	}
	// The handshake also writes, and a client that reads nothing must not hold it up.
	_ = tlsConn.SetWriteDeadline(c.readDeadline)
	if tlsConn.HandshakeContext(c.ctx) != nil {
		return false
	}
	state := tlsConn.ConnectionState()
	c.tls = &state
	return state.NegotiatedProtocol == "" || state.NegotiatedProtocol == "http/1.1"
}

// rejectHTTP2Preface rejects a request that begins like the preface of HTTP/2, if it follows a call
// that the loop has answered. net/http would take it for the beginning of a connection of HTTP/2,
// because it has not seen the call. A proxy that shares the connection among clients would then
// give them the answers of others. It returns true if it has rejected the request.
func (c *conn) rejectHTTP2Preface() bool {
	const preface = "PRI"
	n := min(c.end-c.start, len(preface))
	if !c.hasAnswered || n == 0 || string(c.buf[c.start:c.start+n]) != preface[:n] {
		return false
	}
	c.renewDeadlines(time.Now())
	_, _ = io.WriteString(c.netConn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Connection: close\r\n\r\n400 Bad Request")
	return true
}

// passToNetHTTP gives the connection to net/http, with the bytes that were read and not answered in
// front.
func (c *conn) passToNetHTTP() {
	_ = c.netConn.SetDeadline(time.Time{}) // net/http sets deadlines of its own
	passed := c.netConn
	// net/http needs the *tls.Conn itself for HTTP/2. Nothing was read of that.
	if c.start < c.end || c.readErr != nil {
		passed = newReplayedConn(c.netConn, c.buf[c.start:c.end], c.readErr)
	}

	c.session.PassToNetHTTP(passed)
	if !c.loop.handoff.pass(passed) {
		passed.Close()
		c.session.Close()
	}
}

// awaitRequest waits for the first bytes of a request. It returns false if the connection has
// ended. The buffer must be empty.
func (c *conn) awaitRequest() bool {
	c.start = 0
	c.end = 0
	if len(c.buf) > maxIdleBuffer {
		c.buf = make([]byte, initialBuffer)
	}

	// A shutdown closes each connection that it finds idle. One that becomes idle after that finds
	// isClosing set.
	before := c.state.Load()
	if before == stateBusy {
		before = stateIdle
		c.state.Store(stateIdle)
		if c.loop.isClosing.Load() {
			return false
		}
	}

	n, err := c.netConn.Read(c.buf)
	c.end = n
	c.readErr = err
	return c.state.CompareAndSwap(before, stateBusy) && (n > 0 || err == nil)
}

// readRequest reads the current request to its end. It returns false if the loop cannot or must not
// answer the request.
func (c *conn) readRequest() bool {
	began, ok := c.readHead()
	isTooLarge := c.head.BodyBytes > c.loop.BodyBytes
	if !ok || isTooLarge {
		return false
	}
	// A call that is refused must not send its body first.
	if !c.session.Admit(&c.head, c.tls) {
		return false
	}

	whole := c.head.bytes + c.head.BodyBytes
	for c.end-c.start < whole {
		if began.IsZero() {
			began = time.Now()
		}
		c.setReadDeadline(began.Add(c.loop.NetHTTP.ReadTimeout), 0)
		if !c.readMore(whole) {
			return false
		}
		// readMore may have moved the bytes to which the slices of the head point.
		c.head.parse(c.buf[c.start:c.end])
	}
	return true
}

// readHead reads the head of the current request. began is when the first part of a head that came
// in parts had arrived; otherwise it is zero. ok is false if the head is not plain, too long, or
// does not come.
func (c *conn) readHead() (began time.Time, ok bool) {
	maxBytes := min(maxHeadBytes, c.loop.NetHTTP.MaxHeaderBytes)
	for reads := 0; ; reads++ {
		v := c.head.parse(c.buf[c.start:c.end])
		if v != incompleteHead {
			return began, v == plainHead && c.head.bytes <= maxBytes
		}
		if began.IsZero() {
			began = time.Now()
			c.setReadDeadline(began.Add(c.loop.NetHTTP.ReadHeaderTimeout), 0)
		}
		length := c.end - c.start
		if length >= maxBytes || reads == maxHeadReads || !c.readMore(length+1) {
			return began, false
		}
	}
}

// readMore reads more of a request that has at least so many bytes, which must be more than have
// arrived. It returns false if nothing came.
func (c *conn) readMore(atLeast int) bool {
	if c.readErr != nil {
		return false
	}

	// Make room, by a larger buffer or by moving the bytes to the beginning of this one.
	if len(c.buf) < atLeast {
		grown := make([]byte, max(atLeast, 2*len(c.buf)))
		c.end = copy(grown, c.buf[c.start:c.end])
		c.start = 0
		c.buf = grown
	} else if c.start > 0 && len(c.buf) < c.start+atLeast {
		c.end = copy(c.buf, c.buf[c.start:c.end])
		c.start = 0
	}

	// An error that comes with bytes counts once those bytes are used.
	n, err := c.netConn.Read(c.buf[c.end:])
	c.end += n
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	c.readErr = err
	return n > 0
}

// setReadDeadline sets the deadline for reading. It leaves a deadline that is earlier by no more
// than the slack.
func (c *conn) setReadDeadline(deadline time.Time, slack time.Duration) {
	// A deadline that is too late is always replaced: the time for a request may be shorter than
	// the one for which an idle connection may wait.
	later := deadline.Sub(c.readDeadline)
	if later > slack || later < 0 {
		c.readDeadline = deadline
		_ = c.netConn.SetReadDeadline(deadline)
	}
}

// renewDeadlines sets the deadlines for the next request, and for reading the answer to this one.
// They may be early by a second, or an eighth for short timeouts: setting them after each call
// would cost more than the call's parsing.
func (c *conn) renewDeadlines(now time.Time) {
	idle := c.loop.NetHTTP.IdleTimeout
	write := c.loop.WriteTimeout
	c.setReadDeadline(now.Add(idle), min(time.Second, idle/8))
	if deadline := now.Add(write); deadline.Sub(c.writeDeadline) > min(time.Second, write/8) {
		c.writeDeadline = deadline
		_ = c.netConn.SetWriteDeadline(deadline)
	}
}
