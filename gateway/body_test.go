package gateway

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/zstd"

	"github.com/skein-feed/skein/gateway/internal/admission"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// mustGzip returns data compressed with gzip.
func mustGzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return compressed.Bytes()
}

// addFramePrefix returns data after the prefix that gRPC and streams of Connect put before a
// message.
func addFramePrefix(flags byte, data []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data)))
	return append(b, data...)
}

// newGzipRequests returns, for each protocol, a request with a JSON message that is compressed. The
// methods list the followers of a user, because one of them can be called with GET.
func newGzipRequests(t testing.TB, w *world, message []byte) map[string]*http.Request {
	t.Helper()
	newRequest := func(method, url string, body []byte, headers ...string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return req
	}

	unaryURL := w.url + connectv1.GraphServiceListFollowersProcedure
	streamURL := w.url + connectv1.GraphServiceScanFollowersProcedure
	compressed := mustGzip(t, message)
	framed := addFramePrefix(1, compressed) // flag 1 says that the message is compressed
	query := url.Values{
		"connect": {"v1"}, "encoding": {"json"}, "compression": {"gzip"}, "base64": {"1"},
		"message": {base64.RawURLEncoding.EncodeToString(compressed)},
	}
	return map[string]*http.Request{
		"Connect":  newRequest(http.MethodPost, unaryURL, compressed, "Content-Type", "application/json", "Content-Encoding", "gzip"),
		"GET":      newRequest(http.MethodGet, unaryURL+"?"+query.Encode(), nil),
		"gRPC-Web": newRequest(http.MethodPost, unaryURL, framed, "Content-Type", "application/grpc-web+json", "Grpc-Encoding", "gzip"),
		"stream":   newRequest(http.MethodPost, streamURL, framed, "Content-Type", "application/connect+json", "Connect-Content-Encoding", "gzip"),
	}
}

// bodyAndHeaders makes a request and returns the text of the body and the headers of the answer,
// because gRPC-Web may have errors in headers.
func bodyAndHeaders(t testing.TB, w *world, req *http.Request) string {
	t.Helper()
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(body), res.Header)
}

// waitForRelease waits until requests hold no bytes any more. The server releases the bytes of a
// request just after the client has the answer.
func waitForRelease(w *world) {
	for w.server.budgets.Bytes.Used() > 0 {
		runtime.Gosched()
	}
}

// checkPeakOfBytes checks that requests held at most limit bytes at any time, and that their bytes
// were counted.
func checkPeakOfBytes(t *testing.T, w *world, limit int64) {
	t.Helper()
	if got := w.server.budgets.Bytes.Peak(); got > limit || got == 0 {
		t.Errorf("requests held up to %d bytes at a time, want more than 0 and at most %d", got, limit)
	}
}

// TestCompressedBodiesAreRead checks that the server reads a compressed message in every protocol,
// and refuses bodies that are no gzip or not all of it.
func TestCompressedBodiesAreRead(t *testing.T) {
	w := newWorld(t)
	w.caughtUp(w.publish(follow("ann", "bob")))
	for protocol, req := range newGzipRequests(t, w, []byte(`{"userId":"bob"}`)) {
		t.Run(protocol, func(t *testing.T) {
			if got := bodyAndHeaders(t, w, req); !strings.Contains(got, `"userId":"ann"`) {
				t.Errorf("got %s, want ann in it", got)
			}
		})
	}

	for name, body := range map[string][]byte{
		"not compressed":      []byte("{}"),
		"one byte of a head":  {0x1f},
		"part of a head":      {0x1f, 0x8b, 8, 0},
		"part of the content": mustGzip(t, []byte("{}"))[:12],
		"bytes after the end": append(mustGzip(t, []byte("{}")), 1, 2, 3),
	} {
		t.Run(name, func(t *testing.T) {
			status, _, answer := w.post(connectv1.GraphServiceListFollowersProcedure, "application/json", bytes.NewReader(body), "Content-Encoding", "gzip")
			e := parseError(t, answer)
			if status != http.StatusBadRequest || e.reason() != "INVALID_FIELD" || !strings.Contains(e.Message, "gzip") {
				t.Errorf("got status %d with %s, want 400 with INVALID_FIELD and a message about gzip", status, answer)
			}
		})
	}
}

