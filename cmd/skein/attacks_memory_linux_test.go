package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestAttacksFitIntoMemory demands that the process exceeds --memory by at most a tenth, whatever
// strangers send, and that it answers afterwards. It runs the real program with the least memory
// that the program accepts. The tests of the gateway check how each attack is answered.
func TestAttacksFitIntoMemory(t *testing.T) {
	t.Parallel()
	const memory = minMemory
	s := &server{t: t, dir: t.TempDir(), flags: []string{"--memory", "256MiB", "--log-level", "error"}}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	facts := `{"userFollowed":{"userId":"ann","targetUserId":"bob"}}` + "\n"
	for i := range 1000 { // so that a list of followers is long
		facts += fmt.Sprintf(`{"userFollowed":{"userId":"%s%d","targetUserId":"bob"}}`+"\n", strings.Repeat("x", 120), i)
	}
	mustSkein(t, s, "skein", facts, "publish", "--visible")
	a := &attacker{t: t, addr: s.addr}
	attacks := []struct {
		name string
		run  func(context.Context)
	}{
		{"lists of two million empty items, packed", a.emptyItems},
		{"bodies that unpack to 32 MiB", a.bombs},
		{"bodies in zstd with a window of 128 MiB", a.wideWindows},
		{"large bodies", a.largeBodies},
		{"large publishes", a.largePublishes},
		{"connections that send half a request", a.halfRequests},
		{"answers that are not read", a.unreadAnswers},
		{"long heads", a.longHeads},
		{"HTTP/2: streams of health", a.healthStreams},
		{"HTTP/2: streams of feeds, and pins for them", func(ctx context.Context) { a.feedStreams(ctx, 2000) }},
		{"HTTP/2: long answers that are not read", a.closedWindows},
		{"HTTP/2: calls that are cancelled at once", a.rapidResets},
		{"HTTP/2: a head without an end", a.continuations},
	}
	if testing.Short() {
		attacks = attacks[:3]
	}
	for _, attack := range attacks {
		s.forgetPeak(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		attack.run(ctx)
		cancel()
		if peak := s.resident(t, "VmHWM"); peak > memory/10*11 {
			t.Errorf("%s: %d MiB were resident", attack.name, peak>>20)
		}
		t.Logf("%s: at most %d MiB were resident", attack.name, s.resident(t, "VmHWM")>>20)
		// What is still worked off may have the service refuse for a while, as overloaded.
		if got := s.answered(t, "query", "check", "ann", "bob"); !strings.Contains(got, "explicit") {
			t.Errorf("%s: then a caller is answered %s", attack.name, got)
		}
	}
}

// attacker is a client that can reach the port, and has no token.
type attacker struct {
	t    *testing.T
	addr string
}

// beside runs n at once, some times each, and waits until all have ended.
func beside(n, times int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range times {
				f()
			}
		})
	}
	wg.Wait()
}

// post sends a body, and reads the answer if there is one: a connection that is ended is one, too.
func (a *attacker) post(ctx context.Context, procedure, encoding string, body []byte) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.addr+procedure, bytes.NewReader(body))
	if err != nil {
		a.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/proto")
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

func packed(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body)
	_ = z.Close()
	return b.Bytes()
}

func (a *attacker) emptyItems(ctx context.Context) {
	// The field of the other users, empty, two million times.
	body := packed(bytes.Repeat([]byte{0x12, 0x00}, 2_000_000))
	beside(6, 5, func() {
		a.post(ctx, connectv1.GraphServiceBatchGetRelationshipsProcedure, "gzip", body)
		a.post(ctx, connectv1.GraphServiceBatchGetFollowCountsProcedure, "gzip", body)
	})
}

func (a *attacker) bombs(ctx context.Context) {
	body := packed(make([]byte, 32<<20))
	beside(16, 5, func() { a.post(ctx, connectv1.GraphServiceCheckFollowsProcedure, "gzip", body) })
}

func (a *attacker) wideWindows(ctx context.Context) {
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(128<<20))
	if err != nil {
		a.t.Error(err)
		return
	}
	body := z.EncodeAll(make([]byte, 256<<20), nil)
	beside(16, 5, func() { a.post(ctx, connectv1.GraphServiceCheckFollowsProcedure, "zstd", body) })
}

