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

// echoServer is a server with one method, which answers with the body that it was asked with, in
// the loop and by net/http.
type echoServer struct {
	// method is called in the loop instead, if it is not nil.
	method func(ctx context.Context, body, dst []byte) ([]byte, error)
	// handler is called by net/http before it answers, if it is not nil.
	handler func(*http.Request)

	draining atomic.Bool
	// opened counts sessions, ended those that the loop has closed, and passed those that went to
	// net/http.
	opened, ended, passed atomic.Int64
}

// echoSession is a connection of an echoServer.
type echoSession struct{ *echoServer }

func (s echoSession) Admit(head *Head, _ *tls.ConnectionState) bool {
	return string(head.Path) == http1test.MethodPath
}

func (s echoSession) Answer(ctx context.Context, _ *Head, body, dst []byte) ([]byte, int64, error) {
	if s.method != nil {
		answer, err := s.method(ctx, body, dst)
		return answer, 3, err
	}
	return append(dst, body...), 3, nil
}

func (s echoSession) AppendHeaders(head []byte) []byte { return head }
func (s echoSession) Release()                         {}
func (s echoSession) IsDraining() bool                 { return s.draining.Load() }
func (s echoSession) PassToNetHTTP(net.Conn)           { s.passed.Add(1) }
func (s echoSession) Close()                           { s.ended.Add(1) }

// ServeHTTP answers what the loop passes on.
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
	w.Header()[call.LagHeader] = []string{"3"}
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
			s.opened.Add(1)
			return echoSession{s}
		},
		NetHTTP: &http.Server{
			Handler: s, Protocols: &protocols, MaxHeaderBytes: 64 << 10, ConnContext: ConnContext, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		},
		WriteTimeout: 30 * time.Second, BodyBytes: 4 << 20, Logger: slog.New(slog.DiscardHandler),
	}
}

// startLoop serves a listener. stop shuts the loop down, and fails the test if that, or serving,
// fails.
func startLoop(t *testing.T, l net.Listener, s *echoServer) (_ *Loop, stop func()) {
	t.Helper()
	loop := New(l, s.options())
	served := make(chan error, 1)
	go func() { served <- loop.Serve() }()
	return loop, func() {
		t.Helper()
		if err := loop.Shutdown(context.Background()); err != nil {
			t.Error("shutdown: ", err)
		}
		if err := <-served; err != nil {
			t.Error("serve: ", err)
		}
	}
}

// TestConnectionDoesNotBecomeHTTP2 demands that, after a call that the loop has answered, a
// connection cannot become an HTTP/2 connection, as with net/http alone. Otherwise a proxy that
// shares the connection among clients would give them each other's answers. Empty lines before a
// request do not count as a part of it.
func TestConnectionDoesNotBecomeHTTP2(t *testing.T) {
	l := http1test.NewPipes()
	_, stop := startLoop(t, l, &echoServer{})
	defer stop()
	plain := http1test.Request(http1test.MethodPath, "", "abc")
	for name, next := range map[string]string{
		"preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"empty line":        "\r\n" + plain, "line feed": "\n" + plain, "two empty lines": "\r\n\r\n" + plain,
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range min(len(next), 30) {
				got := http1test.ParseAnswers(http1test.Exchange(t, l.Dial(), []byte(plain), []byte(plain+next[:cut]), []byte(next[cut:])))
				if len(got) != 3 || !strings.HasPrefix(got[2], "400 Bad Request") {
					t.Fatalf("cut at %d: got %q, expected two answers and a 400", cut, got)
				}
			}
		})
	}
}

