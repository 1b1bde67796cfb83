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

// TestSilentConnectionsAreClosed checks that a connection on which requests arrive too slowly, or
// not at all, is closed in time, and so is a connection whose client does not read its answers.
func TestSilentConnectionsAreClosed(t *testing.T) {
	request := http1test.Request(http1test.MethodPath, "", "abc")
	for name, c := range map[string]struct {
		sent string
		// answers is how many answers the client reads.
		answers int
		// stopsReading says that the client reads nothing after those answers.
		stopsReading bool
		// minTime and maxTime limit the time until the connection is closed. The loop may set
		// deadlines a second early, and net/http starts its own when it gets the connection.
		minTime, maxTime time.Duration
	}{
		"nothing":                     {"", 0, false, 10 * time.Second, 10 * time.Second},
		"a part of a head":            {request[:70], 0, false, 10 * time.Second, 10 * time.Second},
		"a part of a body":            {request[:len(request)-1], 0, false, 30 * time.Second, 31 * time.Second},
		"no second request":           {request, 1, false, 119 * time.Second, 2 * time.Minute},
		"a part of a second head":     {request + request[:70], 1, false, 10 * time.Second, 10 * time.Second},
		"a part of a GET":             {http1test.LastRequest[:20], 0, false, 10 * time.Second, 20 * time.Second},
		"a part of a GET as second":   {request + http1test.LastRequest[:20], 1, false, 10 * time.Second, 20 * time.Second},
		"the answer is not read":      {request, 0, true, 29 * time.Second, 31 * time.Second},
		"the second answer is unread": {request + request, 1, true, 29 * time.Second, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := http1test.NewPipes()
				_, stop := startLoop(t, l, &echoServer{})
				start := time.Now()
				conn, closed := l.DialWatched()
				defer conn.Close()
				if c.sent != "" {
					go func() { _, _ = io.WriteString(conn, c.sent) }()
				}

				// The buffer is small, so that it does not take the answer that is not to be read.
				r := bufio.NewReaderSize(conn, 16)
				for range c.answers {
					res, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if !c.stopsReading {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}

				<-closed
				if took := time.Since(start); took < c.minTime || took > c.maxTime {
					t.Errorf("time until the connection was closed: got %v, want %v to %v", took, c.minTime, c.maxTime)
				}
				conn.Close()
				stop()
			})
		})
	}
}

// waitingMethod is a method that answers each call only after a value arrives on end, or end is
// closed. It sends a value to begun when it is called.
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

// mustWrite sends a request, or a part of one, and stops the test if that fails.
func mustWrite(t *testing.T, conn net.Conn, data []byte) {
	t.Helper()
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
}

// mustReadAnswer reads the answer to a call with the body "abc". It reports whether the answer
// closes its connection.
func mustReadAnswer(t *testing.T, conn net.Conn) (closes bool) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "abc" {
		t.Errorf("body of the answer: got %q and the error %v, want \"abc\"", body, err)
	}
	return res.Close
}

// TestShutdownAnswersCalls checks that a shutdown closes connections without a call at once, and
// connections with a call after the answer. A connection on which nothing has arrived yet may still
// bring a call.
func TestShutdownAnswersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := http1test.NewPipes()
		method := newWaitingMethod()
		s := &echoServer{method: method.answer}
		_, stop := startLoop(t, l, s)
		request := []byte(http1test.Request(http1test.MethodPath, "", "abc"))

		idle := l.Dial()
		busy := l.Dial()
		partialHead := l.Dial()
		silent := l.Dial()
		passed := l.Dial()
		for _, conn := range []net.Conn{idle, busy, partialHead, silent, passed} {
			defer conn.Close()
		}

		// Before the shutdown, idle has an answered call, and busy has a call that waits.
		// partialHead and passed have parts of a head. The loop passes passed to net/http, because
		// its request is a GET.
		mustWrite(t, passed, []byte(http1test.LastRequest[:20]))
		mustWrite(t, partialHead, request[:100])
		method.end <- struct{}{}
		mustWrite(t, idle, request)
		if mustReadAnswer(t, idle) {
			t.Error("an answer before the shutdown closes its connection, want it kept")
		}
		mustWrite(t, busy, request)
		<-method.begun // of idle
		<-method.begun // of busy

		s.isDraining.Store(true)
		stopped := make(chan struct{})
		start := time.Now()
		go func() {
			defer close(stopped)
			stop()
		}()
		_, err := idle.Read(make([]byte, 1))
		if took := time.Since(start); !errors.Is(err, io.EOF) || took > 0 {
			t.Errorf("the idle connection: got the error %v after %v, want EOF at once", err, took)
		}

		// Calls that begin now are answered, too. Each answer closes its connection.
		close(method.end)
		mustWrite(t, partialHead, request[100:])
		mustWrite(t, silent, request)
		for name, conn := range map[string]net.Conn{"busy": busy, "partialHead": partialHead, "silent": silent} {
			if !mustReadAnswer(t, conn) {
				t.Errorf("%s: the answer keeps its connection, want it closed", name)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%s after its answer: got the error %v, want EOF", name, err)
			}
		}
		<-stopped

		// net/http gives the connection passed about as much time as the loop would. It counts that
		// in whole seconds, and checks only now and then.
		const maxTime = freshPatience + 2*time.Second
		if took := time.Since(start); took > maxTime {
			t.Errorf("time until the shutdown ended: got %v, want at most %v", took, maxTime)
		}
	})
}

