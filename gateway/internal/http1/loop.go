package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Loop has all connections of a server. It answers the plain calls on them by itself, for what net/http costs more than a
// point read (docs/decisions/0017), and hands every connection on which anything else comes to net/http, for good and
// with all that was read and not answered:
//
//	accept ─▶ read ─▶ plain? ─ yes ─▶ answerPlain ─▶ write ─┐     fastpath_conn.go, fastpath_head.go, fastpath_answer.go
//	           ▲         │ no, or in doubt                  │
//	           │         ▼                                  │
//	           │    hand-off ─▶ net/http                    │     fastpath_handoff.go
//	           └────────────────────────────────────────────┘
//
// So a request is either answered whole by the loop, or read from its first byte by net/http: nothing is understood once
// by each. It does not matter which connections there are beside, or what they carry: TLS is done before the loop.
type Loop struct {
	Options
	l net.Listener
	// deaf closes the listener, once: not every listener bears more.
	deaf    func()
	handoff *handoff
	// rest is done when net/http no longer accepts connections that are handed over.
	rest sync.WaitGroup
	// life is the parent of the contexts of calls in the loop. It ends when a shutdown interrupts them.
	life context.Context //nolint:containedctx // the life of the connections, none of which began with a call
	end  context.CancelFunc
	date atomic.Pointer[dateText]

	// closing is set when no connection is to be kept after its answer.
	closing atomic.Bool
	mu      sync.Mutex
	// open are the connections in the loop.
	open map[*fastConn]struct{}
	// empty is closed when open has become empty. It is made by the shutdown that waits for it.
	empty chan struct{}
}

// New returns a loop for the connections of a listener. [Loop.Serve] starts it.
func New(l net.Listener, o Options) *Loop {
	f := &Loop{Options: o, l: l, handoff: newHandoff(l.Addr()), open: map[*fastConn]struct{}{}}
	f.deaf = sync.OnceFunc(func() { l.Close() })
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// Serve takes connections until the listener fails, or the loop is shut down or closed: then it returns nil. It is called once.
func (f *Loop) Serve() error {
	f.mu.Lock()
	if f.closing.Load() {
		f.mu.Unlock()
		return nil
	}
	f.rest.Go(func() { _ = f.NetHTTP.Serve(f.handoff) }) // until it is shut down or closed
	f.mu.Unlock()
	var pause time.Duration
	for {
		conn, err := f.l.Accept()
		if f.closing.Load() {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if err != nil {
			var passing interface{ Temporary() bool }
			if !errors.As(err, &passing) || !passing.Temporary() {
				return err
			}
			// Too many open files, or a client that went away at once: the next one may come through.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			f.Logger.Warn("a connection was not accepted", "error", err, "next", pause.String())
			select {
			case <-time.After(pause):
			case <-f.life.Done():
			}
			continue
		}
		pause = 0
		session := f.OpenSession(conn)
		if session == nil {
			conn.Close()
			continue
		}
		c := newFastConn(f, conn, session)
		if !f.enter(c) {
			conn.Close()
			session.Close()
			continue
		}
		go c.serve()
	}
}

func (f *Loop) enter(c *fastConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing.Load() {
		return false
	}
	f.open[c] = struct{}{}
	return true
}

func (f *Loop) leave(c *fastConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
	f.tell()
}

func (f *Loop) tell() {
	if f.empty != nil && len(f.open) == 0 {
		close(f.empty)
		f.empty = nil
	}
}

// Shutdown closes the listener and the connections without a call, lets each call under way be answered, and closes its
// connection then. It returns the error of ctx if that ends first.
func (f *Loop) Shutdown(ctx context.Context) error {
	empty := make(chan struct{})
	f.mu.Lock()
	f.closing.Store(true)
	f.empty = empty
	for c := range f.open {
		c.retire()
	}
	f.tell()
	f.mu.Unlock()
	f.deaf()
	// net/http must continue to serve connections that the loop still hands over, but each only for one call.
	f.NetHTTP.SetKeepAlivesEnabled(false)
	select {
	case <-empty:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := f.NetHTTP.Shutdown(ctx); err != nil {
		return err
	}
	f.end()
	f.rest.Wait()
	return nil
}

// Close interrupts whatever is under way.
func (f *Loop) Close() error {
	f.mu.Lock()
	f.closing.Store(true)
	for c := range f.open {
		c.conn.Close()
	}
	f.mu.Unlock()
	f.end()
	f.deaf()
	err := f.NetHTTP.Close()
	f.rest.Wait()
	return err
}

// dateText is the header Date for the answers of one second.
type dateText struct {
	second int64
	text   string
}

func (f *Loop) dateOf(now time.Time) string {
	second := now.Unix()
	if d := f.date.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dateText{second, now.UTC().Format(http.TimeFormat)}
	f.date.Store(d)
	return d.text
}
