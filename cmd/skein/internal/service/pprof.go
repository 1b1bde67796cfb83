package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/skein-feed/skein/gateway/access"
)

// servePprof serves profiles on a listener until ctx ends, and then closes the listener.
func servePprof(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	server := &http.Server{
		Handler:           allowOnlyLoopback(mux),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		// There is no WriteTimeout, because the client chooses how long a profile takes.
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// allowOnlyLoopback refuses requests that are not addressed to a loopback host name, or that a web
// page sends. Otherwise a page whose host name resolves to this machine (DNS rebinding) could read
// profiles through a browser.
func allowOnlyLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !access.IsLoopbackHost(r.Host) || r.Header.Get("Origin") != "" {
			http.Error(w, "profiles are only served to this machine: request them from 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
