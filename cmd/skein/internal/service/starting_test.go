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

// TestListenerAnswersWhileStarting: while a service is being opened, its port answers that the
// process is alive and not available yet. After that the port belongs to the service, also if the
// opening ended before the delay.
//
//nolint:tparallel // the subtests share the listener and run one after the other
func TestListenerAnswersWhileStarting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	// The same listener is used three times: answering must leave it open.
	for _, c := range []struct {
		name  string
		delay time.Duration
	}{
		{"a slow start", 0},
		{"a start that ends before the delay", time.Hour},
		{"another slow start", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			stop := answerWhileStarting(l.(*net.TCPListener), nil, c.delay, slog.New(slog.DiscardHandler))
			if c.delay == 0 {
				checkStartingAnswers(t, l)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}

	// This handler stands for the service. While it starts, the page has another status.
	server := &http.Server{Handler: http.NotFoundHandler(), ReadTimeout: time.Minute}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	if got := getStatusCode(t, l, "/healthz"); got != http.StatusNotFound {
		t.Errorf("/healthz of the service: got %d, want %d", got, http.StatusNotFound)
	}
}

// checkStartingAnswers checks the answers of a service that is starting.
func checkStartingAnswers(t *testing.T, l net.Listener) {
	t.Helper()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if got := getStatusCode(t, l, path); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	admin := skeinv1connect.NewAdminServiceClient(client, "http://"+l.Addr().String())
	_, err := admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{}))
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "the service is starting") {
		t.Errorf("GetStatus: got %v, want unavailable because the service is starting", err)
	}
}

// getStatusCode returns the status code of a page. It uses a new connection.
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
