package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// echo is a method that answers what it is asked.
type echo struct{}

func (echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/proto")
	_, _ = io.Copy(w, r.Body)
}

func (echo) admitBeforeBody(identity) bool { return true }

func (echo) answerPlain(_ context.Context, _ identity, body, dst []byte) ([]byte, int64, error) {
	return append(dst, body...), 3, nil
}

// waiting is a method that answers when it is let.
type waiting struct {
	echo
	begun chan struct{}
	end   chan struct{}
}

var _ plainMethod = waiting{}

func (w waiting) answerPlain(ctx context.Context, caller identity, body, dst []byte) ([]byte, int64, error) {
	w.begun <- struct{}{}
	select {
	case <-w.end:
		return w.echo.answerPlain(ctx, caller, body, dst)
	case <-ctx.Done():
		return nil, -1, ctx.Err()
	}
}

// anyHost lets any host be named.
func anyHost() access.Hosts {
	h, err := access.NewHosts([]string{"*"})
	if err != nil {
		panic(err)
	}
	return h
}

// crowd is a server in memory with few connections.
type crowd struct {
	*Server
	t *testing.T
	l *http1test.Pipes
}

func newCrowd(t *testing.T, connections int, method http.Handler) *crowd {
	t.Helper()
	s := &Server{
		limits: Limits{Connections: connections, ShedAfter: -1}.withDefaults(), logger: slog.New(slog.DiscardHandler),
		methods: map[string]http.Handler{http1test.MethodPath: method}, pages: http.NotFoundHandler(), hosts: anyHost(), errorWriter: connect.NewErrorWriter(),
	}
	s.budgets = admission.NewBudgets(s.limits.admissionLimits())
	s.serverCtx, s.cancelServer = context.WithCancel(context.Background())
	c := &crowd{Server: s, t: t, l: http1test.NewPipes()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, c.l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// send sends a part of something, and lets the server take it.
func (c *crowd) send(conn net.Conn, text string) {
	go func() { _, _ = io.WriteString(conn, text) }()
	synctest.Wait()
}

// call makes a call and reads the answer.
func (c *crowd) call(conn net.Conn) error {
	go func() { _, _ = io.WriteString(conn, http1test.Request(http1test.MethodPath, "", "abc")) }()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// heldConnections are ways to hold a connection without a call that is worked on.
func heldConnections() map[string]string {
	request := http1test.Request(http1test.MethodPath, "", "abc")
	posted := "POST " + http1test.MethodPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	return map[string]string{
		"nothing is sent":                   "",
		"half a head":                       request[:70],
		"half a body":                       request[:len(request)-1],
		"an answer that is not taken":       request,
		"half a GET":                        http1test.LastRequest[:20],
		"half a body for net/http":          posted + "{",
		"an answer of net/http not taken":   posted + `{"a":"b"}`,
		"GET /healthz, then nothing":        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a preface of HTTP/2":          preface[:10],
		"a preface of HTTP/2, then nothing": preface,
		"HTTP/2, settings, then nothing":    preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	}
}

// Connections that many addresses hold in any way never keep other clients out.
func TestHeldConnectionsKeepNobodyOut(t *testing.T) {
	for name, sent := range heldConnections() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 8, echo{})
				for i := range 20 {
					held := c.l.DialFrom(fmt.Sprint("10.0.0.", i))
					defer held.Close()
					c.send(held, sent)
					if name == "GET /healthz, then nothing" {
						res, err := http.ReadResponse(bufio.NewReader(held), nil)
						if err != nil {
							t.Fatal(err)
						}
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
						synctest.Wait()
					}
				}
				if n := c.conns.Count(); n != 8 {
					t.Errorf("%d connections are open", n)
				}
				begun := time.Now()
				honest := c.l.DialFrom("10.0.1.1")
				defer honest.Close()
				if err := c.call(honest); err != nil || time.Since(begun) > 0 {
					t.Errorf("answered with %v after %v", err, time.Since(begun))
				}
				if out, un := c.conns.Evicted.Load(), c.conns.Refused.Load(); out != 13 || un != 0 {
					t.Errorf("%d were closed, %d refused", out, un)
				}
			})
		})
	}
}

