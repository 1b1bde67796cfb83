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

// echoMethod is a method that answers with the body of the request.
type echoMethod struct{}

func (echoMethod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/proto")
	_, _ = io.Copy(w, r.Body)
}

func (echoMethod) admitBeforeBody(identity) bool { return true }

func (echoMethod) answerPlain(_ context.Context, _ identity, body, dst []byte) ([]byte, int64, error) {
	return append(dst, body...), 3, nil
}

// blockingMethod is an echoMethod that sends to begun when a call begins, and answers once end is
// closed.
type blockingMethod struct {
	echoMethod
	begun chan struct{}
	end   chan struct{}
}

var _ plainMethod = blockingMethod{}

func (m blockingMethod) answerPlain(ctx context.Context, caller identity, body, dst []byte) ([]byte, int64, error) {
	m.begun <- struct{}{}
	select {
	case <-m.end:
		return m.echoMethod.answerPlain(ctx, caller, body, dst)
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

// pipeServer is a server in memory that allows few connections. Clients of any address connect to
// it by pipes.
type pipeServer struct {
	*Server
	pipes *http1test.Pipes
}

func newPipeServer(t *testing.T, connections int, method http.Handler) *pipeServer {
	t.Helper()
	s := &Server{
		limits:      Limits{Connections: connections, ShedAfter: -1}.withDefaults(),
		logger:      slog.New(slog.DiscardHandler),
		methods:     map[string]http.Handler{http1test.MethodPath: method},
		pages:       http.NotFoundHandler(),
		hosts:       anyHost(),
		errorWriter: connect.NewErrorWriter(),
	}
	s.budgets = admission.NewBudgets(s.limits.admissionLimits())
	s.serverCtx, s.cancelServer = context.WithCancel(context.Background())

	pipes := http1test.NewPipes()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, pipes) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &pipeServer{Server: s, pipes: pipes}
}

// sendText sends text, and waits until the server has read what it will read of it.
func sendText(conn net.Conn, text string) {
	go func() { _, _ = io.WriteString(conn, text) }()
	synctest.Wait()
}

// readAnswer reads an HTTP answer to its end.
func readAnswer(conn net.Conn) error {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// callOverPipe makes a call and reads the answer.
func callOverPipe(conn net.Conn) error {
	go func() { _, _ = io.WriteString(conn, http1test.Request(http1test.MethodPath, "", "abc")) }()
	return readAnswer(conn)
}

// healthThenNothing is the one way to hold a connection in which the client reads an answer.
const healthThenNothing = "GET /healthz, then nothing"

// waysToHoldConnection returns what clients send who hold a connection without a call that the
// server works on.
func waysToHoldConnection() map[string]string {
	request := http1test.Request(http1test.MethodPath, "", "abc")
	headForNetHTTP := "POST " + http1test.MethodPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
	prefaceOfHTTP2 := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	emptySettings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	return map[string]string{
		"nothing is sent":                   "",
		"half a head":                       request[:70],
		"half a body":                       request[:len(request)-1],
		"an answer that is not taken":       request,
		"half a GET":                        http1test.LastRequest[:20],
		"half a body for net/http":          headForNetHTTP + "{",
		"an answer of net/http not taken":   headForNetHTTP + `{"a":"b"}`,
		healthThenNothing:                   "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a preface of HTTP/2":          prefaceOfHTTP2[:10],
		"a preface of HTTP/2, then nothing": prefaceOfHTTP2,
		"HTTP/2, settings, then nothing":    prefaceOfHTTP2 + emptySettings,
	}
}

// TestHeldConnectionsKeepNobodyOut checks that connections that many addresses hold in any way
// never keep other clients out.
func TestHeldConnectionsKeepNobodyOut(t *testing.T) {
	const limit, held = 8, 20
	for name, text := range waysToHoldConnection() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPipeServer(t, limit, echoMethod{})
				for i := range held {
					conn := s.pipes.DialFrom(fmt.Sprint("10.0.0.", i))
					defer conn.Close()
					sendText(conn, text)
					if name == healthThenNothing {
						if err := readAnswer(conn); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
				}
				if got := s.conns.Count(); got != limit {
					t.Errorf("got %d open connections, want %d", got, limit)
				}

				// Time in synctest only passes when everything waits, so an answer that comes
				// without waiting for anything takes no time at all.
				began := time.Now()
				honest := s.pipes.DialFrom("10.0.1.1")
				defer honest.Close()
				if err := callOverPipe(honest); err != nil {
					t.Errorf("call of another client: %v", err)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("the other client waited %v, want no time", waited)
				}

				if got, want := s.conns.Evicted.Load(), uint64(held+1-limit); got != want {
					t.Errorf("the server closed %d connections, want %d", got, want)
				}
				if got := s.conns.Refused.Load(); got != 0 {
					t.Errorf("the server refused %d connections, want none", got)
				}
			})
		})
	}
}