// TestPipelinedRequestsAreAnsweredInOrder demands that pipelined requests are answered in order,
// each once, whether the input is cut in two anywhere, or arrives in single bytes.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	l := http1test.NewPipes()
	_, stop := startLoop(t, l, &echoServer{})
	defer stop()
	var requests string
	for i := range 5 {
		requests += http1test.Request(http1test.MethodPath, strings.Repeat("Authorization: Bearer x\r\n", i%2), strings.Repeat(fmt.Sprint(i), i*i))
	}
	for name, last := range map[string]string{
		"a GET": http1test.LastRequest, "a call that closes": http1test.Request(http1test.MethodPath, "Connection: close\r\n", "bye"),
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(requests + last)
			expected := http1test.ParseAnswers(http1test.Exchange(t, l.Dial(), data))
			if len(expected) != 6 {
				t.Fatalf("got %q, expected 6 answers", expected)
			}
			for i, answer := range expected[:5] {
				if body := "false" + strings.Repeat(fmt.Sprint(i), i*i) + "<nil>"; !strings.HasPrefix(answer, "200 OK") || !strings.Contains(answer, body) {
					t.Errorf("answer %d: got %q, expected %q in it", i, answer, body)
				}
			}

			for cut := 1; cut < len(data); cut++ {
				got := http1test.ParseAnswers(http1test.Exchange(t, l.Dial(), data[:cut], data[cut:]))
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Fatalf("cut at %d: (-expected +got)\n%s", cut, diff)
				}
			}
			got := http1test.ParseAnswers(http1test.Exchange(t, l.Dial(), slices.Collect(slices.Chunk(data, 1))...))
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Fatalf("in single bytes: (-expected +got)\n%s", diff)
			}
		})
	}
}

// TestBufferGrowsForLargeRequests demands that the loop answers large requests between small ones
// on the same connection.
func TestBufferGrowsForLargeRequests(t *testing.T) {
	l := http1test.NewPipes()
	s := &echoServer{}
	_, stop := startLoop(t, l, s)
	defer stop()
	var requests string
	var bodies []string
	for i := range 40 {
		body := strings.Repeat(string(rune('a'+i%26)), []int{0, 1, 4000, 4096, 60_000, maxBodyBytes}[i%6])
		bodies = append(bodies, body)
		requests += http1test.Request(http1test.MethodPath, "X: "+strings.Repeat("y", 1500*(i%4))+"\r\n", body)
	}

	conn := l.Dial()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, requests) }()
	r := bufio.NewReader(conn)
	for i, expected := range bodies {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil || string(body) != expected {
			t.Fatalf("answer %d: got %d bytes, expected %d: %v", i, len(body), len(expected), err)
		}
	}
	if n := s.passed.Load(); n != 0 {
		t.Errorf("%d connections went to net/http, expected none", n)
	}
}

// TestLoopAnswersOverTLS demands that the loop also answers over TLS. HTTP/2 connections go to
// net/http before a byte is read, and net/http knows the TLS state of a connection that it gets
// later.
func TestLoopAnswersOverTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	knowsTLS := make(chan bool, 10)
	s := &echoServer{handler: func(r *http.Request) { knowsTLS <- r.TLS != nil && r.TLS.HandshakeComplete }}
	_, stop := startLoop(t, tls.NewListener(inner, &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}), s)
	defer stop()
	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig

	for i, c := range []struct {
		name, protocol, contentType string
		passed                      int64
	}{
		{"a plain call", "HTTP/1.1", "application/proto", 0},
		{"JSON", "HTTP/1.1", "application/json", 1},
		{"HTTP/2", "HTTP/2.0", "application/proto", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: roots.Clone(), ForceAttemptHTTP2: c.protocol == "HTTP/2.0", DisableCompression: true}
			defer transport.CloseIdleConnections()
			req, err := http.NewRequestWithContext(
				t.Context(), http.MethodPost, "https://"+inner.Addr().String()+http1test.MethodPath, strings.NewReader("abc"))
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
			if err != nil || string(body) != "abc" || res.Proto != c.protocol {
				t.Errorf("got %q by %s: %v, expected %q by %s", body, res.Proto, err, "abc", c.protocol)
			}
			if got := s.passed.Load(); got != c.passed {
				t.Errorf("%d connections went to net/http, expected %d", got, c.passed)
			}
			if i > 0 && !<-knowsTLS {
				t.Error("the handler does not know of TLS")
			}
		})
	}
	t.Run("a client without TLS", func(t *testing.T) {
		got := http1test.ExchangeTCP(t, inner.Addr().String(), http1test.LastRequest)
		if !strings.Contains(got, "HTTP request to an HTTPS server") {
			t.Errorf("got %q, expected an error that says so", got)
		}
	})
}
