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

// Loop serves the connections of one listener. [New] makes one, [Loop.Serve] runs it, and
// [Loop.Shutdown] or [Loop.Close] ends it.
type Loop struct {
	Options
	listener net.Listener
	// closeListener closes the listener once. Some listeners fail when they are closed again.
	closeListener func()
	// handoff is the listener from which net/http accepts the connections that leave the loop.
	handoff *handoffListener
	// netHTTP is done when net/http has stopped to accept from handoff.
	netHTTP sync.WaitGroup
	// ctx is the parent of the contexts of all calls in the loop. It ends when the loop is closed.
	ctx    context.Context //nolint:containedctx // it belongs to connections, none of which began with a call
	cancel context.CancelFunc
	// date is the header Date of the current second.
	date atomic.Pointer[dateText]

	// isClosing is set when connections must end after their current call.
	isClosing atomic.Bool
	mu        sync.Mutex
	// conns are the connections in the loop, without those that net/http serves.
	conns map[*conn]struct{}
	// noConns is closed when conns becomes empty. It is nil unless a shutdown waits for that.
	noConns chan struct{}
}

// New returns a loop for the connections of a listener. It starts nothing.
func New(l net.Listener, o Options) *Loop {
	loop := &Loop{Options: o, listener: l, handoff: newHandoffListener(l.Addr()), conns: map[*conn]struct{}{}}
	loop.closeListener = sync.OnceFunc(func() { l.Close() })
	loop.ctx, loop.cancel = context.WithCancel(context.Background())
	return loop
}

// Serve accepts connections until the loop is shut down or closed, and then returns nil. It returns
// the error of a listener that fails for good. Serve may be called once.
func (l *Loop) Serve() error {
	// A loop that was shut down before must not start net/http, for which Shutdown and Close would
	// not wait.
	l.mu.Lock()
	if l.isClosing.Load() {
		l.mu.Unlock()
		return nil
	}
	l.netHTTP.Go(func() { _ = l.NetHTTP.Serve(l.handoff) }) // the error only says that it was shut down or closed
	l.mu.Unlock()

	// A failure of the listener may last, so pauses between attempts grow up to a second. Without
	// them the loop would use a whole processor, and write as many lines.
	var pause time.Duration
	for {
		netConn, err := l.listener.Accept()
		if l.isClosing.Load() {
			if err == nil {
				netConn.Close()
			}
			return nil
		}
		if err == nil {
			pause = 0
			l.startConn(netConn)
			continue
		}

		// There are too many open files, or a client went away at once. The listener may work again
		// after a pause.
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		l.Logger.Warn("a connection was not accepted", "error", err, "next", pause.String())
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
	}
}

// startConn serves a new connection in a goroutine of its own, or closes the connection if there
// may be no further one.
func (l *Loop) startConn(netConn net.Conn) {
	session := l.OpenSession(netConn)
	if session == nil {
		netConn.Close()
		return
	}
	c := newConn(l, netConn, session)
	if !l.addConn(c) {
		netConn.Close()
		session.Close()
		return
	}
	go c.run()
}

// addConn adds a connection to those of the loop. It returns false if the loop is closing.
func (l *Loop) addConn(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Under the lock, so that Shutdown and Close see either the connection or no new one.
	if l.isClosing.Load() {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

// removeConn removes a connection that has left the loop.
func (l *Loop) removeConn(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.notifyIfEmpty()
}

// notifyIfEmpty wakes a waiting shutdown if no connection is left. The caller holds mu.
func (l *Loop) notifyIfEmpty() {
	if l.noConns != nil && len(l.conns) == 0 {
		close(l.noConns)
		l.noConns = nil
	}
}

// Shutdown closes the listener and all idle connections. It waits until each call that has begun is
// answered, by the loop or by net/http, and closes its connection then. If ctx ends before,
// Shutdown returns its error, and the caller should call [Loop.Close].
func (l *Loop) Shutdown(ctx context.Context) error {
	// isClosing is set before the idle connections are closed: a connection that becomes idle later
	// sees it, and closes itself.
	noConns := make(chan struct{})
	l.mu.Lock()
	l.isClosing.Store(true)
	l.noConns = noConns
	for c := range l.conns {
		c.closeIfIdle()
	}
	l.notifyIfEmpty()
	l.mu.Unlock()
	l.closeListener()

	// net/http must still accept the connections that leave the loop from now on, but answer only
	// one call on each.
	l.NetHTTP.SetKeepAlivesEnabled(false)
	select {
	case <-noConns:
	case <-ctx.Done():
		return ctx.Err()
	}

	// No connection comes from the loop any more, so net/http can stop, too.
	if err := l.NetHTTP.Shutdown(ctx); err != nil {
		return err
	}
	l.cancel()
	l.netHTTP.Wait()
	return nil
}

// Close closes the listener and all connections, and ends the contexts of their calls. It does not
// wait for the calls.
func (l *Loop) Close() error {
	l.mu.Lock()
	l.isClosing.Store(true)
	for c := range l.conns {
		c.netConn.Close()
	}
	l.mu.Unlock()

	l.cancel()
	l.closeListener()
	err := l.NetHTTP.Close()
	l.netHTTP.Wait()
	return err
}

// dateText is the value of the header Date for one second.
type dateText struct {
	second int64
	text   string
}

// formatDate returns the value of the header Date. All answers of a second share it, because
// formatting costs more than parsing a head.
func (l *Loop) formatDate(now time.Time) string {
	second := now.Unix()
	cached := l.date.Load()
	if cached != nil && cached.second == second {
		return cached.text
	}
	// Two connections may format the same second. The last one is kept.
	d := &dateText{second, now.UTC().Format(http.TimeFormat)}
	l.date.Store(d)
	return d.text
}
