package service

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestStartingAnswers: while a service is opened its port answers that it is alive and not available. Then the port is the service's.
func TestStartingAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, after := range []time.Duration{0, time.Hour, 0} {
		end := answerWhileStarting(l.(*net.TCPListener), nil, after, slog.New(slog.DiscardHandler))
		if after == 0 {
			for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
				if got := getStatusCode(t, l, path); got != want {
					t.Errorf("%s is %d, want %d", path, got, want)
				}
			}
			caller := &http.Client{Transport: &http.Transport{}}
			admin := skeinv1connect.NewAdminServiceClient(caller, "http://"+l.Addr().String())
			_, err = admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{}))
			if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "the service is starting") {
				t.Errorf("the status is %v", err)
			}
			caller.CloseIdleConnections()
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadTimeout: time.Minute}
	defer srv.Close()
	go func() { _ = srv.Serve(l) }()
	if got := getStatusCode(t, l, "/healthz"); got != http.StatusNotFound {
		t.Errorf("the service answers %d", got)
	}
}

func getStatusCode(t *testing.T, l net.Listener, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}
