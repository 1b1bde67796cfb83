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
func TestAttacksFitIntoMemory(t *testing.T) { //nolint:tparallel // the attacks follow one another, and add up
	t.Parallel()
	const maxResident = minMemory / 10 * 11
	s := startServer(t.Context(), t, "--memory", "256MiB", "--log-level", "error")

	// The long ids make a page of bob's followers 130 kB long.
	follows := `{"userFollowed":{"userId":"ann","targetUserId":"bob"}}` + "\n"
	for i := range 1000 {
		follows += fmt.Sprintf(`{"userFollowed":{"userId":"%s%d","targetUserId":"bob"}}`+"\n", strings.Repeat("x", 120), i)
	}
	mustSkein(t, s, "skein", follows, "publish", "--visible")

	// The attacker keeps connections open until the end of the whole test, so that the attacks add
	// up.
	a := &attacker{t: t, addr: s.addr}
	attacks := []struct {
		name string
		run  func(context.Context)
	}{
		{"lists of two million empty items, packed", a.sendEmptyItems},
		{"bodies that unpack to 32 MiB", a.sendBombs},
		{"bodies in zstd with a window of 128 MiB", a.sendWideWindows},
		{"large bodies", a.sendLargeBodies},
		{"large publishes", a.sendLargePublishes},
		{"connections that send half a request", a.sendHalfRequests},
		{"answers that are not read", a.leaveAnswersUnread},
		{"long heads", a.sendLongHeads},
		{"streams of health over HTTP2", a.openHealthStreams},
		{"streams of feeds over HTTP2, and pins for them", func(ctx context.Context) { a.openFeedStreams(ctx, 2000) }},
		{"long answers that are not read over HTTP2", a.keepWindowsClosed},
		{"calls over HTTP2 that are canceled at once", a.resetStreams},
		{"a head over HTTP2 without an end", a.sendContinuations},
	}

	if testing.Short() {
		attacks = attacks[:3]
	}

	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			s.resetPeakMemory(t)
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			attack.run(ctx)
			cancel()

			peak := s.residentBytes(t, "VmHWM")
			t.Logf("at most %d MiB were resident", peak>>20)
			if peak > maxResident {
				t.Errorf("peak of resident memory: got %d MiB, want at most %d MiB", peak>>20, int64(maxResident)>>20)
			}

			// The service may refuse calls as overloaded until it has finished the calls of the
			// attack.
			if got, want := s.queryUntilAdmitted(t, "query", "check", "ann", "bob"), "explicit"; !strings.Contains(got, want) {
				t.Errorf("query after the attack: got %q, want %q in it", got, want)
			}
		})
	}
}

// attacker is a client without a token that can reach the port.
type attacker struct {
	t    *testing.T
	addr string
}

// runConcurrently runs f in n goroutines, the given number of times in each, and waits until all
// have ended.
func runConcurrently(n, times int, f func()) {
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

// post sends a body and reads the answer. It ignores errors, because the server may close the
// connection.
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

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
}

// gzipBytes compresses a body.
func gzipBytes(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body)
	_ = z.Close()
	return b.Bytes()
}

// sendEmptyItems sends compressed lists of two million empty user ids.
func (a *attacker) sendEmptyItems(ctx context.Context) {
	// 0x12 0x00 is field 2, the other users, with an empty string.
	body := gzipBytes(bytes.Repeat([]byte{0x12, 0x00}, 2_000_000))
	runConcurrently(6, 5, func() {
		a.post(ctx, connectv1.GraphServiceBatchGetRelationshipsProcedure, "gzip", body)
		a.post(ctx, connectv1.GraphServiceBatchGetFollowCountsProcedure, "gzip", body)
	})
}

// sendBombs sends small bodies that decompress to 32 MiB.
func (a *attacker) sendBombs(ctx context.Context) {
	body := gzipBytes(make([]byte, 32<<20))
	runConcurrently(16, 5, func() { a.post(ctx, connectv1.GraphServiceCheckFollowsProcedure, "gzip", body) })
}

