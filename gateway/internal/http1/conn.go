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
	// fastBuffer is the initial size of the read buffer of a connection. It holds the head and body of a small request.
	fastBuffer = 4 << 10
	// keptFastBuffer is the size up to which a buffer that has grown is kept for the next request.
	keptFastBuffer = 16 << 10
	// maxFastHead is the largest head that is read in the loop.
	maxFastHead = 8 << 10
	// maxParts is the number of reads in which a head may arrive. A head that arrives more slowly is left to net/http, so that it is not
	// parsed from its start again and again.
	maxParts = 16
	// freshPatience is how long a connection on which nothing has come may stay once the server stops, as with net/http.
	freshPatience = 5 * time.Second
)

// fastConn is a connection in the loop. All of it but its state belongs to one goroutine.
type fastConn struct {
	f       *Loop
	conn    net.Conn
	session Session
	// ctx is that of its calls. It ends with the connection, not when the client goes away during a call: to hear of that
	// net/http reads in the background, which is much of its cost. Waits in a call have their own bounds.
	ctx context.Context //nolint:containedctx // of the connection, as net/http has one
	end context.CancelFunc
	// state is a connState.
	state atomic.Int32
	// buf[from:to] was read and is not answered. err ended reading.
	buf      []byte
	from, to int
	err      error
	// readBy and writeBy are the deadlines that the connection has.
	readBy, writeBy time.Time
	head            Head
	// answered is set once a request was answered on the connection.
	answered bool
	// answerHead is where heads of answers are made.
	answerHead []byte
	// tls is nil for a connection without TLS.
	tls *tls.ConnectionState
}

type connState = int32

const (
	// fresh is a connection on which nothing has come yet.
	fresh connState = iota
	// quiet is one that waits for the next request.
	quiet
	// busy is one with a request, or a part of one.
	busy
	// retired is one that is closed by who stops the server.
	retired
)

func newFastConn(f *Loop, conn net.Conn, session Session) *fastConn {
	c := &fastConn{f: f, conn: conn, session: session, buf: make([]byte, fastBuffer), answerHead: make([]byte, 0, answerRoom)}
	c.ctx, c.end = context.WithCancel(f.life)
	// As net/http does, the time for the first head begins here.
	c.setRead(time.Now().Add(f.NetHTTP.ReadHeaderTimeout), 0)
	return c
}

// retire ends a connection without a call, and reports whether it was one. One that has just been opened may have a request under
// way to us.
func (c *fastConn) retire() bool {
	switch {
	case c.state.CompareAndSwap(quiet, retired):
		c.conn.Close()
		return true
	case c.state.Load() == fresh:
		_ = c.conn.SetReadDeadline(time.Now().Add(freshPatience))
	}
	return false
}

// serve answers the requests of the connection, one after the other, until it ends or has to be handed over.
func (c *fastConn) serve() {
	defer c.f.leave(c)
	defer c.end()
	defer c.session.Release()
	if c.converse() {
		c.handOver()
		return
	}
	c.conn.Close()
	c.session.Close()
}

// converse reports whether the connection is to be handed over. If not, it has come to its end.
func (c *fastConn) converse() (elsewhere bool) {
	defer func() {
		if p := recover(); p != nil {
			elsewhere = false
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				c.f.Logger.Error("a call panicked", "client", c.conn.RemoteAddr().String(), "panic", p, "stack", string(debug.Stack()))
			}
		}
	}()
	if !c.secured() {
		return true
	}
	for {
		if c.from == c.to && !c.awaitRequest() {
			return false
		}
		if !c.request() {
			return !c.refused()
		}
		c.answered = true
		if !c.answer() {
			return false
		}
	}
}

// secured does the handshake of TLS, and reports whether the loop may continue: who speaks HTTP/2, or failed, is one for net/http.
func (c *fastConn) secured() bool {
	conn, ok := c.conn.(*tls.Conn)
	if !ok {
		return true
	}
	_ = conn.SetWriteDeadline(c.readBy)
	if conn.HandshakeContext(c.ctx) != nil {
		return false
	}
	state := conn.ConnectionState()
	c.tls = &state
	return state.NegotiatedProtocol == "" || state.NegotiatedProtocol == "http/1.1"
}

