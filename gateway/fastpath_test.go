package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/admission"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// pipes is a listener in memory. Bytes that are written to its connections arrive in the parts in which they were written.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, _ := p.dialWatched()
	return client
}

// dialWatched also returns a channel that closes when the server closes the connection.
func (p *pipes) dialWatched() (net.Conn, <-chan struct{}) {
	client, server := net.Pipe()
	w := &watchedConn{Conn: server, closed: make(chan struct{})}
	p.conns <- w
	return client, w.closed
}

type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// echo is a method that answers what it is asked.
type echo struct{}

func (echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Accept-Encoding"], w.Header()["Content-Type"], w.Header()[LagHeader] = gzipName, protoName, lagValue(3)
	_, _ = io.Copy(w, r.Body)
}

func (echo) letsIn(identity) bool { return true }

func (echo) answerPlain(_ context.Context, _ identity, body []byte, out *callBuffer) (int64, error) {
	out.bytes = append(out.bytes[:out.room], body...)
	return 3, nil
}

// echoing is a server with only such a method. The channel gets the error with which it has ended.
func echoing(ctx context.Context, l net.Listener, method http.Handler, limits ...func(*Limits)) (*Server, <-chan error) {
	var set Limits
	for _, f := range limits {
		f(&set)
	}
	set.ShedAfter = -1
	s := &Server{
		limits: set.withDefaults(), logger: slog.New(slog.DiscardHandler), methods: map[string]http.Handler{checkPath: method},
		pages: http.NotFoundHandler(), hosts: anyHost(), errorWriter: connect.NewErrorWriter(),
	}
	s.budgets = admission.NewBudgets(s.limits.budgets())
	s.life, s.endLife = context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	return s, ended
}

// anyHost lets any host be named.
func anyHost() access.Hosts {
	h, err := access.NewHosts([]string{"*"})
	if err != nil {
		panic(err)
	}
	return h
}

// converse sends parts on a connection and returns all that comes back.
func converse(t *testing.T, conn net.Conn, parts ...[]byte) string {
	t.Helper()
	answer := make(chan string)
	_ = conn.SetDeadline(time.Now().Add(patienceOfTests))
	go func() {
		all, _ := io.ReadAll(conn)
		answer <- string(all)
	}()
	for _, part := range parts {
		if _, err := conn.Write(part); err != nil {
			break // the server has said enough
		}
	}
	defer conn.Close()
	return <-answer
}

// lastOf ends a connection: a reader that meets it has read everything before.
const lastOf = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// saidBy parses answers, without what differs from call to call or by who frames a body.
func saidBy(answers string) (said []string) {
	r := bufio.NewReader(strings.NewReader(answers))
	for {
		if _, err := r.Peek(1); err != nil {
			return said
		}
		res, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			// That of HTTP/2 ends with what its frames were doing when the client left.
			return append(said, err.Error()[:min(len(err.Error()), 50)])
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		date, derr := http.ParseTime(res.Header.Get("Date"))
		if derr == nil && time.Since(date).Abs() < time.Minute {
			res.Header.Set("Date", "now")
		}
		res.Header.Del("Content-Length")
		said = append(said, fmt.Sprint(res.Status, res.Proto, res.Header, res.Close, string(body), err))
	}
}

// Whatever comes, and whatever comes after it on the connection, is answered as if there were net/http alone.
func TestFrontAnswersAsNetHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.caughtUp(w.publish(follow("ann", "bob")))
	alone, both := newPipes(), newPipes()
	rest := w.server.httpServer(w.server, &w.server.conns)
	f := newFastPath(w.server, both, w.server.httpServer(w.server, &w.server.conns))
	ended := make(chan error, 3)
	go func() { ended <- rest.Serve(framedListener{alone}) }()
	go func() { ended <- f.rest.Serve(f.handoff) }()
	go func() { ended <- f.accept() }()
	t.Cleanup(func() {
		if err := errors.Join(rest.Close(), f.close()); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	})
	same := func(request string) {
		t.Helper()
		got := fmt.Sprintf("%q", saidBy(converse(t, both.dial(), []byte(request))))
		want := fmt.Sprintf("%q", saidBy(converse(t, alone.dial(), []byte(request))))
		if got != want {
			t.Errorf("%.300q:\n got %s\nwant %s", request, got, want)
		}
	}
	good := requestText(checkPath, "", string(marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}})))
	for _, request := range append(oddRequests(), good) {
		for _, before := range []string{"", good, good + good} {
			if before != "" && (strings.HasPrefix(request, "PRI") || strings.TrimLeft(request, "\r\n") != request) {
				continue // TestFrontRefuses
			}
			for _, after := range []string{lastOf, good + lastOf} {
				same(before + request + after)
			}
		}
	}
}

