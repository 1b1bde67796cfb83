package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// h2Client is a client of HTTP/2 that writes its own frames.
type h2Client struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	// ended reports how the server ended the connection: by its GOAWAY, or not.
	ended chan error
	// reset gets the streams that the server ended without their answer.
	reset chan uint32
}

func (w *world) h2Client(t *testing.T, settings ...http2.Setting) *h2Client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	f := &h2Client{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, ended: make(chan error, 1), reset: make(chan uint32, 1000)}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { defer close(read); f.read() }()
	t.Cleanup(func() { conn.Close(); <-read })
	return f
}

// read reads what the server says until it ends the connection.
func (f *h2Client) read() {
	why := io.EOF
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			f.ended <- why
			return
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			why = http2.ConnectionError(frame.ErrCode)
		case *http2.RSTStreamFrame:
			f.reset <- frame.StreamID
		}
	}
}

// h2Head is the encoded head of a call of binary Connect.
func h2Head(procedure string, more ...string) []byte {
	return h2HeadOf(procedure, "application/proto", more...)
}

func h2HeadOf(procedure, contentType string, more ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	fields := append([]string{
		":method", "POST", ":scheme", "http", ":authority", "127.0.0.1", ":path", procedure, "content-type", contentType,
	}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// call begins a stream with a whole request, and reports whether that could be written.
func (f *h2Client) call(stream uint32, head, body []byte) bool {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}) == nil &&
		f.WriteData(stream, true, body) == nil
}

// TestRapidResets: calls that are cancelled as soon as they are made hold no more than those that
// are not, and others are answered.
func TestRapidResets(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
	body, err := proto.Marshal(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: w.publish(follow("ann", "bob"))})
	if err != nil {
		t.Fatal(err)
	}
	before := w.server.budgets.Requests.Used()
	f, h := w.h2Client(t), h2Head(connectv1.GraphServiceListFollowersProcedure)
	for i := range uint32(20_000) {
		if !f.call(2*i+1, h, body) || f.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break // the server has ended the connection
		}
	}
	w.publish(follow("ann", "cid"))
	f.conn.Close()
	for w.server.budgets.Requests.Used() > before || w.server.budgets.InFlight() > 0 {
		runtime.Gosched()
	}
	b := w.server.budgets.Requests
	// net/http runs 250 of one connection at a time, cancelled or not; two are the publishers'.
	if b.Peak() > 252 {
		t.Errorf("%d calls were under way", b.Peak())
	}
}

// TestHTTP2ContinuationFlood: a head without an end ends its connection, and none of it is kept.
func TestHTTP2ContinuationFlood(t *testing.T) {
	w := newWorld(t)
	f := w.h2Client(t)
	block := h2Head(connectv1.GraphServiceListFollowersProcedure)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
	var more bytes.Buffer
	e := hpack.NewEncoder(&more)
	for more.Len() < 8<<10 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("x", 1000), Sensitive: true})
	}
	sent := 0
	for ; err == nil && sent < 64<<20; sent += more.Len() {
		err = f.WriteContinuation(1, false, more.Bytes())
	}
	if err == nil {
		t.Fatalf("the server took %d bytes of one head", sent)
	}
	ended := <-f.ended
	if code := http2.ConnectionError(0); errors.As(ended, &code) && http2.ErrCode(code) == http2.ErrCodeNo {
		t.Errorf("the connection ended with %v", ended)
	}
	w.callsOfEachKind()
}

// slowCallsByHTTP2 makes calls on a connection, and opens no window for their answers. It begins
// again if the server closes the connection because the machine is too slow.
func (w *world) slowCallsByHTTP2(t *testing.T, calls uint32, body []byte) *h2Client {
	t.Helper()
	head := h2Head(connectv1.GraphServiceListFollowersProcedure)
	for deadline := time.Now().Add(patienceOfTests); time.Now().Before(deadline); {
		f := w.h2Client(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		sent := uint32(0)
		for sent < calls && f.call(2*sent+1, head, body) {
			sent++
		}
		if sent == calls {
			return f
		}
		t.Logf("the server ended a connection after %d calls", sent)
	}
	t.Fatal("the server does not take the calls")
	return nil
}

// TestSlowReadersOfHTTP2: answers for which a client opens no window end in time, as streams, and
// hold nothing after that.
func TestSlowReadersOfHTTP2(t *testing.T) {
	t.Parallel()
	fast := newWorld(t)
	at := fast.publish(follow("ann", "bob"))
	// Honest calls to this server are made again if the machine is too slow for the limit.
	w := fast.replica(func(o *worldOptions) { o.Limits.IOTimeout = time.Second })
	w.caughtUp(at)
	body, err := proto.Marshal(&skeinv1.ListFollowersRequest{UserId: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	const calls = 200
	f := w.slowCallsByHTTP2(t, calls, body)
	w.callsOfEachKind()
	for range calls {
		<-f.reset
	}
	for w.server.budgets.Requests.Used() > 0 || w.server.budgets.Bytes.Used() > 0 {
		runtime.Gosched()
	}
	w.callsOfEachKind()
}