// TestDecompressionBombsAreRefused checks that a body that decompresses to more than a body may
// have is refused at that limit in every protocol, and that no more of it is kept in memory.
func TestDecompressionBombsAreRefused(t *testing.T) {
	w := newWorld(t)
	for protocol, req := range newGzipRequests(t, w, make([]byte, 32<<20)) {
		t.Run(protocol, func(t *testing.T) {
			const want = "larger than 4 MiB once it is inflated"
			if got := bodyAndHeaders(t, w, req); !strings.Contains(got, want) {
				t.Errorf("got %.300s, want %q in it", got, want)
			}
		})
	}
	checkPeakOfBytes(t, w, int64(admission.HeldPerByte*(w.server.limits.BodyBytes+64<<10)))
	waitForRelease(w)

	// A small body of zstd can demand a window of 128 MiB. The server decompresses only gzip.
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"zstd", "br", "gzip, gzip", "deflate"} {
		t.Run(encoding, func(t *testing.T) {
			status, _, answer := w.post(connectv1.GraphServiceListFollowersProcedure, "application/json",
				bytes.NewReader(z.EncodeAll([]byte("{}"), nil)), "Content-Encoding", encoding)
			if e := parseError(t, answer); e.Code != "unimplemented" {
				t.Errorf("got status %d with %s, want the code unimplemented", status, answer)
			}
		})
	}
}

// sendUnfinishedBody begins a call with a token, sends size bytes of a JSON body that does not end
// before the test does, and waits until the server holds them. If the server answers earlier,
// sendUnfinishedBody returns that answer, and otherwise "".
func (g *guarded) sendUnfinishedBody(token string, size int) (answer string) {
	g.t.Helper()
	usedBefore := g.server.budgets.Bytes.Used()
	r, w := io.Pipe()
	g.t.Cleanup(func() { _ = w.Close() })
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url+connectv1.GraphServiceListFollowersProcedure, r)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")

	answered := make(chan string, 1)
	go func() {
		res, err := g.as(token).http.Do(req)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answered <- string(text)
	}()
	go func() { _, _ = w.Write(bytes.Repeat([]byte(" "), size)) }()

	// The first FreeBytes of a body do not count.
	wantUsed := usedBefore + int64(admission.HeldPerByte*(size-admission.FreeBytes))
	for g.server.budgets.Bytes.Used() < wantUsed {
		select {
		case text := <-answered:
			return text
		default:
			runtime.Gosched()
		}
	}
	return ""
}

// TestFloodOfBodies checks that bodies that are arriving hold a limited number of bytes, per caller
// and in total. The server answers small requests all the time, and releases everything in the end.
func TestFloodOfBodies(t *testing.T) {
	// The limits allow two such bodies in total, and one per caller.
	const size = 200 << 10
	g := newGuarded(t, func(o *worldOptions) {
		o.Limits.BodyBytes = 256 << 10
		o.Limits.RequestBytes = 1 << 20
	})

	// Cleanups run in reverse order: this one after those that end the bodies, and before the one
	// that stops the server.
	t.Cleanup(func() { waitForRelease(g.world) })

	if got := g.sendUnfinishedBody(g.tokens["reader"], size); got != "" {
		t.Fatalf("first large body of the reader: got %q, want no answer yet", got)
	}
	if got := g.sendUnfinishedBody(g.tokens["reader"], size); !strings.Contains(got, "CALLER_LIMIT") {
		t.Errorf("second large body of the reader: got %q, want CALLER_LIMIT", got)
	}
	if got := g.sendUnfinishedBody(g.tokens["all"], size); got != "" {
		t.Fatalf("large body of another caller: got %q, want no answer yet", got)
	}
	if got := g.sendUnfinishedBody(g.tokens["ann"], size); !strings.Contains(got, "OVERLOADED") {
		t.Errorf("large body of a third caller: got %q, want OVERLOADED", got)
	}
	g.as(g.tokens["all"]).callsOfEachKind()
	checkPeakOfBytes(t, g.world, 1<<20)
}

