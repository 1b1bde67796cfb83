package gateway

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
)

// What comes too slowly, or not at all, is cut off in time; who does not take an answer, too.
func TestFrontTimeouts(t *testing.T) {
	request := requestText(checkPath, "", "abc")
	for name, c := range map[string]struct {
		sent string
		// answers is how many are read.
		answers  int
		min, max time.Duration
	}{
		"nothing":               {"", 0, 10 * time.Second, 10 * time.Second},
		"half a head":           {request[:70], 0, 10 * time.Second, 10 * time.Second},
		"half a body":           {request[:len(request)-1], 1, 30 * time.Second, 31 * time.Second},
		"no further request":    {request, 1, 119 * time.Second, 2 * time.Minute},
		"half a further head":   {request + request[:70], 1, 10 * time.Second, 10 * time.Second},
		"an answer not taken":   {request, 0, 29 * time.Second, 31 * time.Second},
		"not for the loop":      {lastOf[:20], 0, 10 * time.Second, 20 * time.Second},
		"half a further GET":    {request + lastOf[:20], 1, 10 * time.Second, 20 * time.Second},
		"answer 2 is not taken": {request + request, 1, 29 * time.Second, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				ctx, cancel := context.WithCancel(t.Context())
				_, ended := echoing(ctx, l, echo{})
				begun := time.Now()
				conn, closed := l.dialWatched()
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
					t.Errorf("closed after %v, want %v to %v", took, c.min, c.max)
				}
				conn.Close()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// waiting is a method that answers when it is let.
type waiting struct {
	echo
	begun chan struct{}
	end   chan struct{}
}

func (w waiting) answerPlain(ctx context.Context, from identity, body []byte, out *callBuffer) (int64, error) {
	w.begun <- struct{}{}
	select {
	case <-w.end:
		return w.echo.answerPlain(ctx, from, body, out)
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// When the server stops, connections without a call are closed at once, and those with one when it is answered. One on which
// nothing has come yet may still bring a call.
func TestFrontShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		method := waiting{begun: make(chan struct{}, 10), end: make(chan struct{}, 10)}
		s, ended := echoing(ctx, l, method)
		request := []byte(requestText(checkPath, "", "abc"))
		// closes reads an answer, and reports whether it is the last one of its connection.
		closes := func(conn net.Conn) bool {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != "abc" {
				t.Errorf("%q %v", body, err)
			}
			return res.Close
		}
		send := func(conn net.Conn, data []byte) {
			if _, err := conn.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		idle, busy, half, fresh, elsewhere := l.dial(), l.dial(), l.dial(), l.dial(), l.dial()
		send(elsewhere, []byte(lastOf[:20]))
		send(half, request[:100])
		method.end <- struct{}{}
		send(idle, request)
		if closes(idle) {
			t.Error("an answer closes its connection before the server stops")
		}
		send(busy, request)
		<-method.begun
		<-method.begun
		cancel()
		<-s.life.Done()
		stopped := time.Now()
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(stopped) > time.Second {
			t.Errorf("an idle connection ends with %v after %v", err, time.Since(stopped))
		}
		// What begins now is answered, too, and the last of its connection.
		close(method.end)
		send(half, request[100:])
		send(fresh, request)
		for _, conn := range []net.Conn{busy, half, fresh} {
			if !closes(conn) {
				t.Error("the connection stays open")
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took > 6*time.Second {
			t.Errorf("stopped after %v", took)
		}
		for _, conn := range []net.Conn{idle, busy, half, fresh, elsewhere} {
			conn.Close()
		}
	})
}

// What is not answered in time when the server stops is interrupted: the call, and the connection that nothing came on.
func TestFrontBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		method := waiting{begun: make(chan struct{}, 1)}
		_, ended := echoing(ctx, l, method)
		conn := l.dial()
		if _, err := conn.Write([]byte(requestText(checkPath, "", "abc"))); err != nil {
			t.Fatal(err)
		}
		<-method.begun
		cancel()
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if all, err := io.ReadAll(conn); len(all) > 0 {
			t.Errorf("%q %v", all, err)
		}
	})
}

// A connection that was opened just before the server stops has a little time to say something.
func TestFrontFreshAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		_, ended := echoing(ctx, l, echo{})
		conn := l.dial()
		synctest.Wait()
		stopped := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(stopped); took > drainGrace+freshPatience {
			t.Errorf("stopped after %v", took)
		}
		conn.Close()
	})
}

// panicking is a method with a bug beyond what answer contains.
type panicking struct {
	echo
	with any
}

var _, _ plainMethod = waiting{}, panicking{}

func (p panicking) answerPlain(context.Context, identity, []byte, *callBuffer) (int64, error) {
	panic(p.with)
}

// A panic ends its connection and nothing else.
func TestFrontPanics(t *testing.T) {
	for _, with := range []any{http.ErrAbortHandler, "a bug"} {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		s, ended := echoing(ctx, l, panicking{with: with})
		for range 3 {
			if got := converse(t, l.dial(), []byte(requestText(checkPath, "", "abc"))); got != "" {
				t.Errorf("%q", got)
			}
		}
		if n := s.budgets.UnderWay(); n != 0 {
			t.Errorf("%d calls are under way", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A listener that fails for a moment is asked again.
func TestFrontAcceptsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failing{pipes: newPipes(), times: 5}
		ctx, cancel := context.WithCancel(t.Context())
		_, ended := echoing(ctx, l, echo{})
		if got := converse(t, l.dial(), []byte(requestText(checkPath, "", "abc")+lastOf)); !strings.Contains(got, "abc") {
			t.Errorf("%q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type failing struct {
	*pipes
	times int
}

type passing struct{ error }

func (passing) Temporary() bool { return true }

func (f *failing) Accept() (net.Conn, error) {
	if f.times--; f.times >= 0 {
		return nil, passing{errors.New("too many open files")}
	}
	return f.pipes.Accept()
}
