package http1

import (
	"crypto/tls"
	"net"
	"sync"
)

// handoff is a listener whose connections are those that the loop does not want.
type handoff struct {
	addr  net.Addr
	conns chan handed
	// taken is of the connection that was accepted last.
	taken chan struct{}
	done  chan struct{}
	once  sync.Once
}

type handed struct {
	conn  net.Conn
	taken chan struct{}
}

func newHandoff(addr net.Addr) *handoff {
	return &handoff{addr: addr, conns: make(chan handed), done: make(chan struct{})}
}

// Accept is part of net.Listener. One goroutine calls it. When it calls again, it has put the last connection where a shutdown
// finds it.
func (h *handoff) Accept() (net.Conn, error) {
	if h.taken != nil {
		close(h.taken)
		h.taken = nil
	}
	select {
	case o := <-h.conns:
		h.taken = o.taken
		return o.conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr is part of net.Listener.
func (h *handoff) Addr() net.Addr { return h.addr }

// give hands a connection over, and reports whether it was accepted.
func (h *handoff) give(conn net.Conn) bool {
	o := handed{conn: conn, taken: make(chan struct{})}
	select {
	case h.conns <- o:
	case <-h.done:
		return false
	}
	select {
	case <-o.taken:
	case <-h.done:
	}
	return true
}

// readAgain is a connection of which a part was read. That is read again, then the error that ended it, if one did.
type readAgain struct {
	net.Conn
	first []byte
	err   error
	lines framing
}

func (c *readAgain) framing() *framing { return &c.lines }

// Read is part of [io.Reader].
func (c *readAgain) Read(p []byte) (int, error) {
	n, err := c.read(p)
	c.lines.read(p[:n])
	return n, err
}

func (c *readAgain) read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	c.first = nil
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// CloseWrite is what net/http looks for to let a client read its answer before the connection closes.
func (c *readAgain) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// readAgainTLS also tells net/http of the TLS below it.
type readAgainTLS struct {
	*readAgain
	tls *tls.Conn
}

// ConnectionState makes the TLS of the connection known to handlers.
func (c *readAgainTLS) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
