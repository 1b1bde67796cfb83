package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skein-feed/skein/gateway/access"
)

const (
	// startingDelay is how long the connections of clients wait before they get the answer that the
	// service is starting. Most starts take less time, so clients do not notice them.
	startingDelay = time.Second
	// startingShutdown is how long the requests that are being answered may take when the service
	// has started.
	startingShutdown = time.Second
)

// deadlineListener is a listener whose Accept can be interrupted by a deadline, such as that of
// TCP.
type deadlineListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// interruptibleListener is a listener whose Close only interrupts Accept. So an HTTP server can be
// shut down without closing the listener, which the service uses next.
type interruptibleListener struct{ deadlineListener }

// Close interrupts Accept by a deadline in the past. The listener accepts connections again when
// the deadline is removed.
func (l interruptibleListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// OpenOn opens a service. If opening takes longer than a second, OpenOn meanwhile answers on the
// listener l that the service is starting. l stays open, for Run.
func OpenOn(ctx context.Context, l net.Listener, o Options) (*Service, error) {
	stopAnswering := func() error { return nil }
	if l, ok := l.(deadlineListener); ok {
		//nolint:contextcheck // it ends when stopAnswering is called
		stopAnswering = answerWhileStarting(l, o.Access.Certificates, startingDelay, o.Logger)
	}
	s, err := Open(ctx, o)
	stopErr := stopAnswering()
	if err != nil {
		return nil, errors.Join(err, stopErr)
	}
	if stopErr != nil {
		return nil, errors.Join(stopErr, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// answerWhileStarting answers on a listener, after a delay, that the service is starting. A start
// can take long: the service waits for its log to answer or to elect a leader, or for free disk.
// /healthz reports that the process is alive. Every other path answers 503, which clients of the
// API read as the error "unavailable". stop ends the answering and leaves the listener open.
func answerWhileStarting(
	l deadlineListener, certificates *access.Certificates, delay time.Duration, logger *slog.Logger,
) (stop func() error) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:        http.HandlerFunc(answerStarting),
		Protocols:      &protocols,
		ReadTimeout:    5 * time.Second,
		WriteTimeout:   5 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	// The next request of a client must open a new connection, so that it reaches the service.
	server.SetKeepAlivesEnabled(false)

	var listener net.Listener = interruptibleListener{l}
	if certificates != nil {
		server.TLSConfig = certificates.Config()
		listener = tls.NewListener(listener, server.TLSConfig)
	}

	var serving sync.WaitGroup
	stopping := make(chan struct{})
	serving.Go(func() {
		select {
		case <-time.After(delay):
			_ = server.Serve(listener) // returns an error when the server is shut down
		case <-stopping:
		}
	})
	return func() error {
		close(stopping)
		ctx, cancel := context.WithTimeout(context.Background(), startingShutdown)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			// Shutdown also waits for connections on which no request has come.
			err = server.Close()
		}
		serving.Wait()
		return errors.Join(err, l.SetDeadline(time.Time{}))
	}
}

// answerStarting answers a request to a service that is starting.
func answerStarting(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	body := `{"status":"starting"}`
	switch r.URL.Path {
	case "/healthz":
	case "/readyz":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		body = `{"code":"unavailable","message":"the service is starting: try again"}`
	}
	_, _ = io.WriteString(w, body+"\n") // fails if the client has closed the connection
}
