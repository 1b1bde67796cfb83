package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
)

// echoServer is a server with one method, which answers a call with the body of the call. The loop
// and net/http give the same answers.
type echoServer struct {
	// method is called by the loop instead, if it is not nil.
	method func(ctx context.Context, body, dst []byte) ([]byte, error)
	// handler is called by net/http before it answers, if it is not nil.
	handler func(*http.Request)

	isDraining atomic.Bool
	// openedSessions counts all sessions, closedSessions those that the loop has closed, and
	// passedSessions those whose connections went to net/http.
	openedSessions, closedSessions, passedSessions atomic.Int64
}

// lag is the lag that each answer names.
const lag = 3

// echoSession is the session of a connection to an echoServer.
type echoSession struct{ *echoServer }

func (s echoSession) Admit(head *Head, _ *tls.ConnectionState) bool {
	return string(head.Path) == http1test.MethodPath
}

func (s echoSession) Answer(ctx context.Context, _ *Head, body, dst []byte) ([]byte, int64, error) {
	if s.method != nil {
		answer, err := s.method(ctx, body, dst)
		return answer, lag, err
	}
	return append(dst, body...), lag, nil
}

func (s echoSession) AppendHeaders(head []byte) []byte { return head }
func (s echoSession) Release()                         {}
func (s echoSession) IsDraining() bool                 { return s.isDraining.Load() }
func (s echoSession) PassToNetHTTP(net.Conn)           { s.passedSessions.Add(1) }
func (s echoSession) Close()                           { s.closedSessions.Add(1) }

// ServeHTTP answers the requests that net/http reads.
func (s *echoServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != http1test.MethodPath {
		http.NotFound(w, r)
		return
	}
	if s.handler != nil {
		s.handler(r)
	}
	w.Header()["Accept-Encoding"] = gzipValue
	w.Header()["Content-Type"] = []string{"application/proto"}
	w.Header()[call.LagHeader] = []string{fmt.Sprint(lag)}
	w.Header()["X-Content-Type-Options"] = nosniffValue
	_, _ = io.Copy(w, r.Body)
}

// options returns the options of a loop in front of the server.
func (s *echoServer) options() Options {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return Options{
		OpenSession: func(net.Conn) Session {
			s.openedSessions.Add(1)
			return echoSession{s}
		},
		NetHTTP: &http.Server{
			Handler: s, Protocols: &protocols, MaxHeaderBytes: 64 << 10, ConnContext: ConnContext, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		},
		WriteTimeout: 30 * time.Second, BodyBytes: 4 << 20, Logger: slog.New(slog.DiscardHandler),
	}
}

// startLoop serves a listener. stop shuts the loop down, and fails the test if the shutdown or the
// loop returns an error.
func startLoop(t *testing.T, l net.Listener, s *echoServer) (_ *Loop, stop func()) {
	t.Helper()
	loop := New(l, s.options())
	serveEnded := make(chan error, 1)
	go func() { serveEnded <- loop.Serve() }()
	return loop, func() {
		t.Helper()
		if err := loop.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: got the error %v, want none", err)
		}
		if err := <-serveEnded; err != nil {
			t.Errorf("Serve: got the error %v, want none", err)
		}
	}
}

// exchange opens a connection, sends the parts and returns the answers.
func exchange(t *testing.T, l *http1test.Pipes, parts ...[]byte) []string {
	t.Helper()
	return http1test.ParseAnswers(http1test.Exchange(t, l.Dial(), parts...))
}

// TestConnectionDoesNotBecomeHTTP2 checks that, after a call that the loop has answered, a
// connection cannot become an HTTP/2 connection, as with net/http alone. Otherwise a proxy that
// shares the connection among clients would give them each other's answers.
func TestConnectionDoesNotBecomeHTTP2(t *testing.T) {
	l := http1test.NewPipes()
	_, stop := startLoop(t, l, &echoServer{})
	defer stop()
	plain := http1test.Request(http1test.MethodPath, "", "abc")

	for name, next := range map[string]string{
		"preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		// The loop recognizes the preface by its first bytes. That is enough only because net/http
		// does not skip empty lines before a request.
		"empty line":      "\r\n" + plain,
		"line feed":       "\n" + plain,
		"two empty lines": "\r\n\r\n" + plain,
	} {
		t.Run(name, func(t *testing.T) {
			// The first part is a call that the loop answers. The second part is another one with
			// the beginning of the next request, which the third part completes.
			for cut := range min(len(next), 30) {
				got := exchange(t, l, []byte(plain), []byte(plain+next[:cut]), []byte(next[cut:]))
				if len(got) != 3 || !strings.HasPrefix(got[2], "400 Bad Request") {
					t.Fatalf("cut at %d: got %q, want two answers and a 400", cut, got)
				}
			}
		})
	}
}

