package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/skein-feed/skein/gateway"
)

// listenPprof listens for who wants profiles. They show what the process has in memory, so nobody of another machine is
// let in, whatever tokens there are. nil: nobody asked for it.
func listenPprof(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	here, err := onLoopback(ctx, addr)
	if err != nil {
		return nil, usage("--pprof: %w", err)
	}
	if !here {
		return nil, usage("--pprof %s can be reached from other machines: give an address of this one, as 127.0.0.1:6060", addr)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
}

// onLoopback reports whether only this machine reaches an address to listen on.
func onLoopback(ctx context.Context, addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if !ip.IP.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

// servePprof serves profiles until the context ends. It closes the listener.
func servePprof(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	// A profile may take as long as was asked for, so an answer has no limit of time.
	srv := &http.Server{Handler: ofThisMachine(mux), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ofThisMachine refuses pages of the web whose name was made to mean this machine: a browser would let them read the answer.
func ofThisMachine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !gateway.IsLoopbackHost(r.Host) || r.Header.Get("Origin") != "" {
			http.Error(w, "profiles are for this machine: ask for them at 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (o *appOptions) closePprof() error {
	if o.pprof == nil {
		return nil
	}
	return o.pprof.Close()
}