// TestCloseInterruptsCalls checks that a shutdown that takes too long returns an error, and that
// Close then interrupts the calls.
func TestCloseInterruptsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := http1test.NewPipes()
		method := newWaitingMethod()
		loop, stop := startLoop(t, l, &echoServer{method: method.answer})
		conn := l.Dial()
		mustWrite(t, conn, []byte(http1test.Request(http1test.MethodPath, "", "abc")))
		<-method.begun

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := loop.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: got the error %v, want %v", err, context.DeadlineExceeded)
		}
		if err := loop.Close(); err != nil {
			t.Errorf("Close: got the error %v, want none", err)
		}
		if answer, err := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("the interrupted call: got the answer %q and the error %v, want no answer", answer, err)
		}
		stop()
	})
}

// TestShutdownWaitsForNewConnections checks that a connection that was opened just before a
// shutdown gets a little time to bring a call.
func TestShutdownWaitsForNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := http1test.NewPipes()
		_, stop := startLoop(t, l, &echoServer{})
		conn := l.Dial()
		defer conn.Close()
		synctest.Wait()

		start := time.Now()
		stop()
		if took := time.Since(start); took != freshPatience {
			t.Errorf("time until the shutdown ended: got %v, want %v", took, freshPatience)
		}
	})
}

// TestPanicEndsItsConnectionOnly checks that a panic of a method closes its connection without an
// answer, and affects nothing else.
func TestPanicEndsItsConnectionOnly(t *testing.T) {
	for name, value := range map[string]any{"http.ErrAbortHandler": http.ErrAbortHandler, "a bug": "a bug"} {
		t.Run(name, func(t *testing.T) {
			l := http1test.NewPipes()
			s := &echoServer{method: func(context.Context, []byte, []byte) ([]byte, error) { panic(value) }}
			_, stop := startLoop(t, l, s)
			const calls = 3
			for range calls {
				request := []byte(http1test.Request(http1test.MethodPath, "", "abc"))
				if got := http1test.Exchange(t, l.Dial(), request); got != "" {
					t.Errorf("got the answer %q, want none", got)
				}
			}
			stop()

			if got := s.openedSessions.Load(); got != calls {
				t.Errorf("opened sessions: got %d, want %d", got, calls)
			}
			if got := s.closedSessions.Load(); got != calls {
				t.Errorf("closed sessions: got %d, want %d", got, calls)
			}
		})
	}
}

// failingListener is a listener on which the first calls of Accept fail.
type failingListener struct {
	*http1test.Pipes
	remainingFailures int
}

// temporaryError is an error after which a listener may work again.
type temporaryError struct{ error }

func (temporaryError) Temporary() bool { return true }

func (f *failingListener) Accept() (net.Conn, error) {
	if f.remainingFailures > 0 {
		f.remainingFailures--
		return nil, temporaryError{errors.New("too many open files")}
	}
	return f.Pipes.Accept()
}

// TestTemporaryListenerErrorIsRetried checks that the loop calls Accept again after a temporary
// error of the listener.
func TestTemporaryListenerErrorIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failingListener{Pipes: http1test.NewPipes(), remainingFailures: 5}
		_, stop := startLoop(t, l, &echoServer{})
		request := []byte(http1test.Request(http1test.MethodPath, "", "abc") + http1test.LastRequest)
		if got := http1test.Exchange(t, l.Dial(), request); !strings.Contains(got, "abc") {
			t.Errorf("got the answer %q, want \"abc\" in it", got)
		}
		stop()
	})
}
