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
//  1. For [Limits.DrainDelay], /readyz and health checks report that the server is stopping, and every answer closes its connection.
//  2. The server waits up to half a second more for the open connections to end, so that each client can learn from an answer that its connection
//     closes. A client that sends a call just when its connection is closed cannot know whether the call was accepted.
//  3. The listener closes. Streams end with "unavailable". All other calls under way are answered.
//
// Run then returns nil. If calls are still under way after [Limits.ShutdownTimeout], it aborts them
// and returns an error. In any case Run closes the listener. It closes neither the log nor the
// stores; the caller does so after Run. Run may be called only once.
//
// The server speaks HTTP/1.1 and HTTP/2 on the same port: only with TLS if it has certificates, and
// only without TLS if it has none. The connections of the listener may have TLS of their own.
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

	// From now on /readyz fails. The listener stays open, because a load balancer that has not seen
	// that yet still sends calls here.
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

	// Streams end now. They would otherwise use up the time that the other calls get.
	s.stop()

	// ctx has ended already, so the remaining calls get a time limit of their own.
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

// httpServer returns the server of net/http for the connections that the loop passes on. conns are
// the connections of the listener.
func (s *Server) httpServer(h http.Handler, conns *admission.Connections) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: h,
		// net/http must not answer any request by itself: the handler decides which answers close
		// their connection.
		DisableGeneralOptionsHandler: true,
		Protocols:                    &protocols,
		// A head is short, so it must arrive sooner than a body.
		ReadHeaderTimeout: min(s.limits.IOTimeout, maxHeadTime),
		ReadTimeout:       s.limits.IOTimeout,
		// The longest time that a call may take, and then the time in which the client must read
		// the answer.
		WriteTimeout:   max(s.limits.CallTimeout, publishTimeout+s.limits.VisibleWait) + s.limits.IOTimeout,
		IdleTimeout:    s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		// A client that sends faster than the handlers read may fill the whole window, for each of
		// its connections. The default of net/http is larger.
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
			// The handler marks the connection as busy during a call, so that it is not evicted.
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

// stop ends all streams, and makes every health check report that the server is stopping. It may be
// called more than once.
func (s *Server) stop() {
	s.draining.Store(true)
	s.cancelServer()
}

const (
	// drainGrace is how long Run waits for open connections to end before it closes the listener.
	drainGrace = 500 * time.Millisecond
	// maxHeadTime is the longest time in which the head of a request must arrive.
	maxHeadTime = 10 * time.Second
	// http2WindowBytes is the flow-control window of an HTTP/2 connection and of each of its
	// streams: what a client may send before the server reads it.
	http2WindowBytes = 256 << 10
	// publishTimeout is longer than a publisher tries to append events before it gives up.
	publishTimeout = time.Minute
)
