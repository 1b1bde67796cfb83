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

// startingAfter is how long a client of a starting service waits before it gets the answer that the service starts. Most starts are over
// by then.
const startingDelay = time.Second

// openingListener is a listener whose Accept a deadline can interrupt.
type deadlineListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// borrowed is a listener whose Close only interrupts Accept. The listener stays open, and accepts again once the deadline is removed.
type interruptibleListener struct{ deadlineListener }

// Close ends Accept.
func (b interruptibleListener) Close() error { return b.SetDeadline(time.Unix(1, 0)) }

// OpenOn opens a service. Meanwhile, the listener on which it will serve answers that the service starts.
func OpenOn(ctx context.Context, l net.Listener, o Options) (*Service, error) {
	end := func() error { return nil }
	if l, ok := l.(deadlineListener); ok {
		end = answerWhileStarting(l, o.Access.Certificates, startingDelay, o.Logger) //nolint:contextcheck // it ends with the opening
	}
	a, err := Open(ctx, o)
	switch endErr := end(); {
	case err != nil:
		return nil, errors.Join(err, endErr)
	case endErr != nil:
		return nil, errors.Join(endErr, a.Close(context.WithoutCancel(ctx)))
	}
	return a, nil
}

// answerStarting answers on a listener while the service is opened. That may take long: the service waits for its log, for a leader of the
// log, or for room on the disk. /healthz reports that the process lives; every other path answers 503, which clients of the API
// read as "unavailable". The returned function ends this, and leaves the listener open.
func answerWhileStarting(l deadlineListener, certificates *access.Certificates, after time.Duration, logger *slog.Logger) (end func() error) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Protocols: &protocols, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			_, _ = io.WriteString(w, body+"\n") // the client may have gone
		}),
	}
	srv.SetKeepAlivesEnabled(false)
	var on net.Listener = interruptibleListener{l}
	if certificates != nil {
		srv.TLSConfig = certificates.Config()
		on = tls.NewListener(on, srv.TLSConfig)
	}
	var serving sync.WaitGroup
	stop := make(chan struct{})
	serving.Go(func() {
		select {
		case <-time.After(after):
			_ = srv.Serve(on) // until it is shut down
		case <-stop:
		}
	})
	return func() error {
		close(stop)
		last, cancel := context.WithTimeout(context.Background(), startingDelay)
		defer cancel()
		err := srv.Shutdown(last)
		if errors.Is(err, context.DeadlineExceeded) { // connections without a request
			err = srv.Close()
		}
		serving.Wait()
		return errors.Join(err, l.SetDeadline(time.Time{}))
	}
}
