package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/http1"
)

// Run serves on the listener until ctx ends. Then it stops in this order:
//
//  1. For [Limits.DrainDelay], the server still accepts connections and calls. But /readyz and
//     health checks report that the server is stopping, and each answer over HTTP/1 closes its
//     connection. Connections of HTTP/2 stay open until step 4.
//  2. The server does the same for up to half a second more, until no connection is open. If Run
//     closed a connection while its client sends a call, the client could not know whether the call
//     was accepted. If an answer closes the connection, the client does know. This does not help
//     clients of HTTP/1 that send no call meanwhile. A connection of HTTP/2 ends in step 4 with a
//     GOAWAY frame, which names the last call that was accepted.
//  3. All streams end with "unavailable".
//  4. The listener and all idle connections close. All other calls under way are answered, and then
//     their connections close, too. A connection on which nothing has come yet has five seconds to
//     bring a call.
//
// Run then returns nil. If calls are still under way [Limits.ShutdownTimeout] after the beginning
// of step 4, it aborts them and returns an error. If the listener fails for good before step 3, Run
// ends all streams and aborts all calls at once, and returns an error. To abort a call is to close
// its connection and to end its context; Run does not wait until the method has returned.
//
// In any case Run closes the listener. It closes neither the log nor the stores; the caller does so
// after Run. Run may be called only once, because the server remembers that it has stopped.
//
// The server speaks HTTP/1.1 and HTTP/2 on the same port. If it has certificates, all connections
// must have TLS. If it has none, Run adds no TLS; but l may be a listener whose connections already
// have TLS.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if s.tls != nil {
		l = tls.NewListener(l, s.tls.Config())
	}
	loop := s.clientEndpoint().loop(l, s.httpServer(s, &s.conns))

	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.budgets.Shedder.Run(s.serverCtx) })

	loopEnded := make(chan error, 1)
	go func() { loopEnded <- loop.Serve() }() //nolint:contextcheck // calls may last longer than ctx, which only says when to stop
	abort := func(err error) error {
		s.stop()
		return errors.Join(fmt.Errorf("gateway: serving %s: %w", l.Addr(), err), loop.Close())
	}
	select {
	case err := <-loopEnded:
		return abort(err)
	case <-ctx.Done():
	}

	// From now on /readyz answers 503. The listener stays open, because a load balancer that has
	// not asked /readyz since then still sends calls here.
	s.draining.Store(true)
	select {
	case <-time.After(s.limits.DrainDelay):
	case err := <-loopEnded:
		return abort(err)
	}
	select {
	case <-s.conns.Drained(drainGrace):
	case err := <-loopEnded:
		return abort(err)
	}

	// End all streams before Shutdown. It waits for all calls, and most streams do not end by
	// themselves, so they would use up the whole ShutdownTimeout.
	s.stop()

	// ctx has ended, and Shutdown with a context that has ended would not wait for the calls.
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
	defer cancel()
	err := loop.Shutdown(shutdownCtx)
	if err != nil {
		err = fmt.Errorf("gateway: calls still under way %v after the order to stop: %w",
			s.limits.ShutdownTimeout, errors.Join(err, loop.Close()))
	}
	if serveErr := <-loopEnded; err == nil && serveErr != nil {
		err = fmt.Errorf("gateway: serving %s: %w", l.Addr(), serveErr)
	}
	return err
}

// httpServer returns the net/http server to which the loop of a listener passes the connections
// that it does not serve itself, such as those of HTTP/2 and of streams. h answers their requests.
// conns are all open connections of the listener, including those in the loop. Run and RunPeers use
// httpServer; RunPeers changes some of the timeouts.
//
// The loop uses ReadHeaderTimeout, ReadTimeout, IdleTimeout and MaxHeaderBytes, too. It does not
// use WriteTimeout.
func (s *Server) httpServer(h http.Handler, conns *admission.Connections) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: h,
		// Otherwise net/http would answer the request "OPTIONS *" without the handler. The handler
		// must see each request that net/http can parse, because it decides whether the answer
		// closes the connection ([http1.MustClose]).
		DisableGeneralOptionsHandler: true,
		Protocols:                    &protocols,
		// A head is short, so it must arrive within maxHeadTime even if IOTimeout is longer.
		ReadHeaderTimeout: min(s.limits.IOTimeout, maxHeadTime),
		ReadTimeout:       s.limits.IOTimeout,
		// This time begins when the head has arrived. It is enough for a body that takes IOTimeout
		// to arrive, and then for the longest call: a read, or a Publish that waits until its
		// events are visible. When the answer of a request-response method is ready, the handler
		// replaces the deadline, so that the client has IOTimeout to read the answer. A stream does
		// so for each message (answerDeadline). Errors, and pages that are not methods, such as
		// /metrics, must be read before the deadline that is set here.
		WriteTimeout:   max(s.limits.CallTimeout, publishTimeout+s.limits.VisibleWait) + s.limits.IOTimeout,
		IdleTimeout:    s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		// A client that sends faster than the handlers read can fill the whole window of each of
		// its connections, and the server keeps these bytes in memory. The default of net/http is 1
		// MiB for each window.
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: http2WindowBytes,
			MaxReceiveBufferPerStream:     http2WindowBytes,
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				conns.RemoveFromNetHTTP(conn)
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			ctx = http1.ConnContext(ctx, conn)
			// During a call, the handler marks the connection as busy, so that the connection is
			// not closed to make room for a new one. The handler gets the connection from ctx.
			if known := conns.Find(conn); known != nil {
				ctx = context.WithValue(ctx, connectionKey{}, known)
			}
			return ctx
		},
	}
	if s.tls != nil {
		srv.TLSConfig = s.tls.Config()
	}
	return srv
}

// stop ends all streams and the load shedder, and makes /readyz and all health checks report that
// the server is stopping. It closes no connection, and other calls continue. It may be called more
// than once.
func (s *Server) stop() {
	s.draining.Store(true)
	s.cancelServer()
}

const (
	// drainGrace is how long Run waits at most, after DrainDelay, until no connection is open. Then
	// Run ends the streams and closes the listener.
	drainGrace = 500 * time.Millisecond
	// maxHeadTime is how long the head of a request may take to arrive, unless IOTimeout is
	// shorter.
	maxHeadTime = 10 * time.Second
	// http2WindowBytes is the flow-control window of an HTTP/2 connection and of each of its
	// streams: how many bytes of bodies a client may send that the handlers have not read yet.
	http2WindowBytes = 256 << 10
	// publishTimeout is how long, at most, a call of Publish is expected to wait for the log. It is
	// only a part of WriteTimeout, and ends no call. A publisher gives up an envelope after 25 s
	// (retryFor in package eventlog), and a call may first wait for the envelope before its own.
	publishTimeout = time.Minute
)
