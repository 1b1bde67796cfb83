package http1

import (
	"crypto/tls"
	"net"
	"sync"
)

// handoffListener is the listener from which net/http accepts the connections that leave the loop.
type handoffListener struct {
	addr  net.Addr
	conns chan passedConn
	// accepted belongs to the connection that Accept returned last. Only Accept uses it.
	accepted chan struct{}
	closed   chan struct{}
	once     sync.Once
}

// passedConn is a connection on its way to net/http. accepted is closed once net/http has
// registered it.
type passedConn struct {
	conn     net.Conn
	accepted chan struct{}
}

func newHandoffListener(addr net.Addr) *handoffListener {
	return &handoffListener{addr: addr, conns: make(chan passedConn), closed: make(chan struct{})}
}

// Accept is part of [net.Listener]. Only one goroutine may call it.
func (h *handoffListener) Accept() (net.Conn, error) {
	// net/http calls Accept again only after it has registered the last connection, so that its
	// Shutdown waits for that connection.
	if h.accepted != nil {
		close(h.accepted)
		h.accepted = nil
	}
	select {
	case passed := <-h.conns:
		h.accepted = passed.accepted
		return passed.conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close is part of [net.Listener].
func (h *handoffListener) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is part of [net.Listener].
func (h *handoffListener) Addr() net.Addr { return h.addr }

// pass gives a connection to net/http, and waits until net/http has registered it. It returns false
// if net/http has stopped.
func (h *handoffListener) pass(conn net.Conn) bool {
	// The channel conns has no buffer: a connection in it would be lost if net/http stopped.
	passed := passedConn{conn: conn, accepted: make(chan struct{})}
	select {
	case h.conns <- passed:
	case <-h.closed:
		return false
	}
	select {
	case <-passed.accepted:
	case <-h.closed:
	}
	return true
}

// replayedConn is a connection of which a part was read. Reading it returns that part again, then
// the error that ended reading, if there is one, and then the rest of the connection.
type replayedConn struct {
	net.Conn
	unread  []byte
	err     error
	framing framing
}

// newReplayedConn returns a [replayedConn], with the methods of TLS if conn has TLS.
func newReplayedConn(conn net.Conn, unread []byte, err error) net.Conn {
	replayed := &replayedConn{Conn: conn, unread: unread, err: err}
	if tlsConn, ok := conn.(*tls.Conn); ok {
		return &replayedTLSConn{replayedConn: replayed, tls: tlsConn}
	}
	return replayed
}

// lineCounts returns the counts of framing headers, for [ConnContext].
func (c *replayedConn) lineCounts() *framing { return &c.framing }

// Read is part of [io.Reader].
func (c *replayedConn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	c.framing.countLines(p[:n])
	return n, err
}

func (c *replayedConn) read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	c.unread = nil // the buffer is no longer needed
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// CloseWrite is called by net/http, so that a client can read its answer before the connection
// closes.
func (c *replayedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// replayedTLSConn is a [replayedConn] over TLS.
type replayedTLSConn struct {
	*replayedConn
	tls *tls.Conn
}

// ConnectionState is called by net/http, which tells handlers of the TLS of their connection.
func (c *replayedTLSConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