// sendWideWindows sends bodies that a decoder needs a window of 128 MiB for.
func (a *attacker) sendWideWindows(ctx context.Context) {
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(128<<20))
	if err != nil {
		a.t.Error(err)
		return
	}
	body := z.EncodeAll(make([]byte, 256<<20), nil)
	runConcurrently(16, 5, func() { a.post(ctx, connectv1.GraphServiceCheckFollowsProcedure, "zstd", body) })
}

// sendLargeBodies sends lists of users of almost 4 MB.
func (a *attacker) sendLargeBodies(ctx context.Context) {
	// 0x0a 0x01 is field 1 with a string of one byte.
	body := bytes.Repeat([]byte{0x0a, 0x01, 'x'}, 3_800_000/3)
	runConcurrently(60, 2, func() { a.post(ctx, connectv1.GraphServiceBatchGetRelationshipsProcedure, "", body) })
}

// sendLargePublishes sends publishes of events that have long ids and no kind.
func (a *attacker) sendLargePublishes(ctx context.Context) {
	// 0x0a is field 1, which is the id in an event, and the list of events in a request. 0x80 0x08
	// is the length 1024.
	event := append([]byte{0x0a, 0x80, 0x08}, bytes.Repeat([]byte{'x'}, 1024)...)
	event = append(binary.AppendUvarint([]byte{0x0a}, uint64(len(event))), event...)
	body := bytes.Repeat(event, 700)
	runConcurrently(60, 5, func() { a.post(ctx, connectv1.EventServicePublishProcedure, "", body) })
}

// dial opens a connection until the end of the test. It returns nil if the server takes no more
// connections.
func (a *attacker) dial(ctx context.Context) net.Conn {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.addr)
	if err != nil {
		return nil
	}
	a.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	return conn
}

// sendHalfRequests opens connections that send the head and the first byte of a large request, and
// then nothing.
func (a *attacker) sendHalfRequests(ctx context.Context) {
	const head = "POST " + connectv1.GraphServiceCheckFollowsProcedure +
		" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/proto\r\nContent-Length: 4000000\r\n\r\n"
	for range 2000 {
		if conn := a.dial(ctx); conn != nil {
			_, _ = io.WriteString(conn, head+"x")
		}
	}
}

// leaveAnswersUnread sends requests without reading the answers.
func (a *attacker) leaveAnswersUnread(ctx context.Context) {
	requests := strings.Repeat("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)
	for range 200 {
		conn := a.dial(ctx)
		if conn == nil {
			continue
		}

		// Write until the server takes no more, or closes the connection.
		_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		for {
			if _, err := io.WriteString(conn, requests); err != nil {
				break
			}
		}
	}
}

// sendLongHeads sends requests with 8 MiB of headers.
func (a *attacker) sendLongHeads(ctx context.Context) {
	runConcurrently(50, 2, func() {
		conn := a.dial(ctx)
		if conn == nil {
			return
		}
		defer conn.Close()

		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
		for sent := 0; err == nil && sent < 8<<20; sent += 64 << 10 {
			_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", sent, strings.Repeat("x", 64<<10))
		}
	})
}

// dialHTTP2 opens a connection on which the attacker writes HTTP/2 frames. It discards everything
// that the server sends. It returns nil if the server refuses the connection.
func (a *attacker) dialHTTP2(ctx context.Context, settings ...http2.Setting) *http2.Framer {
	conn := a.dial(ctx)
	if conn == nil {
		return nil
	}

	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil
	}
	framer := http2.NewFramer(conn, nil)
	if err := framer.WriteSettings(settings...); err != nil {
		return nil
	}

	// This goroutine ends when the connection is closed at the end of the test.
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return framer
}

// writeHTTP2Request writes a whole request on a stream of its own.
func writeHTTP2Request(framer *http2.Framer, stream uint32, head, body []byte) error {
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}); err != nil {
		return err
	}
	return framer.WriteData(stream, true, body)
}

// writeHTTP2Requests writes the same request on 240 streams, or on fewer if the server ends the
// connection. Each stream needs an odd number that is greater than the one before.
func writeHTTP2Requests(framer *http2.Framer, head, body []byte) {
	for i := range uint32(240) {
		if err := writeHTTP2Request(framer, 2*i+1, head, body); err != nil {
			return
		}
	}
}

