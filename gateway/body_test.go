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
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/admission"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// packed is data in gzip.
func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var to bytes.Buffer
	z := gzip.NewWriter(&to)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

// prefixed is data behind the prefix of gRPC and of streams.
func prefixed(flags byte, data []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data)))
	return append(b, data...)
}

// packedWays are the ways in which a packed message of JSON comes, to a method that may be asked by
// GET.
func packedWays(t testing.TB, w *world, data []byte) map[string]*http.Request {
	t.Helper()
	unary, stream := w.url+connectv1.GraphServiceListFollowersProcedure, w.url+connectv1.GraphServiceScanFollowersProcedure
	request := func(method, url string, body []byte, headers ...string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return req
	}
	small := packed(t, data)
	query := url.Values{
		"connect": {"v1"}, "encoding": {"json"}, "compression": {"gzip"}, "base64": {"1"},
		"message": {base64.RawURLEncoding.EncodeToString(small)},
	}
	return map[string]*http.Request{
		"Connect":  request(http.MethodPost, unary, small, "Content-Type", "application/json", "Content-Encoding", "gzip"),
		"GET":      request(http.MethodGet, unary+"?"+query.Encode(), nil),
		"gRPC-Web": request(http.MethodPost, unary, prefixed(1, small), "Content-Type", "application/grpc-web+json", "Grpc-Encoding", "gzip"),
		"stream":   request(http.MethodPost, stream, prefixed(1, small), "Content-Type", "application/connect+json", "Connect-Content-Encoding", "gzip"),
	}
}

// answerTo makes a request and returns its answer, with what stands in the headers and trailers of
// gRPC.
func answerTo(t testing.TB, w *world, req *http.Request) string {
	t.Helper()
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(answer), res.Header)
}

// A compressed message is read in every protocol.
func TestCompressedBodiesAreRead(t *testing.T) {
	w := newWorld(t)
	w.caughtUp(w.publish(follow("ann", "bob")))
	for name, req := range packedWays(t, w, []byte(`{"userId":"bob"}`)) {
		if answer := answerTo(t, w, req); !strings.Contains(answer, `"userId":"ann"`) {
			t.Errorf("%s: %s", name, answer)
		}
	}
	for _, body := range [][]byte{[]byte("{}"), {0x1f}, {0x1f, 0x8b, 8, 0}, packed(t, []byte("{}"))[:12], append(packed(t, []byte("{}")), 1, 2, 3)} {
		status, _, answer := w.post(connectv1.GraphServiceListFollowersProcedure, "application/json", bytes.NewReader(body), "Content-Encoding", "gzip")
		if e := parseError(t, answer); status != http.StatusBadRequest || e.reason() != "INVALID_FIELD" || !strings.Contains(e.Message, "gzip") {
			t.Errorf("%x: %d %s", body, status, answer)
		}
	}
}

// A body that decompresses to more than a body may have is refused at that limit in every protocol,
// and no more of it is kept in memory.
func TestDecompressionBombsAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, req := range packedWays(t, w, make([]byte, 32<<20)) {
		if answer := answerTo(t, w, req); !strings.Contains(answer, "larger than 4 MiB once it is inflated") {
			t.Errorf("%s: %.300s", name, answer)
		}
	}
	b := w.server.budgets.Bytes
	if most := int64(admission.HeldPerByte * (w.server.limits.BodyBytes + 64<<10)); b.Peak() > most || b.Peak() == 0 {
		t.Errorf("%d bytes were held at a time, should be at most %d", b.Peak(), most)
	}
	for b.Used() > 0 { // an answer that has arrived is released just after
		runtime.Gosched()
	}
	// A small body that says that it needs a window of 128 MiB.
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, encoding := range []string{"zstd", "br", "gzip, gzip", "deflate"} {
		status, _, answer := w.post(connectv1.GraphServiceListFollowersProcedure, "application/json",
			bytes.NewReader(z.EncodeAll([]byte("{}"), nil)), "Content-Encoding", encoding)
		if e := parseError(t, answer); e.Code != "unimplemented" {
			t.Errorf("%s: %d %s", encoding, status, answer)
		}
	}
}

// slowly sends half of a JSON body of so many bytes, with a token, until the end of the test. It
// returns when the server has what was sent, or has refused it with what is returned.
func (g *guarded) slowly(token string, size int) (refused string) {
	g.t.Helper()
	before := g.server.budgets.Bytes.Used()
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
		answer, _ := io.ReadAll(res.Body)
		answered <- string(answer)
	}()
	go func() { _, _ = w.Write(bytes.Repeat([]byte(" "), size)) }()
	for {
		select {
		case text := <-answered:
			return text
		default:
			if g.server.budgets.Bytes.Used() >= before+int64(admission.HeldPerByte*(size-admission.FreeBytes)) {
				return ""
			}
			runtime.Gosched()
		}
	}
}