func (a *attacker) largeBodies(ctx context.Context) {
	body := bytes.Repeat([]byte{0x0a, 0x01, 'x'}, 3_800_000/3)
	beside(60, 2, func() { a.post(ctx, connectv1.GraphServiceBatchGetRelationshipsProcedure, "", body) })
}

func (a *attacker) largePublishes(ctx context.Context) {
	// Events of no kind whose ids are long.
	event := append([]byte{0x0a, 0x80, 0x08}, bytes.Repeat([]byte{'x'}, 1024)...)
	event = append(binary.AppendUvarint([]byte{0x0a}, uint64(len(event))), event...)
	body := bytes.Repeat(event, 700)
	beside(60, 5, func() { a.post(ctx, connectv1.EventServicePublishProcedure, "", body) })
}

func (a *attacker) dial(ctx context.Context) net.Conn {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.addr)
	if err != nil {
		return nil // there is no room for more
	}
	a.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func (a *attacker) halfRequests(ctx context.Context) {
	for range 2000 {
		if conn := a.dial(ctx); conn != nil {
			_, _ = io.WriteString(conn, "POST "+connectv1.GraphServiceCheckFollowsProcedure+
				" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\nContent-Length: 4000000\r\n\r\nx")
		}
	}
}

func (a *attacker) unreadAnswers(ctx context.Context) {
	call := "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for range 200 {
		conn := a.dial(ctx)
		if conn == nil {
			continue
		}
		// Until the server takes no more, or has ended the connection.
		_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, strings.Repeat(call, 100))
		}
	}
}

func (a *attacker) longHeads(ctx context.Context) {
	beside(50, 2, func() {
		if conn := a.dial(ctx); conn != nil {
			_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
			for n := 0; err == nil && n < 8<<20; n += 64 << 10 {
				_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", n, strings.Repeat("x", 64<<10))
			}
			conn.Close()
		}
	})
}

// http2Client is a connection whose frames the attacker writes; what the server says is thrown
// away.
func (a *attacker) http2Client(ctx context.Context, settings ...http2.Setting) *http2.Framer {
	conn := a.dial(ctx)
	if conn == nil {
		return nil
	}
	f := http2.NewFramer(conn, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil || f.WriteSettings(settings...) != nil {
		return nil
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until the connection is closed
	return f
}

func http2Head(procedure, contentType string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", procedure}, {"content-type", contentType}, {"te", "trailers"},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
	}
	return b.Bytes()
}

func (a *attacker) healthStreams(ctx context.Context) {
	head := http2Head("/grpc.health.v1.Health/Watch", "application/grpc")
	for range 18 {
		f := a.http2Client(ctx)
		for stream := uint32(1); f != nil && stream < 2*240; stream += 2 {
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}) != nil ||
				f.WriteData(stream, true, make([]byte, 5)) != nil {
				break
			}
		}
	}
}

// feedStreams opens streams of WatchFeed, more than the service admits, and has every one that is
// open count its feed again, some times. The streams stay open until the test ends.
func (a *attacker) feedStreams(ctx context.Context, streams int) {
	const owners = 20
	for first := 0; first < streams; first += 500 {
		var follows []*skeinv1.Event
		for i := first; i < min(first+500, streams); i++ {
			follows = append(follows, &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
				UserId: fmt.Sprint("reader", i), TargetUserId: fmt.Sprint("owner", i%owners),
			}}})
		}
		a.publish(ctx, follows)
	}

	a.openStreams(ctx, connectv1.FeedServiceWatchFeedProcedure, streams, func(i int) proto.Message {
		return &skeinv1.WatchFeedRequest{ReaderId: fmt.Sprint("reader", i)}
	})
	// Those beyond are refused by this budget, or before by that of all requests for streams.
	admitted := fmt.Sprint(maxFeedWatchStreams(minMemory))
	a.awaitMetric(ctx, `skein_budget_used{of="streams of skein.v1.FeedService/WatchFeed"} `+admitted)
	a.awaitMetric(ctx, `skein_budget_used{of="requests for streams"} `+admitted)

	for round := range 10 {
		var pins []*skeinv1.Event
		for owner := range owners {
			pins = append(pins, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: fmt.Sprint("owner", owner), PinId: fmt.Sprint("pin", round)}, ItemId: fmt.Sprint("item", round),
			}}})
		}
		a.publish(ctx, pins)
	}
	a.worked(ctx)
}