// encodeHTTP2Head encodes the headers of a request. They are sensitive, so that they do not enter
// the table of the connection, and the same bytes can be sent on any connection.
func encodeHTTP2Head(procedure, contentType string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, header := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", procedure}, {"content-type", contentType}, {"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: header[0], Value: header[1], Sensitive: true})
	}
	return block.Bytes()
}

// openHealthStreams opens streams that watch the health of the service.
func (a *attacker) openHealthStreams(ctx context.Context) {
	head := encodeHTTP2Head("/grpc.health.v1.Health/Watch", "application/grpc")
	emptyMessage := make([]byte, 5)
	for range 18 {
		if framer := a.dialHTTP2(ctx); framer != nil {
			writeHTTP2Requests(framer, head, emptyMessage)
		}
	}
}

// openFeedStreams opens more streams of WatchFeed than the service admits, and publishes pins ten
// times, so that every open stream counts its feed again. The streams stay open until the test
// ends.
func (a *attacker) openFeedStreams(ctx context.Context, streams int) {
	const owners = 20
	for first := 0; first < streams; first += 500 {
		var follows []*skeinv1.Event
		for i := first; i < min(first+500, streams); i++ {
			follows = append(follows, userFollowed(fmt.Sprint("reader", i), fmt.Sprint("owner", i%owners)))
		}
		a.publish(ctx, follows)
	}

	a.openStreams(ctx, connectv1.FeedServiceWatchFeedProcedure, streams, func(i int) proto.Message {
		return &skeinv1.WatchFeedRequest{ReaderId: fmt.Sprint("reader", i)}
	})

	// Wait until every stream is either open or refused, so that the pins reach all open ones.
	// Either budget refuses the streams beyond the limit.
	admitted := fmt.Sprint(maxFeedWatchStreams(minMemory))
	a.waitForMetric(ctx, `skein_budget_used{of="streams of skein.v1.FeedService/WatchFeed"} `+admitted)
	a.waitForMetric(ctx, `skein_budget_used{of="requests for streams"} `+admitted)

	for round := range 10 {
		var pins []*skeinv1.Event
		for owner := range owners {
			pins = append(pins, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
				Pin: &skeinv1.Pin{OwnerId: fmt.Sprint("owner", owner), PinId: fmt.Sprint("pin", round)}, ItemId: fmt.Sprint("item", round),
			}}})
		}
		a.publish(ctx, pins)
	}
	a.waitUntilIdle(ctx)
}

// openStreams calls a streaming method this many times, over connections of 240 streams each, and
// leaves the streams open.
func (a *attacker) openStreams(ctx context.Context, procedure string, streams int, requestOf func(i int) proto.Message) {
	const perConnection = 240
	head := encodeHTTP2Head(procedure, "application/connect+proto")
	for first := 0; first < streams; first += perConnection {
		framer := a.dialHTTP2(ctx)
		if framer == nil {
			a.t.Errorf("connection for the streams from %d on: got it refused, want it open", first)
			return
		}

		// The client never reports what it has read. Without a large window, the answers on all
		// streams of a connection would soon wait for each other.
		if err := framer.WriteWindowUpdate(0, 1<<30); err != nil {
			a.t.Error(err)
			return
		}

		for i := first; i < min(first+perConnection, streams); i++ {
			request, err := proto.Marshal(requestOf(i))
			if err != nil {
				a.t.Error(err)
				return
			}

			// A message of the Connect protocol begins with a byte of flags and its length in four
			// bytes. These requests are shorter than 256 bytes.
			message := append([]byte{0, 0, 0, 0, byte(len(request))}, request...)
			stream := uint32(2*(i-first) + 1)
			if err := writeHTTP2Request(framer, stream, head, message); err != nil {
				a.t.Error(err)
				return
			}
		}
	}
}

// publish publishes events and waits until they are visible.
func (a *attacker) publish(ctx context.Context, evs []*skeinv1.Event) {
	body, err := proto.Marshal(&skeinv1.PublishRequest{Events: evs, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE})
	if err != nil {
		a.t.Error(err)
		return
	}
	a.post(ctx, connectv1.EventServicePublishProcedure, "", body)
}