// TestOneAddressHasHalfOfTheConnections checks that one address has at most half of all
// connections, however many it opens. A further connection replaces one of its own, and those of
// other addresses stay. An IPv6 address counts as its network.
func TestOneAddressHasHalfOfTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t, 8, echoMethod{})
		honest := s.pipes.DialFrom("10.0.1.1")
		defer honest.Close()
		if err := callOverPipe(honest); err != nil {
			t.Fatal(err)
		}

		for i := range 20 {
			// After this millisecond, the honest connection is the one without a call for the
			// longest time.
			<-time.After(time.Millisecond)
			conn := s.pipes.DialFrom(fmt.Sprint("2001:db8::", i))
			defer conn.Close()
			synctest.Wait()
		}

		if got := s.conns.Count(); got != 5 {
			t.Errorf("got %d open connections, want 5: the honest one and half of 8", got)
		}
		if got := s.conns.Evicted.Load(); got != 16 {
			t.Errorf("the server closed %d connections, want 16 of 20", got)
		}
		if err := callOverPipe(honest); err != nil {
			t.Errorf("call over the honest connection: %v", err)
		}
	})
}

// TestConnectionWithoutCallsForLongestIsClosed checks that a new connection replaces the one that
// made no call for the longest time.
func TestConnectionWithoutCallsForLongestIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t, 4, echoMethod{})
		var conns []net.Conn
		for i := range 4 {
			conn := s.pipes.DialFrom(fmt.Sprint("10.0.0.", i))
			defer conn.Close()
			conns = append(conns, conn)
			<-time.After(time.Millisecond)
		}

		// Connection 0 makes a call, so connection 1 is the one to be closed for the fifth.
		if err := callOverPipe(conns[0]); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
		fifth := s.pipes.DialFrom("10.0.0.5")
		defer fifth.Close()
		synctest.Wait()

		for i, conn := range append(conns, fifth) {
			wantClosed := i == 1
			if err := callOverPipe(conn); (err != nil) != wantClosed {
				t.Errorf("call over connection %d: got the error %v, want one: %v", i, err, wantClosed)
			}
		}
	})
}

// TestBusyConnectionsAreNotClosed checks that a connection with a call that the server works on is
// not closed for a new one. The new one is refused instead.
func TestBusyConnectionsAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		method := blockingMethod{begun: make(chan struct{}, 10), end: make(chan struct{})}
		s := newPipeServer(t, 2, method)
		answered := make(chan error, 2)
		for i := range 2 {
			conn := s.pipes.DialFrom(fmt.Sprint("10.0.0.", i))
			defer conn.Close()
			go func() { answered <- callOverPipe(conn) }()
			<-method.begun
		}

		third := s.pipes.DialFrom("10.0.0.3")
		if err := callOverPipe(third); err == nil {
			t.Error("the third connection got an answer, want it to be refused")
		}
		if got := s.conns.Refused.Load(); got != 1 {
			t.Errorf("the server refused %d connections, want 1", got)
		}

		close(method.end)
		for range 2 {
			if err := <-answered; err != nil {
				t.Errorf("call over a busy connection: %v", err)
			}
		}

		// Now that the two are idle, one of them is closed for a new one.
		synctest.Wait()
		fourth := s.pipes.DialFrom("10.0.0.4")
		defer fourth.Close()
		synctest.Wait()
		if err := callOverPipe(fourth); err != nil {
			t.Errorf("call over the fourth connection: %v", err)
		}
	})
}

// TestBusyConnectionsOfNetHTTPAreNotClosed checks the same for connections of net/http, with
// HTTP/1.1 and HTTP/2.
func TestBusyConnectionsOfNetHTTPAreNotClosed(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, asleep, func(o *worldOptions) {
				o.Limits.Connections = 1
				o.Limits.AtLeastWait = time.Hour
			})
			at := w.publish(follow("ann", "bob"))
			w.http.CloseIdleConnections()

			// Clients that speak JSON are answered by net/http.
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(version == "HTTP/1.1")
			transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
			defer transport.CloseIdleConnections()
			w.http = &http.Client{Transport: transport}
			w.connect(connect.WithProtoJSON())

			// Make a call that waits until the stores fold the event.
			answered := make(chan error, 1)
			go func() {
				_, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
				answered <- err
			}()
			w.awaitInFlight(1)
			if got := http1test.ExchangeTCP(t, w.url, http1test.LastRequest); got != "" {
				t.Errorf("during the call, another connection: got %s, want it to be refused", got)
			}

			w.fold()
			if err := <-answered; err != nil {
				t.Errorf("call over the busy connection: %v", err)
			}
			if got := http1test.ExchangeTCP(t, w.url, http1test.LastRequest); got == "" {
				t.Error("after the call, another connection: got no answer, want one")
			}
		})
	}
}