// Behind a call that was answered in the loop a connection does not become one of HTTP/2, as it does not with net/http: a
// proxy that shares it among clients would be told the answers of another. Lines before a request are no part of one here.
func TestFrontRefuses(t *testing.T) {
	l := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	_, ended := echoing(ctx, l, echo{})
	good := requestText(checkPath, "", "abc")
	for _, next := range []string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\r\n" + good, "\n" + good, "\r\n\r\n" + good,
	} {
		for i := range min(len(next), 30) {
			said := saidBy(converse(t, l.dial(), []byte(good), []byte(good+next[:i]), []byte(next[i:])))
			if len(said) != 3 || !strings.HasPrefix(said[2], "400 Bad Request") {
				t.Fatalf("%q, cut at %d: %q", next, i, said)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// oddRequests are some that are plain, and many that are not.
func oddRequests() []string {
	return append(append(plainHeads[:4:4], oddHeads...),
		requestText("/skein.v1.GraphService/Nothing", "", ""), requestText("/skein.v1.EventService/Watch", "", ""),
		requestText("http://x"+checkPath, "", ""), requestText(checkPath+"?", "", ""), requestText(checkPath+"/", "", ""),
		requestText("/skein.v1.GraphService/Check%46ollows", "", ""), requestText("//skein.v1.GraphService/CheckFollows", "", ""),
		requestText(checkPath, "X: "+strings.Repeat("y", 7000)+"\r\n", "abc"),
		requestText(checkPath, "X: "+strings.Repeat("y", 9000)+"\r\n", "abc"),
		requestText(checkPath, strings.Repeat("X: y\r\n", 1000), "abc"),
		requestText(checkPath, "", strings.Repeat("y", maxPlainBody)), requestText(checkPath, "", strings.Repeat("y", maxPlainBody+1)),
	)
}

// What ends early, anywhere, is answered as if there were net/http alone.
func TestFrontBreaksOff(t *testing.T) {
	w := newWorld(t)
	alone := httptest.NewUnstartedServer(w.server)
	alone.Config, alone.Listener = w.server.httpServer(w.server, &w.server.conns), framedListener{alone.Listener}
	alone.Start()
	t.Cleanup(alone.Close)
	for _, request := range oddRequests() {
		// A whole request is left out, and HTTP/2: what net/http answers there depends on when it sees the end.
		if strings.HasPrefix(request, "PRI") {
			continue
		}
		head := strings.Index(request, "\r\n\r\n") + 4
		cuts := []int{strings.Index(request, "\n") + 1, head / 2, head - 2}
		if strings.Contains(request, "\r\nContent-Length: 3\r\n") && strings.HasSuffix(request, "\nabc") {
			cuts = append(cuts, len(request)-1)
		}
		for _, n := range cuts {
			if n < 1 || n >= len(request) {
				continue
			}
			got, want := sendAll(t, w.url, request[:n]), sendAll(t, alone.URL, request[:n])
			if g, w := fmt.Sprintf("%q", saidBy(got)), fmt.Sprintf("%q", saidBy(want)); g != w {
				t.Errorf("%.300q:\n got %s\nwant %s", request[:n], g, w)
			}
		}
	}
}

// requestText writes a plain request with further lines in its head.
func requestText(path, lines, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n%sContent-Length: %d\r\n\r\n%s",
		path, lines, len(body), body)
}

// sendAll sends all at once on a connection, says that no more will come, and returns what is answered.
func sendAll(t *testing.T, url, request string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		answer <- string(all)
	}()
	_, err = io.WriteString(conn, request)
	if err == nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	return <-answer
}

// Requests that come one after the other, cut in two anywhere, or in the smallest parts, are answered in order, each once.
func TestFrontPipelined(t *testing.T) {
	l := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	_, ended := echoing(ctx, l, echo{})
	var all string
	for i := range 5 {
		all += requestText(checkPath, strings.Repeat("Authorization: Bearer x\r\n", i%2), strings.Repeat(fmt.Sprint(i), i*i))
	}
	for _, last := range []string{lastOf, requestText(checkPath, "Connection: close\r\n", "bye")} {
		data := []byte(all + last)
		whole := saidBy(converse(t, l.dial(), data))
		if len(whole) != 6 {
			t.Fatalf("%q", whole)
		}
		for i, said := range whole[:5] {
			if !strings.HasPrefix(said, "200 OK") || !strings.Contains(said, "false"+strings.Repeat(fmt.Sprint(i), i*i)+"<nil>") {
				t.Errorf("answer %d: %q", i, said)
			}
		}
		for i := 1; i < len(data); i++ {
			if diff := cmp.Diff(whole, saidBy(converse(t, l.dial(), data[:i], data[i:]))); diff != "" {
				t.Fatalf("cut at %d: %s", i, diff)
			}
		}
		if diff := cmp.Diff(whole, saidBy(converse(t, l.dial(), slices.Collect(slices.Chunk(data, 1))...))); diff != "" {
			t.Fatalf("in single bytes: %s", diff)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Large requests among small ones, all at once: the buffer grows and is given up again.
func TestFrontBuffers(t *testing.T) {
	l := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	s, ended := echoing(ctx, l, echo{})
	var all string
	var bodies []string
	for i := range 40 {
		body := strings.Repeat(string(rune('a'+i%26)), []int{0, 1, 4000, 4096, 60_000, maxPlainBody}[i%6])
		bodies = append(bodies, body)
		all += requestText(checkPath, "X: "+strings.Repeat("y", 1500*(i%4))+"\r\n", body)
	}
	conn := l.dial()
	go func() { _, _ = io.WriteString(conn, all) }()
	r := bufio.NewReader(conn)
	for i, want := range bodies {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil || string(body) != want {
			t.Fatalf("answer %d: %d bytes, want %d: %v", i, len(body), len(want), err)
		}
	}
	conn.Close()
	if n := s.conns.HandedOver.Load(); n != 0 {
		t.Error("the loop gave up")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The loop serves TLS as anything else. HTTP/2 goes to net/http before a byte of it is read, and what is handed over later is
// known there to have come over TLS.
func TestFrontTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overTLS := make(chan bool, 10)
	ctx, cancel := context.WithCancel(t.Context())
	s, ended := echoing(ctx, tls.NewListener(inner, &tls.Config{
		Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}), seesTLS{overTLS: overTLS})
	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig
	for _, c := range []struct {
		protocol, contentType string
		handed                uint64
	}{{"HTTP/1.1", "application/proto", 0}, {"HTTP/1.1", "application/json", 1}, {"HTTP/2.0", "application/proto", 2}} {
		transport := &http.Transport{TLSClientConfig: roots.Clone(), ForceAttemptHTTP2: c.protocol == "HTTP/2.0", DisableCompression: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+inner.Addr().String()+checkPath, strings.NewReader("abc"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.contentType)
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(c, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || string(body) != "abc" || res.Proto != c.protocol || s.conns.HandedOver.Load() != c.handed {
			t.Errorf("%v: %q %v %s, %d handed over", c, body, err, res.Proto, s.conns.HandedOver.Load())
		}
		if c.handed > 0 && !<-overTLS {
			t.Errorf("%v: the handler does not know of TLS", c)
		}
		res.Body.Close()
		transport.CloseIdleConnections()
	}
	// A client without TLS gets an error that says so, as from net/http.
	if got := sendAll(t, inner.Addr().String(), lastOf); !strings.Contains(got, "HTTP request to an HTTPS server") {
		t.Errorf("%q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type seesTLS struct {
	echo
	overTLS chan bool
}

func (s seesTLS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.overTLS <- r.TLS != nil && r.TLS.HandshakeComplete
	s.echo.ServeHTTP(w, r)
}

// A call in the loop ends when its caller gives up, and no earlier than it must.
func TestFrontDeadline(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) {
		o.AllowedHosts, o.Limits.AtLeastWait, o.Limits.CallTimeout = []string{"x"}, time.Hour, time.Hour
	})
	at := w.publish(follow("ann", "bob"))
	body := marshal(t, &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at})
	before := w.server.conns.HandedOver.Load()
	got := saidBy(sendAll(t, w.url, requestText(connectv1.GraphServiceCheckFollowsProcedure, "Connect-Timeout-Ms: 500\r\n", string(body))))
	// It ends a little before the caller's deadline, to say why, or on a machine that is busy with it.
	if len(got) != 1 || !strings.HasPrefix(got[0], "503") && !strings.HasPrefix(got[0], "504") || w.server.conns.HandedOver.Load() != before {
		t.Errorf("%q", got)
	}
}

// What connect-go's client sends by itself stays in the loop, deadlines and answers that are compressed too.
func TestClientStaysInTheLoop(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	client := connectv1.NewGraphServiceClient(w.http, w.url)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		res, err := client.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
		if err != nil || len(res.Msg.GetEntries()) != 1 {
			t.Fatal(res, err)
		}
	}
	if n := w.server.conns.HandedOver.Load(); n != 0 {
		t.Errorf("%d connections were handed over", n)
	}
}
