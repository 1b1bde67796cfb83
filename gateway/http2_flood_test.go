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

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// h2Client is a client of HTTP/2 whose frames are written by the test.
type h2Client struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	// ended gets the error code of the server's GOAWAY frame when the connection ends, or io.EOF if
	// there was none.
	ended chan error
	// reset gets the number of each stream that the server resets. It is closed when the connection
	// ends.
	reset chan uint32
}

// h2Client opens a connection with the given settings of HTTP/2.
func (w *world) h2Client(t *testing.T, settings ...http2.Setting) *h2Client {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	f := &h2Client{
		Framer: http2.NewFramer(conn, conn), t: t, conn: conn, ended: make(chan error, 1),
		reset: make(chan uint32, 1000), // more than the server resets in any test, so that readFrames never blocks
	}
	// If the server has closed the connection already, the calls fail as well.
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = f.WriteSettings(settings...)

	readerEnded := make(chan struct{})
	go func() {
		defer close(readerEnded)
		f.readFrames()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-readerEnded
	})
	return f
}

// readFrames reads the frames of the server until the connection ends.
func (f *h2Client) readFrames() {
	cause := io.EOF
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			f.ended <- cause
			close(f.reset)
			return
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			cause = http2.ConnectionError(frame.ErrCode)
		case *http2.RSTStreamFrame:
			f.reset <- frame.StreamID
		}
	}
}

// h2Head returns the encoded header fields of a call by binary Connect.
func h2Head(procedure string, more ...string) []byte {
	return h2HeadOf(procedure, "application/proto", more...)
}

// h2HeadOf returns the encoded header fields of a call. The names and values in more are added.
func h2HeadOf(procedure, contentType string, more ...string) []byte {
	var encoded bytes.Buffer
	e := hpack.NewEncoder(&encoded)
	fields := append([]string{
		":method", "POST", ":scheme", "http", ":authority", "127.0.0.1", ":path", procedure, "content-type", contentType,
	}, more...)
	for i := 0; i < len(fields); i += 2 {
		// Sensitive fields change no table, so the encoded fields are the same for any stream.
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return encoded.Bytes()
}

// call begins a stream with a whole request, and reports whether the request could be written.
func (f *h2Client) call(stream uint32, head, body []byte) bool {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true}) == nil &&
		f.WriteData(stream, true, body) == nil
}

// awaitResets waits until the server has reset n streams. It returns false if the connection ends
// before that.
func (f *h2Client) awaitResets(n uint32) bool {
	for range n {
		if _, ok := <-f.reset; !ok {
			return false
		}
	}
	return true
}

// TestRapidResets checks that calls that are canceled as soon as they are made hold no more
// requests in memory than other calls do, that the service answers other callers meanwhile, and
// that nothing is held after the end of the connection.
func TestRapidResets(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
	body := marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: w.publish(follow("ann", "bob"))})
	usedBefore := w.server.budgets.Requests.Used()

	f := w.h2Client(t)
	head := h2Head(connectv1.GraphServiceListFollowersProcedure)
	for i := range uint32(20_000) {
		stream := 2*i + 1 // clients use odd numbers
		if !f.call(stream, head, body) || f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break // the server has ended the connection
		}
	}

	w.publish(follow("ann", "cid"))
	f.conn.Close()
	for w.server.budgets.Requests.Used() > usedBefore || w.server.budgets.InFlight() > 0 {
		runtime.Gosched()
	}

	// net/http runs 250 calls of a connection at a time, canceled or not. Two more are the calls of
	// Publish.
	if peak := w.server.budgets.Requests.Peak(); peak > 252 {
		t.Errorf("got up to %d calls at a time, want at most 252", peak)
	}
}

// TestHTTP2ContinuationFlood checks that header fields without an end, in CONTINUATION frames, end
// their connection before they fill the memory, and that other calls are answered afterwards.
func TestHTTP2ContinuationFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.h2Client(t)
	var fields bytes.Buffer
	e := hpack.NewEncoder(&fields)
	for fields.Len() < 8<<10 {
		_ = e.WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("x", 1000), Sensitive: true})
	}

	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h2Head(connectv1.GraphServiceListFollowersProcedure)})
	sent := 0
	for err == nil && sent < 64<<20 {
		err = f.WriteContinuation(1, false, fields.Bytes())
		sent += fields.Len()
	}
	if err == nil {
		t.Fatalf("the server took %d bytes of header fields, want it to end the connection", sent)
	}

	// A GOAWAY frame must have an error code. The connection may also end without such a frame.
	ended := <-f.ended
	if code := http2.ConnectionError(0); errors.As(ended, &code) && http2.ErrCode(code) == http2.ErrCodeNo {
		t.Errorf("end of the connection: got %v, want an error code", ended)
	}
	w.callsOfEachKind()
}

// slowCallsByHTTP2 sends calls on a connection and opens no window for their answers. It begins
// again on a new connection if the server closes the connection too early, because the machine is
// slow.
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
	t.Fatalf("the server ended all connections before it had %d calls", calls)
	return nil
}

// TestSlowReadersOfHTTP2 checks that streams end within the limit if their client opens no window
// for the answers, and that they hold nothing afterwards.
func TestSlowReadersOfHTTP2(t *testing.T) {
	t.Parallel()

	// The event is published through a server without the short limit, which a call of Publish may
	// exceed on a slow machine.
	publisher := newWorld(t)
	at := publisher.publish(follow("ann", "bob"))
	w := publisher.replica(func(o *worldOptions) { o.Limits.IOTimeout = time.Second })
	w.caughtUp(at)

	body := marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob"})
	const calls = 200
	wereReset := false
	for deadline := time.Now().Add(patienceOfTests); !wereReset; {
		if time.Now().After(deadline) {
			t.Fatalf("the server ended all connections before it had reset %d streams", calls)
		}
		f := w.slowCallsByHTTP2(t, calls, body)

		// Other callers are answered while the slow ones are connected, and afterwards.
		w.callsOfEachKind()
		// On a slow machine, the limit may have ended the connection before the server has read the
		// calls, which are in its buffers. Then the client begins again.
		wereReset = f.awaitResets(calls)
	}
	for w.server.budgets.Requests.Used() > 0 || w.server.budgets.Bytes.Used() > 0 {
		runtime.Gosched()
	}
	w.callsOfEachKind()
}