// Bodies that are arriving hold a limited number of bytes, per caller and in total. Small requests
// are answered all the time, and everything is given back in the end.
func TestFloodOfBodies(t *testing.T) {
	const size = 200 << 10
	g := newGuarded(t, func(o *worldOptions) { o.Limits.BodyBytes, o.Limits.RequestBytes = 256<<10, 1<<20 })
	b := g.server.budgets.Bytes
	t.Cleanup(func() { // after the pipes are closed, before the server is
		for b.Used() > 0 {
			runtime.Gosched()
		}
	})
	if refused := g.slowly(g.tokens["reader"], size); refused != "" {
		t.Fatal(refused)
	}
	if refused := g.slowly(g.tokens["reader"], size); !strings.Contains(refused, "CALLER_LIMIT") {
		t.Errorf("a second large body of one caller: %q", refused)
	}
	if refused := g.slowly(g.tokens["all"], size); refused != "" {
		t.Fatal(refused)
	}
	if refused := g.slowly(g.tokens["ann"], size); !strings.Contains(refused, "OVERLOADED") {
		t.Errorf("a third large body: %q", refused)
	}
	g.as(g.tokens["all"]).callsOfEachKind()
	if b.Peak() > 1<<20 {
		t.Errorf("%d bytes were held at a time", b.Peak())
	}
}

// Sixty requests of nearly 4 MiB at once are answered or refused, and never hold more memory than
// they may.
func TestFloodOfLargeRequests(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.RequestBytes = 32 << 20 })
	w.http.Transport.(*http.Transport).MaxConnsPerHost = 0
	body := []byte(`{"userIds":[` + strings.Repeat(`"",`, 1_250_000) + `""]}`)
	bodies := map[string][]byte{"": body, "gzip": packed(t, body)}
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range 60 {
		encoding := []string{"", "gzip"}[i%2]
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.GraphServiceBatchGetRelationshipsProcedure,
				bytes.NewReader(bodies[encoding]))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Content-Encoding", encoding)
			res, err := w.http.Do(req)
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				return // refused: net/http closes half a second later, also if a slow client still sends; see TestFloodOfBodies for the answer
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusBadRequest && res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%d %.200s %v", res.StatusCode, answer, err)
			}
			if len(answer) > 2000 {
				t.Errorf("an answer of %d bytes", len(answer))
			}
			answered.Add(1)
		})
	}
	all.Wait()
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
	b := w.server.budgets.Bytes
	for b.Used() > 0 { // an answer that has arrived is released just after
		runtime.Gosched()
	}
	if b.Peak() > 32<<20 || b.Peak() == 0 {
		t.Errorf("%d bytes were held at a time", b.Peak())
	}
	w.callsOfEachKind()
}

// What the loop reads counts like what net/http reads.
func TestLargeBodiesOfTheLoopCountAsMemory(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.BodyBytes, o.Limits.RequestBytes = 64<<10, 256<<10 })
	b := w.server.budgets.Bytes
	req := &skeinv1.CheckFollowsRequest{}
	for range 500 {
		req.Pairs = append(req.Pairs, userPair(strings.Repeat("a", 40), strings.Repeat("b", 40)))
	}
	ask(w, w.graph.CheckFollows, req)
	if n := w.server.conns.HandedOver.Load(); n != 0 || b.Peak() < 80_000 {
		t.Fatalf("%d connections were handed over, and %d bytes held", n, b.Peak())
	}
	for b.Used() > 0 { // an answer that has arrived is released just after
		runtime.Gosched()
	}
	if f := b.Take("127.0.0.1/32", b.CallerLimit); f != nil {
		t.Fatal(f)
	}
	_, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(req))
	if d := detailsOf(t, err); d.reason != "CALLER_LIMIT" {
		t.Error(err)
	}
	b.Release("127.0.0.1/32", b.CallerLimit)
	ask(w, w.graph.CheckFollows, req)
	for b.Used() > 0 {
		runtime.Gosched()
	}
}

// slowReader makes calls by HTTP/1.1 without an end, and reads no answer, until the server closes
// the connection.
func (w *world) slowReader(contentType, body string) error {
	conn, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		connectv1.GraphServiceListFollowersProcedure, contentType, len(body), body)
	for {
		if _, err := io.WriteString(conn, request); err != nil {
			return nil // cut off
		}
	}
}

// A client that does not read its answer is cut off in time, by the loop and by net/http, and holds
// nothing after that.
func TestSlowReadersAreCutOff(t *testing.T) {
	t.Parallel()
	fast := newWorld(t)
	var evs []*skeinv1.Event
	for i := range 1000 {
		evs = append(evs, follow(fmt.Sprint(strings.Repeat("x", 100), i), "bob"))
	}
	at := fast.publish(evs...)
	// Honest calls to this server are made again if the machine is too slow for the limit.
	w := fast.replica(func(o *worldOptions) { o.Limits.IOTimeout = time.Second })
	w.caughtUp(at)
	inBinary, err := proto.Marshal(&skeinv1.ListFollowersRequest{UserId: "bob", PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			contentType, body := "application/proto", string(inBinary)
			if i%2 == 0 {
				contentType, body = "application/json", `{"userId":"bob","pageSize":1000}`
			}
			if err := w.slowReader(contentType, body); err != nil {
				t.Error(err)
			}
		})
	}
	w.callsOfEachKind()
	all.Wait()
	for w.server.budgets.Requests.Used() > 0 || w.server.budgets.Bytes.Used() > 0 {
		runtime.Gosched()
	}
	w.callsOfEachKind()
}