// TestPipelinedRequestsAreAnsweredInOrder checks that pipelined requests are answered in order,
// each once, whether the input is cut in two anywhere, or arrives in single bytes.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	l := http1test.NewPipes()
	_, stop := startLoop(t, l, &echoServer{})
	defer stop()

	// The bodies have different lengths, and every other request has one more header.
	var requests string
	var bodies []string
	for i := range 5 {
		body := strings.Repeat(fmt.Sprint(i), i*i)
		bodies = append(bodies, body)
		requests += http1test.Request(http1test.MethodPath, strings.Repeat("Authorization: Bearer x\r\n", i%2), body)
	}

	for name, last := range map[string]string{
		"a GET":              http1test.LastRequest,
		"a call that closes": http1test.Request(http1test.MethodPath, "Connection: close\r\n", "bye"),
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(requests + last)
			want := exchange(t, l, data)
			if len(want) != len(bodies)+1 {
				t.Fatalf("got the answers %q, want %d", want, len(bodies)+1)
			}
			for i, body := range bodies {
				// In the text of an answer, the body comes after whether the answer closes its
				// connection, and before the error of reading the body.
				text := "false" + body + "<nil>"
				if !strings.HasPrefix(want[i], "200 OK") || !strings.Contains(want[i], text) {
					t.Errorf("answer %d: got %q, want 200 OK with %q in it", i, want[i], text)
				}
			}

			for cut := 1; cut < len(data); cut++ {
				got := exchange(t, l, data[:cut], data[cut:])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("answers if the input is cut at %d (-want +got):\n%s", cut, diff)
				}
			}
			got := exchange(t, l, slices.Collect(slices.Chunk(data, 1))...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("answers to single bytes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBufferGrowsForLargeRequests checks that the loop answers large requests between small ones on
// the same connection.
func TestBufferGrowsForLargeRequests(t *testing.T) {
	l := http1test.NewPipes()
	s := &echoServer{}
	_, stop := startLoop(t, l, s)
	defer stop()

	// The numbers of lengths of heads and of bodies differ, so that each length of a head occurs
	// with several lengths of bodies.
	bodyLengths := []int{0, 1, 4000, 4096, 60_000, maxBodyBytes}
	headerLengths := []int{0, 1500, 3000, 4500}
	var requests string
	var bodies []string
	for i := range 40 {
		letter := string(rune('a' + i%26))
		body := strings.Repeat(letter, bodyLengths[i%len(bodyLengths)])
		header := "X: " + strings.Repeat("y", headerLengths[i%len(headerLengths)]) + "\r\n"
		bodies = append(bodies, body)
		requests += http1test.Request(http1test.MethodPath, header, body)
	}

	conn := l.Dial()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, requests) }()
	r := bufio.NewReader(conn)
	for i, want := range bodies {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("answer %d: got the error %v, want an answer", i, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != want {
			t.Fatalf("answer %d: got %d bytes and the error %v, want the %d bytes of the request", i, len(body), err, len(want))
		}
	}
	if got := s.passedSessions.Load(); got != 0 {
		t.Errorf("connections that went to net/http: got %d, want 0", got)
	}
}

// TestLoopAnswersOverTLS checks that the loop also answers over TLS. HTTP/2 connections go to
// net/http before a byte is read, and net/http knows the TLS state of a connection that it gets
// later.
func TestLoopAnswersOverTLS(t *testing.T) {
	// This server is used only for its certificate, and for a client that trusts the certificate.
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	clientTLS := certified.Client().Transport.(*http.Transport).TLSClientConfig

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serverTLS := &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}
	handlerKnowsTLS := make(chan bool, 10)
	s := &echoServer{handler: func(r *http.Request) { handlerKnowsTLS <- r.TLS != nil && r.TLS.HandshakeComplete }}
	_, stop := startLoop(t, tls.NewListener(listener, serverTLS), s)
	defer stop()

	for _, c := range []struct {
		name, protocol, contentType string
		wantPassed                  int64 // 1 if the connection goes to net/http
	}{
		{"a plain call", "HTTP/1.1", "application/proto", 0},
		{"JSON", "HTTP/1.1", "application/json", 1},
		{"HTTP/2", "HTTP/2.0", "application/proto", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			passedBefore := s.passedSessions.Load()
			transport := &http.Transport{TLSClientConfig: clientTLS.Clone(), ForceAttemptHTTP2: c.protocol == "HTTP/2.0", DisableCompression: true}
			defer transport.CloseIdleConnections()
			url := "https://" + listener.Addr().String() + http1test.MethodPath
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("abc"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", c.contentType)
			res, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if string(body) != "abc" || res.Proto != c.protocol {
				t.Errorf("got %q by %s, want \"abc\" by %s", body, res.Proto, c.protocol)
			}

			if got := s.passedSessions.Load() - passedBefore; got != c.wantPassed {
				t.Errorf("connections that went to net/http: got %d, want %d", got, c.wantPassed)
			}
			if c.wantPassed > 0 && !<-handlerKnowsTLS {
				t.Error("the request has no TLS state in the handler, want the state of a completed handshake")
			}
		})
	}
	t.Run("a client without TLS", func(t *testing.T) {
		got := http1test.ExchangeTCP(t, listener.Addr().String(), http1test.LastRequest)
		if want := "HTTP request to an HTTPS server"; !strings.Contains(got, want) {
			t.Errorf("got the answer %q, want %q in it", got, want)
		}
	})
}