// refused refuses what net/http would understand otherwise at the beginning of a connection, as it will see it, than behind
// a request that was answered here: the preface of HTTP/2.
func (c *fastConn) refused() bool {
	const preface = "PRI"
	n := min(c.to-c.from, len(preface))
	if !c.answered || n == 0 || string(c.buf[c.from:c.from+n]) != preface[:n] {
		return false
	}
	c.renew(time.Now())
	_, _ = io.WriteString(c.conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Connection: close\r\n\r\n400 Bad Request")
	return true
}

// handOver gives the connection to net/http, with what was read of it.
func (c *fastConn) handOver() {
	_ = c.conn.SetDeadline(time.Time{})
	conn := c.conn
	if c.from < c.to || c.err != nil {
		again := &readAgain{Conn: conn, first: c.buf[c.from:c.to], err: c.err}
		if t, ok := conn.(*tls.Conn); ok {
			conn = &readAgainTLS{readAgain: again, tls: t}
		} else {
			conn = again
		}
	}
	c.session.PassToNetHTTP(conn)
	if !c.f.handoff.give(conn) {
		conn.Close()
		c.session.Close()
	}
}

// awaitRequest waits for the first bytes of a request, and reports whether they came. The buffer is empty.
func (c *fastConn) awaitRequest() bool {
	c.from, c.to = 0, 0
	if len(c.buf) > keptFastBuffer {
		c.buf = make([]byte, fastBuffer)
	}
	was := c.state.Load()
	if was == busy {
		was = quiet
		c.state.Store(quiet)
		if c.f.closing.Load() {
			return false
		}
	}
	n, err := c.conn.Read(c.buf)
	c.to, c.err = n, err
	return c.state.CompareAndSwap(was, busy) && (n > 0 || err == nil)
}

// request reads a request to its end, and reports whether the loop is to answer it.
func (c *fastConn) request() bool {
	begun := time.Time{}
	var v verdict
	for parts := 0; ; parts++ {
		if v = c.head.parse(c.buf[c.from:c.to]); v != halfHead {
			break
		}
		if begun.IsZero() {
			begun = time.Now()
			c.setRead(begun.Add(c.f.NetHTTP.ReadHeaderTimeout), 0)
		}
		if c.to-c.from >= c.maxHead() || parts == maxParts || !c.more(c.to-c.from+1) {
			return false
		}
	}
	if v != plainHead || c.head.bytes > c.maxHead() || c.head.BodyBytes > c.f.BodyBytes {
		return false
	}
	if !c.session.Admit(&c.head, c.tls) {
		return false
	}
	whole := c.head.bytes + c.head.BodyBytes
	for c.to-c.from < whole {
		if begun.IsZero() {
			begun = time.Now()
		}
		c.setRead(begun.Add(c.f.NetHTTP.ReadTimeout), 0)
		if !c.more(whole) {
			return false
		}
		// Reading may have moved the buffer, and head has slices of it.
		c.head.parse(c.buf[c.from:c.to])
	}
	return true
}

func (c *fastConn) maxHead() int { return min(maxFastHead, c.f.NetHTTP.MaxHeaderBytes) }

// more reads more of a request that has at least so many bytes, which are more than have come. It reports whether that went well.
func (c *fastConn) more(whole int) bool {
	if c.err != nil {
		return false
	}
	if len(c.buf) < whole {
		grown := make([]byte, max(whole, 2*len(c.buf)))
		copy(grown, c.buf[c.from:c.to])
		c.buf, c.from, c.to = grown, 0, c.to-c.from
	} else if c.from > 0 && len(c.buf) < c.from+whole {
		c.from, c.to = 0, copy(c.buf, c.buf[c.from:c.to])
	}
	n, err := c.conn.Read(c.buf[c.to:])
	c.to += n
	if n > 0 {
		// It comes again, after what has come.
		c.err = err
		return true
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	c.err = err
	return false
}

// setRead sets the deadline for reading, if the one that there is differs by more than the slack.
func (c *fastConn) setRead(by time.Time, slack time.Duration) {
	if d := by.Sub(c.readBy); d > slack || d < 0 {
		c.readBy = by
		_ = c.conn.SetReadDeadline(by)
	}
}

// renew sets the deadline for the next request, and that for taking the answer to the last one. They are early by up to the
// slack, for what it would cost to move them after every call.
func (c *fastConn) renew(now time.Time) {
	idle, write := c.f.NetHTTP.IdleTimeout, c.f.WriteTimeout
	c.setRead(now.Add(idle), min(time.Second, idle/8))
	if by := now.Add(write); by.Sub(c.writeBy) > min(time.Second, write/8) {
		c.writeBy = by
		_ = c.conn.SetWriteDeadline(by)
	}
}