// One address has at most half of all connections, however many it opens. A further connection
// replaces one of its own, and those of other addresses stay. An IPv6 address counts as its
// network.
func TestOneAddressHasHalfOfTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 8, echo{})
		honest := c.l.DialFrom("10.0.1.1")
		defer honest.Close()
		if err := c.call(honest); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			<-time.After(time.Millisecond) // of synctest: the honest one has been quiet for longest
			held := c.l.DialFrom(fmt.Sprint("2001:db8::", i))
			defer held.Close()
			synctest.Wait()
		}
		if n, out := c.conns.Count(), c.conns.Evicted.Load(); n != 5 || out != 16 {
			t.Errorf("%d connections are open, %d were closed", n, out)
		}
		if err := c.call(honest); err != nil {
			t.Error(err)
		}
	})
}

// TestConnectionWithoutCallsForLongestIsClosed: the one that made no call for the longest time
// makes room.
func TestConnectionWithoutCallsForLongestIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 4, echo{})
		var conns []net.Conn
		for i := range 4 {
			conns = append(conns, c.l.DialFrom(fmt.Sprint("10.0.0.", i)))
			defer conns[i].Close()
			<-time.After(time.Millisecond)
		}
		if err := c.call(conns[0]); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
		fifth := c.l.DialFrom("10.0.0.5")
		defer fifth.Close()
		synctest.Wait()
		for i, conn := range append(conns, fifth) {
			if err := c.call(conn); (err != nil) != (i == 1) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
	})
}

// A connection with a call in work is not closed for a new one. The new one is refused instead.
func TestBusyConnectionsAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		method := waiting{begun: make(chan struct{}, 10), end: make(chan struct{})}
		c := newCrowd(t, 2, method)
		answered := make(chan error, 2)
		for i := range 2 {
			conn := c.l.DialFrom(fmt.Sprint("10.0.0.", i))
			defer conn.Close()
			go func() { answered <- c.call(conn) }()
			<-method.begun
		}
		third := c.l.DialFrom("10.0.0.3")
		if err := c.call(third); err == nil || c.conns.Refused.Load() != 1 {
			t.Errorf("the third is answered with %v, %d were refused", err, c.conns.Refused.Load())
		}
		close(method.end)
		for range 2 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait() // the two are quiet
		fourth := c.l.DialFrom("10.0.0.4")
		defer fourth.Close()
		synctest.Wait()
		if err := c.call(fourth); err != nil {
			t.Error(err)
		}
	})
}

// The same is true for connections of net/http, with HTTP/1.1 and HTTP/2.
func TestBusyConnectionsOfNetHTTPAreNotClosed(t *testing.T) {
	for _, way := range []string{"HTTP/1.1", "HTTP/2"} {
		w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.Connections, o.Limits.AtLeastWait = 1, time.Hour })
		at := w.publish(follow("ann", "bob"))
		w.http.CloseIdleConnections()
		one := &http.Transport{Protocols: new(http.Protocols)}
		one.Protocols.SetHTTP1(way == "HTTP/1.1")
		one.Protocols.SetUnencryptedHTTP2(way == "HTTP/2")
		defer one.CloseIdleConnections()
		w.http = &http.Client{Transport: one}
		w.connect(connect.WithProtoJSON())
		answered := make(chan error, 1)
		go func() {
			_, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
			answered <- err
		}()
		w.awaitInFlight(1)
		if answer := http1test.ExchangeTCP(t, w.url, http1test.LastRequest); answer != "" {
			t.Errorf("%s: a connection was taken for which there is no room: %s", way, answer)
		}
		w.fold()
		if err := <-answered; err != nil {
			t.Error(way, err)
		}
		if answer := http1test.ExchangeTCP(t, w.url, http1test.LastRequest); answer == "" {
			t.Errorf("%s: a quiet connection keeps others out", way)
		}
	}
}
