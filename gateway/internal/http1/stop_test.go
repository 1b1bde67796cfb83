package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-feed/skein/gateway/internal/http1/http1test"
)

// TestSilentConnectionsAreClosed demands that a connection on which requests arrive too slowly, or
// not at all, is closed in time, and so is a connection whose client does not read its answers.
func TestSilentConnectionsAreClosed(t *testing.T) {
	request := http1test.Request(http1test.MethodPath, "", "abc")
	for name, c := range map[string]struct {
		sent string
		// answers is how many the client reads.
		answers  int
		min, max time.Duration
	}{
		"nothing":               {"", 0, 10 * time.Second, 10 * time.Second},
		"half a head":           {request[:70], 0, 10 * time.Second, 10 * time.Second},
		"half a body":           {request[:len(request)-1], 0, 30 * time.Second, 31 * time.Second},
		"no further request":    {request, 1, 119 * time.Second, 2 * time.Minute},
		"half a further head":   {request + request[:70], 1, 10 * time.Second, 10 * time.Second},
		"an answer not taken":   {request, 0, 29 * time.Second, 31 * time.Second},
		"not for the loop":      {http1test.LastRequest[:20], 0, 10 * time.Second, 20 * time.Second},
		"half a further GET":    {request + http1test.LastRequest[:20], 1, 10 * time.Second, 20 * time.Second},
		"answer 2 is not taken": {request + request, 1, 29 * time.Second, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := http1test.NewPipes()
				_, stop := startLoop(t, l, &echoServer{})
				begun := time.Now()
				conn, closed := l.DialWatched()
				defer conn.Close()
				if c.sent != "" {
					go func() { _, _ = io.WriteString(conn, c.sent) }()
				}
				r := bufio.NewReaderSize(conn, 16)
				for range c.answers {
					res, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if !strings.Contains(name, "taken") {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}

				<-closed
				if took := time.Since(begun); took < c.min || took > c.max {
					t.Errorf("closed after %v, expected %v to %v", took, c.min, c.max)
				}
				conn.Close()
				stop()
			})
		})
	}
}

// waitingMethod answers a call when it is told to.
type waitingMethod struct {
	begun, end chan struct{}
}

func newWaitingMethod() *waitingMethod {
	return &waitingMethod{begun: make(chan struct{}, 10), end: make(chan struct{}, 10)}
}

func (w *waitingMethod) answer(ctx context.Context, body, dst []byte) ([]byte, error) {
	w.begun <- struct{}{}
	select {
	case <-w.end:
		return append(dst, body...), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestShutdownAnswersCalls demands that a shutdown closes connections without a call at once, and
// connections with a call after the answer. A connection on which nothing has arrived yet may still
// bring a call.
func TestShutdownAnswersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, method := http1test.NewPipes(), newWaitingMethod()
		s := &echoServer{method: method.answer}
		_, stop := startLoop(t, l, s)
		request := []byte(http1test.Request(http1test.MethodPath, "", "abc"))
		// isLastAnswer reads an answer, and reports whether it closes its connection.
		isLastAnswer := func(conn net.Conn) bool {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "abc" {
				t.Errorf("got %q, %v", body, err)
			}
			return res.Close
		}
		send := func(conn net.Conn, data []byte) {
			if _, err := conn.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		idle := l.Dial()
		busy := l.Dial()
		half := l.Dial()
		fresh := l.Dial()
		passed := l.Dial()
		for _, conn := range []net.Conn{idle, busy, half, fresh, passed} {
			defer conn.Close()
		}

		// Before the shutdown, one connection is idle after its call, and one has a call that
		// waits. Two have parts of a head, of which net/http gets one.
		send(passed, []byte(http1test.LastRequest[:20]))
		send(half, request[:100])
		method.end <- struct{}{}
		send(idle, request)
		if isLastAnswer(idle) {
			t.Error("an answer closes its connection before the server stops")
		}
		send(busy, request)
		<-method.begun
		<-method.begun

		s.draining.Store(true)
		stopped := make(chan struct{})
		begun := time.Now()
		go func() { defer close(stopped); stop() }()
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begun) > 0 {
			t.Errorf("an idle connection ends with %v after %v, expected EOF at once", err, time.Since(begun))
		}

		// A call that begins now is answered, too, and ends its connection.
		close(method.end)
		send(half, request[100:])
		send(fresh, request)
		for _, conn := range []net.Conn{busy, half, fresh} {
			if !isLastAnswer(conn) {
				t.Error("an answer keeps its connection")
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, expected EOF", err)
			}
		}
		<-stopped

		// net/http counts whole seconds, and looks now and then.
		if took := time.Since(begun); took > freshPatience+2*time.Second {
			t.Errorf("stopped after %v, expected at most %v", took, freshPatience+2*time.Second)
		}
	})
}