// openStreams calls a streaming method so many times, over connections of 240 streams each, and
// leaves the streams open.
func (a *attacker) openStreams(ctx context.Context, procedure string, streams int, requestOf func(i int) proto.Message) {
	const perConnection = 240
	head := http2Head(procedure, "application/connect+proto")
	for first := 0; first < streams; first += perConnection {
		f := a.http2Client(ctx)
		if f == nil || f.WriteWindowUpdate(0, 1<<30) != nil {
			a.t.Error("a connection is refused")
			return
		}
		for i := first; i < min(first+perConnection, streams); i++ {
			request, err := proto.Marshal(requestOf(i))
			if err != nil {
				a.t.Error(err)
				return
			}
			stream := uint32(2*(i-first) + 1)
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true})
			if err == nil {
				err = f.WriteData(stream, true, append([]byte{0, 0, 0, 0, byte(len(request))}, request...))
			}
			if err != nil {
				a.t.Error(err)
				return
			}
		}
	}
}

func (a *attacker) publish(ctx context.Context, evs []*skeinv1.Event) {
	body, err := proto.Marshal(&skeinv1.PublishRequest{Events: evs, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE})
	if err != nil {
		a.t.Error(err)
		return
	}
	a.post(ctx, connectv1.EventServicePublishProcedure, "", body)
}

func (a *attacker) closedWindows(ctx context.Context) {
	head := http2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	body, err := proto.Marshal(&skeinv1.ListFollowersRequest{UserId: "bob", PageSize: 1000})
	if err != nil {
		a.t.Error(err)
		return
	}
	for range 20 {
		f := a.http2Client(ctx, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for stream := uint32(1); f != nil && stream < 2*240; stream += 2 {
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}) != nil ||
				f.WriteData(stream, true, body) != nil {
				break
			}
		}
	}
	a.worked(ctx)
}

// worked waits until the service works on no call: all that came are refused, or wait for their
// client.
func (a *attacker) worked(ctx context.Context) { a.awaitMetric(ctx, `skein_budget_used{of="reads"} 0`) }

// awaitMetric waits until a line is among the metrics of the service.
func (a *attacker) awaitMetric(ctx context.Context, line string) {
	if err := eventually(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.addr+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err == nil && !strings.Contains(string(text), "\n"+line+"\n") {
			err = fmt.Errorf("the metrics do not have %s", line)
		}
		return err
	}); err != nil {
		a.t.Error(err)
	}
}

func (a *attacker) rapidResets(ctx context.Context) {
	head := http2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	beside(4, 1, func() {
		f := a.http2Client(ctx)
		for i := uint32(0); f != nil && i < 10_000; i++ {
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: head, EndHeaders: true}) != nil ||
				f.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
				return // the server has ended the connection
			}
		}
	})
}

func (a *attacker) continuations(ctx context.Context) {
	head := http2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	var more bytes.Buffer
	e := hpack.NewEncoder(&more)
	for more.Len() < 8<<10 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("x", 1000), Sensitive: true})
	}
	beside(8, 1, func() {
		f := a.http2Client(ctx)
		if f == nil || f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head}) != nil {
			return
		}
		for range 64 << 20 / more.Len() {
			if f.WriteContinuation(1, false, more.Bytes()) != nil {
				return // the server has ended the connection
			}
		}
	})
}

// resident returns a line of the process's status, in bytes.
func (s *server) resident(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name+":" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in\n%s", name, text)
	return 0
}

// answered asks until the service is not overloaded any more.
func (s *server) answered(t *testing.T, args ...string) (out string) {
	t.Helper()
	err := eventually(t.Context(), func(ctx context.Context) (err error) {
		if out, err = skeinRuns(ctx, s, "skein", "", args...); err != nil && !strings.Contains(out, "OVERLOADED") {
			t.Fatalf("%v\n%s", err, out)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// forgetPeak makes VmHWM what is resident now.
func (s *server) forgetPeak(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}
