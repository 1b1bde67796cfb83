package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/gateway/internal/admission"
)

// fastPath has all connections of a server. It answers the plain calls on them by itself, for what net/http costs more than a
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
type fastPath struct {
	s *Server
	l net.Listener
	// methods are those that can be called, by their paths.
	methods map[string]http.Handler
	// who authenticates a caller.
	who func(authorization string, cert *x509.Certificate) identity
	// allows reports whether the service answers to a Host; nil means to any.
	allows func(host string) bool
	// deaf closes the listener, once: not every listener bears more.
	deaf func()
	// rest is the net/http server that serves the connections which are handed over.
	rest    *http.Server
	handoff *handoff
	// conns has all connections, those that were handed over among them.
	conns *admission.Connections
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

// newFastPath is that for clients.
func newFastPath(s *Server, l net.Listener, rest *http.Server) *fastPath {
	f := &fastPath{
		s: s, l: l, methods: s.methods, who: s.who, rest: rest, handoff: newHandoff(l.Addr()), conns: &s.conns, open: map[*fastConn]struct{}{},
	}
	if s.gate == nil { // who has a token was not sent by a page
		f.allows = s.hosts.Allow
	}
	f.deaf = sync.OnceFunc(func() { l.Close() })
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// accept takes connections until the listener fails or the fast path closes.
func (f *fastPath) accept() error {
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
			f.s.logger.Warn("a connection was not accepted", "error", err, "next", pause.String())
			select {
			case <-time.After(pause):
			case <-f.life.Done():
			}
			continue
		}
		pause = 0
		known := f.conns.Enter(conn, f.s.limits.Connections)
		if known == nil {
			conn.Close()
			continue
		}
		c := newFastConn(f, conn, known)
		if !f.enter(c) {
			conn.Close()
			f.conns.Leave(known)
			continue
		}
		go c.serve()
	}
}

func (f *fastPath) enter(c *fastConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing.Load() {
		return false
	}
	f.open[c] = struct{}{}
	return true
}

func (f *fastPath) leave(c *fastConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
	f.tell()
}

func (f *fastPath) tell() {
	if f.empty != nil && len(f.open) == 0 {
		close(f.empty)
		f.empty = nil
	}
}

// shutdown closes the listener and the connections without a call, lets each call under way be answered, and closes its
// connection then. It returns the error of ctx if that ends first.
func (f *fastPath) shutdown(ctx context.Context) error {
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
	f.rest.SetKeepAlivesEnabled(false)
	select {
	case <-empty:
	case <-ctx.Done():
		return ctx.Err()
	}
	return f.rest.Shutdown(ctx)
}

// close interrupts whatever is under way.
func (f *fastPath) close() error {
	f.mu.Lock()
	f.closing.Store(true)
	for c := range f.open {
		c.conn.Close()
	}
	f.mu.Unlock()
	f.end()
	f.deaf()
	return f.rest.Close()
}

// dateText is the header Date for the answers of one second.
type dateText struct {
	second int64
	text   string
}

func (f *fastPath) dateOf(now time.Time) string {
	second := now.Unix()
	if d := f.date.Load(); d != nil && d.second == second {
		return d.text
	}
	d := &dateText{second, now.UTC().Format(http.TimeFormat)}
	f.date.Store(d)
	return d.text
}