// TestCloseInterruptsCalls demands that a shutdown that takes too long returns an error, and that
// Close then interrupts the calls.
func TestCloseInterruptsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, method := http1test.NewPipes(), newWaitingMethod()
		loop, stop := startLoop(t, l, &echoServer{method: method.answer})
		conn := l.Dial()
		if _, err := conn.Write([]byte(http1test.Request(http1test.MethodPath, "", "abc"))); err != nil {
			t.Fatal(err)
		}
		<-method.begun

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := loop.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, expected %v", err, context.DeadlineExceeded)
		}
		if err := loop.Close(); err != nil {
			t.Error(err)
		}
		if all, err := io.ReadAll(conn); len(all) > 0 {
			t.Errorf("got %q, %v, expected no answer", all, err)
		}
		stop()
	})
}

// TestShutdownWaitsForNewConnections demands that a connection that was opened just before a
// shutdown gets a little time to bring a call.
func TestShutdownWaitsForNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := http1test.NewPipes()
		_, stop := startLoop(t, l, &echoServer{})
		conn := l.Dial()
		defer conn.Close()
		synctest.Wait()
		begun := time.Now()
		stop()
		if took := time.Since(begun); took != freshPatience {
			t.Errorf("stopped after %v, expected %v", took, freshPatience)
		}
	})
}

// TestPanicEndsItsConnectionOnly demands that a panic of a method closes its connection without an
// answer, and affects nothing else.
func TestPanicEndsItsConnectionOnly(t *testing.T) {
	for name, value := range map[string]any{"abort": http.ErrAbortHandler, "bug": "a bug"} {
		t.Run(name, func(t *testing.T) {
			l := http1test.NewPipes()
			s := &echoServer{method: func(context.Context, []byte, []byte) ([]byte, error) { panic(value) }}
			_, stop := startLoop(t, l, s)
			for range 3 {
				if got := http1test.Exchange(t, l.Dial(), []byte(http1test.Request(http1test.MethodPath, "", "abc"))); got != "" {
					t.Errorf("got %q, expected no answer", got)
				}
			}
			stop()
			if opened, ended := s.opened.Load(), s.ended.Load(); opened != 3 || ended != 3 {
				t.Errorf("%d sessions were opened and %d closed, expected 3", opened, ended)
			}
		})
	}
}

// TestTemporaryListenerErrorIsRetried demands that the loop calls Accept again after a temporary
// error of the listener.
func TestTemporaryListenerErrorIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failingListener{Pipes: http1test.NewPipes(), times: 5}
		_, stop := startLoop(t, l, &echoServer{})
		request := []byte(http1test.Request(http1test.MethodPath, "", "abc") + http1test.LastRequest)
		if got := http1test.Exchange(t, l.Dial(), request); !strings.Contains(got, "abc") {
			t.Errorf("got %q, expected an answer", got)
		}
		stop()
	})
}

// failingListener fails the first times.
type failingListener struct {
	*http1test.Pipes
	times int
}

// temporaryError is an error after which a listener may work again.
type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }

func (f *failingListener) Accept() (net.Conn, error) {
	if f.times--; f.times >= 0 {
		return nil, temporaryError{errors.New("too many open files")}
	}
	return f.Pipes.Accept()
}