// TestFloodOfLargeRequests makes sixty calls of nearly 4 MiB at once. They are answered or refused,
// and never hold more memory than they may.
func TestFloodOfLargeRequests(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.RequestBytes = 32 << 20 })
	w.http.Transport.(*http.Transport).MaxConnsPerHost = 0
	body := []byte(`{"userIds":[` + strings.Repeat(`"",`, 1_250_000) + `""]}`)
	bodies := map[string][]byte{"": body, "gzip": mustGzip(t, body)}

	var calls sync.WaitGroup
	var answered atomic.Int64
	for i := range 60 {
		encoding := []string{"", "gzip"}[i%2]
		calls.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.GraphServiceBatchGetRelationshipsProcedure,
				bytes.NewReader(bodies[encoding]))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Content-Encoding", encoding)
			res, err := w.http.Do(req)
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				// The call was refused. net/http closes the connection half a second later, even if
				// a slow client is still sending. The client then closes its end, too, which may be
				// the error that it returns. TestFloodOfBodies checks the answer.
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			if err != nil {
				t.Errorf("reading an answer: %v", err)
			}
			if res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("got status %d with %.200s, want 400 or 429", res.StatusCode, answer)
			}
			if len(answer) > 2000 {
				t.Errorf("got an answer of %d bytes, want at most 2000", len(answer))
			}
			answered.Add(1)
		})
	}
	calls.Wait()
	if answered.Load() == 0 {
		t.Error("no call was answered, want at least one")
	}

	waitForRelease(w)
	checkPeakOfBytes(t, w, 32<<20)
	w.callsOfEachKind()
}

// TestLargeBodiesOfTheLoopCountAsMemory checks that bodies that the loop reads for plain calls
// count like those that net/http reads.
func TestLargeBodiesOfTheLoopCountAsMemory(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) {
		o.Limits.BodyBytes = 64 << 10
		o.Limits.RequestBytes = 256 << 10
	})
	req := &skeinv1.CheckFollowsRequest{}
	for range 500 {
		req.Pairs = append(req.Pairs, userPair(strings.Repeat("a", 40), strings.Repeat("b", 40)))
	}

	ask(w, w.graph.CheckFollows, req)
	if n := w.server.conns.HandedOver.Load(); n != 0 {
		t.Fatalf("the loop handed over %d connections, want none", n)
	}
	budget := w.server.budgets.Bytes
	if got := budget.Peak(); got < 80_000 {
		t.Fatalf("the call held up to %d bytes, want at least 80000", got)
	}
	waitForRelease(w)

	// Once the caller has no bytes left, the call is refused.
	if failure := budget.Take("127.0.0.1/32", budget.CallerLimit); failure != nil {
		t.Fatal(failure)
	}
	_, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(req))
	if d := detailsOf(t, err); d.reason != "CALLER_LIMIT" {
		t.Errorf("got %v, want CALLER_LIMIT", err)
	}

	budget.Release("127.0.0.1/32", budget.CallerLimit)
	ask(w, w.graph.CheckFollows, req)
	waitForRelease(w)
}

// callWithoutReading makes calls over one HTTP/1.1 connection and reads no answer, until the server
// closes the connection.
func (w *world) callWithoutReading(contentType, body string) error {
	conn, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		connectv1.GraphServiceListFollowersProcedure, contentType, len(body), body)
	for {
		if _, err := io.WriteString(conn, request); err != nil {
			return nil // the server has closed the connection
		}
	}
}

// TestSlowReadersAreCutOff checks that the server closes the connection of a client that does not
// read its answers, in the loop and in net/http, and that such a client holds nothing afterwards.
func TestSlowReadersAreCutOff(t *testing.T) {
	t.Parallel()
	publisher := newWorld(t)
	var evs []*skeinv1.Event
	for i := range 1000 {
		evs = append(evs, follow(fmt.Sprint(strings.Repeat("x", 100), i), "bob"))
	}
	at := publisher.publish(evs...)

	// The slow clients call a replica, whose limit may be too short for honest calls on a slow
	// machine. callsOfEachKind makes calls again until they succeed.
	w := publisher.replica(func(o *worldOptions) { o.Limits.IOTimeout = time.Second })
	w.caughtUp(at)
	requests := []struct{ contentType, body string }{
		{"application/json", `{"userId":"bob","pageSize":1000}`},
		{"application/proto", string(marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob", PageSize: 1000}))},
	}
	var clients sync.WaitGroup
	for i := range 20 {
		request := requests[i%len(requests)]
		clients.Go(func() {
			if err := w.callWithoutReading(request.contentType, request.body); err != nil {
				t.Error(err)
			}
		})
	}
	w.callsOfEachKind()
	clients.Wait()

	for w.server.budgets.Requests.Used() > 0 || w.server.budgets.Bytes.Used() > 0 {
		runtime.Gosched()
	}
	w.callsOfEachKind()
}