// keepWindowsClosed asks for long answers on streams whose flow-control window is zero, so that the
// server cannot send them.
func (a *attacker) keepWindowsClosed(ctx context.Context) {
	head := encodeHTTP2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	body, err := proto.Marshal(&skeinv1.ListFollowersRequest{UserId: "bob", PageSize: 1000})
	if err != nil {
		a.t.Error(err)
		return
	}
	closedWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for range 20 {
		if framer := a.dialHTTP2(ctx, closedWindow); framer != nil {
			writeHTTP2Requests(framer, head, body)
		}
	}
	a.waitUntilIdle(ctx)
}

// waitUntilIdle waits until the service works on no call: every call was refused, or waits for its
// client.
func (a *attacker) waitUntilIdle(ctx context.Context) {
	a.waitForMetric(ctx, `skein_budget_used{of="reads"} 0`)
}

// waitForMetric waits until the metrics of the service have a line.
func (a *attacker) waitForMetric(ctx context.Context, line string) {
	err := eventually(ctx, func(ctx context.Context) error {
		_, text, err := httpGet(ctx, http.DefaultClient, "http://"+a.addr+"/metrics")
		if err != nil {
			return err
		}
		if !strings.Contains(text, "\n"+line+"\n") {
			return fmt.Errorf("the metrics do not have %s", line)
		}
		return nil
	})
	if err != nil {
		a.t.Error(err)
	}
}

// resetStreams cancels each call right after it was sent.
func (a *attacker) resetStreams(ctx context.Context) {
	head := encodeHTTP2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	runConcurrently(4, 1, func() {
		framer := a.dialHTTP2(ctx)
		if framer == nil {
			return
		}

		// An error means that the server has ended the connection.
		for i := range uint32(10_000) {
			stream := 2*i + 1
			if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}); err != nil {
				return
			}
			if err := framer.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
				return
			}
		}
	})
}

// sendContinuations sends a head of 64 MiB in frames of 8 KiB, which never ends.
func (a *attacker) sendContinuations(ctx context.Context) {
	head := encodeHTTP2Head(connectv1.GraphServiceListFollowersProcedure, "application/proto")
	var moreHeaders bytes.Buffer
	encoder := hpack.NewEncoder(&moreHeaders)
	for moreHeaders.Len() < 8<<10 {
		_ = encoder.WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("x", 1000), Sensitive: true})
	}

	runConcurrently(8, 1, func() {
		framer := a.dialHTTP2(ctx)
		if framer == nil {
			return
		}

		// An error means that the server has ended the connection.
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head}); err != nil {
			return
		}
		for range 64 << 20 / moreHeaders.Len() {
			if err := framer.WriteContinuation(1, false, moreHeaders.Bytes()); err != nil {
				return
			}
		}
	})
}

// residentBytes returns a line of /proc/PID/status in bytes: VmRSS, what is resident now, or VmHWM,
// the peak.
func (s *serverProcess) residentBytes(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		// A line of memory has a name, a number and the unit kB, which is 1024 bytes.
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != name+":" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
	t.Fatalf("no %s in\n%s", name, text)
	return 0
}

// queryUntilAdmitted runs a command until the service no longer refuses it as overloaded.
func (s *serverProcess) queryUntilAdmitted(t *testing.T, args ...string) (out string) {
	t.Helper()
	err := eventually(t.Context(), func(ctx context.Context) (err error) {
		out, err = runProgramWithTimeout(ctx, s, "skein", "", args...)
		if err != nil && !strings.Contains(out, "OVERLOADED") {
			t.Fatalf("skein %v: got error %v, want success or OVERLOADED; output:\n%s", args, err, out)
		}
		return err
	})
	if err != nil {
		t.Fatalf("skein %v: got error %v, want success; output:\n%s", args, err, out)
	}
	return out
}

// resetPeakMemory sets VmHWM to what is resident now.
func (s *serverProcess) resetPeakMemory(t *testing.T) {
	t.Helper()

	// Linux resets the peak when 5 is written to this file.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}
