// Package http1test has a listener in memory, and requests and answers as bytes, for tests of
// package http1 and of the server behind it.
package http1test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for an answer that must come. It comes in a fraction of that.
const Patience = 5 * time.Minute

// Pipes is a listener in memory. Bytes that are written to its connections arrive in the parts in
// which they were written.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

// NewPipes returns a listener without connections.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Accept is part of [net.Listener], as are the next two.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close fails if it is called twice, as some listeners do.
func (p *Pipes) Close() error {
	close(p.done)
	return nil
}

// Addr returns no address.
func (*Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Offer has the server accept a connection.
func (p *Pipes) Offer(server net.Conn) { p.conns <- server }

// Dial connects, and returns the end of the client.
func (p *Pipes) Dial() net.Conn {
	client, _ := p.DialWatched()
	return client
}

// DialWatched also returns a channel that closes when the server closes the connection.
func (p *Pipes) DialWatched() (client net.Conn, closed <-chan struct{}) {
	client, server := net.Pipe()
	w := &watchedConn{Conn: server, closed: make(chan struct{})}
	p.conns <- w
	return client, w.closed
}

// DialFrom connects from an address.
func (p *Pipes) DialFrom(address string) net.Conn {
	client, server := net.Pipe()
	p.conns <- addressedConn{server, netip.MustParseAddr(address)}
	return client
}

type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close is part of [net.Conn].
func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

type addressedConn struct {
	net.Conn
	address netip.Addr
}

// RemoteAddr is part of [net.Conn].
func (c addressedConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.address, 1))
}

// LastRequest ends a connection: a client that reads its answer has read all answers before.
const LastRequest = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// Request returns a plain request with further lines in its head, each of which ends with CR LF.
func Request(path, lines, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n%sContent-Length: %d\r\n\r\n%s",
		path, lines, len(body), body)
}

// Exchange sends parts on a connection, and returns all that comes back until the server closes the
// connection.
func Exchange(t testing.TB, conn net.Conn, parts ...[]byte) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	answers := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		answers <- string(all)
	}()
	for _, part := range parts {
		if _, err := conn.Write(part); err != nil {
			break // the server has answered, and closed the connection
		}
	}
	return <-answers
}

// ExchangeTCP sends a request to the server at url, says that no more will come, and returns what
// is answered.
func ExchangeTCP(t testing.TB, url, request string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	answers := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		answers <- string(all)
	}()
	if _, err = io.WriteString(conn, request); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
	return <-answers
}

// ParseAnswers returns each answer as text, without what differs from call to call, or by who
// frames a body.
func ParseAnswers(text string) (answers []string) {
	r := bufio.NewReader(strings.NewReader(text))
	for {
		if _, err := r.Peek(1); err != nil {
			return answers
		}
		res, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			// The last frames of HTTP/2 depend on when the client left.
			return append(answers, err.Error()[:min(len(err.Error()), 50)])
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		date, derr := http.ParseTime(res.Header.Get("Date"))
		if derr == nil && time.Since(date).Abs() < time.Hour {
			res.Header.Set("Date", "now")
		}
		res.Header.Del("Content-Length")
		answers = append(answers, fmt.Sprint(res.Status, res.Proto, res.Header, res.Close, string(body), err))
	}
}
