package service

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestPprofIsForThisMachine(t *testing.T) {
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
		req.Host = host
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
		path, host string
		status     int
		part       string
	}{
		{"/debug/pprof/", "", http.StatusOK, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", "localhost", http.StatusOK, "servePprof"},
		{"/debug/pprof/cmdline", "evil.example:80", http.StatusForbidden, "this machine"},
		{"/debug/pprof/", "[::1]", http.StatusOK, "goroutine"},
		{"/skein.v1.AdminService/GetStatus", "", http.StatusNotFound, ""},
	} {
		if status, body := get(c.path, c.host); status != c.status || !strings.Contains(body, c.part) {
			t.Errorf("%s for %q: %d %s", c.path, c.host, status, body)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
