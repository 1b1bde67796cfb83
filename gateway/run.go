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

// Run serves on the listener until ctx ends, then stops in order:
//
//  1. /readyz and health checks say so, for [Limits.DrainDelay]; every answer closes its connection.
//  2. Clients have half a second, or less if no connection is left, to hear of that by an answer: who sends a call on
//     a connection just when it is closed cannot know whether it was taken.
//  3. The listener closes. Streams end with "unavailable". Every other call under way is answered.
//
// Then it returns nil. If calls are still under way after [Limits.ShutdownTimeout], it breaks them off and returns an
// error. It closes the listener in every case, and closes neither log nor stores: who opened them closes them, after
// Run. Run is called once.
//
// It speaks HTTP/1.1 and HTTP/2 on the one port: with TLS and nothing else if it has certificates, and without TLS if not. The
// connections of the listener may have TLS of their own.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	if s.tls != nil {
		l = tls.NewListener(l, s.tls.Config())
	}
	loop := s.clientEndpoint().loop(l, s.httpServer(s, &s.conns))
	var rest sync.WaitGroup
	defer rest.Wait()
	rest.Go(func() { s.budgets.Processors.Run(s.serverCtx) })
	ended := make(chan error, 1)
	go func() { ended <- loop.Serve() }() //nolint:contextcheck // calls outlive the order to stop, which ctx is
	failed := func(err error) error {
		s.stop()
		return errors.Join(fmt.Errorf("gateway: serving %s: %w", l.Addr(), err), loop.Close())
	}
	select {
	case err := <-ended:
		return failed(err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	select {
	case <-time.After(s.limits.DrainDelay):
	case err := <-ended:
		return failed(err)
	}
	select {
	case <-s.conns.Drained(0, drainGrace):
	case err := <-ended:
		return failed(err)
	}
	s.stop()
	// The order to stop has been given: what is left has its own time.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
	defer cancel()
	err := loop.Shutdown(last)
	if err != nil {
		err = fmt.Errorf("gateway: calls still under way %v after the order to stop: %w",
			s.limits.ShutdownTimeout, errors.Join(err, loop.Close()))
	}
	if aerr := <-ended; err == nil && aerr != nil {
		err = fmt.Errorf("gateway: serving %s: %w", l.Addr(), aerr)
	}
	return err
}

// httpServer serves what the loop hands over, of connections that it knows.
func (s *Server) httpServer(h http.Handler, conns *admission.Connections) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: h,
		// Nothing is answered past the handler, which sees to it that connections end.
		DisableGeneralOptionsHandler: true,
		Protocols:                    &protocols,
		ReadHeaderTimeout:            min(s.limits.IOTimeout, 10*time.Second),
		ReadTimeout:                  s.limits.IOTimeout,
		// The time to work and the time to take the answer.
		WriteTimeout:   max(s.limits.CallTimeout, publishTimeout+s.limits.VisibleWait) + s.limits.IOTimeout,
		IdleTimeout:    s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		// The most that a client may send on a connection before the server reads it.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: http2WindowBytes, MaxReceiveBufferPerStream: http2WindowBytes},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				conns.Ended(conn)
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			ctx = http1.ConnContext(ctx, conn)
			if o := conns.Known(conn); o != nil {
				ctx = context.WithValue(ctx, connectionKey{}, o)
			}
			return ctx
		},
	}
	if s.tls != nil {
		srv.TLSConfig = s.tls.Config()
	}
	return srv
}

// stop ends streams and makes every health check say so. It may be called more than once.
func (s *Server) stop() {
	s.draining.Store(true)
	s.cancelServer()
}

const (
	drainGrace = 500 * time.Millisecond
	// unreadBytes is the window of a connection and of a stream in HTTP/2.
	http2WindowBytes = 256 << 10
	// publishTimeout is more than a publisher takes to give up.
	publishTimeout = time.Minute
)
