package service

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestProfilesAreOnlyServedToThisMachine: profiles are served to requests for a loopback host, and
// refused to any other host.
func TestProfilesAreOnlyServedToThisMachine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- servePprof(ctx, l) }()

	get := func(path, host string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host // empty means that of the URL
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}

	for _, c := range []struct {
		name, path, host string
		wantStatus       int
		wantText         string
	}{
		{"index by address", "/debug/pprof/", "", http.StatusOK, "goroutine"},
		{"index by IPv6 loopback", "/debug/pprof/", "[::1]", http.StatusOK, "goroutine"},
		{"profile by localhost", "/debug/pprof/goroutine?debug=1", "localhost", http.StatusOK, "servePprof"},
		{"another host", "/debug/pprof/cmdline", "evil.example:80", http.StatusForbidden, "this machine"},
		{"method of the API", "/skein.v1.AdminService/GetStatus", "", http.StatusNotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := get(c.path, c.host)
			if status != c.wantStatus || !strings.Contains(text, c.wantText) {
				t.Errorf("%s: got %d with\n%s\nwant %d with %q", c.path, status, text, c.wantStatus, c.wantText)
			}
		})
	}

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("servePprof after the context has ended: got %v, want no error", err)
	}
}
