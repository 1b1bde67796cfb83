package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write is part of io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// A panic ends its call, is logged with its stack, and ends nothing else.
func TestPanic(t *testing.T) {
	var logged buffer
	w := newWorld(t, func(o *worldOptions) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	mountUnary(w.server, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic("a bug of user ann")
		})
	mountStream(w.server, connectv1.GraphServiceScanFollowersProcedure, nil,
		func(context.Context, *skeinv1.ScanFollowersRequest, call.Stream[skeinv1.ScanFollowersResponse]) error {
			panic(errors.New("a bug of user bob"))
		})
	_, err := w.blocked("ann")(1, "", "")
	wantError(t, err, connect.CodeInternal, "", "")
	if strings.Contains(err.Error(), "ann") {
		t.Errorf("it is shown: %v", err)
	}
	scan, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(scanUser("bob", "", "")))
	if err != nil || scan.Receive() {
		t.Error(err)
	}
	wantError(t, scan.Err(), connect.CodeInternal, "", "")
	_ = scan.Close()
	for _, want := range []string{"a bug of user ann", "a bug of user bob", "method_test.go", "level=ERROR"} {
		if !strings.Contains(logged.text(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	if _, err := w.muted("ann")(1, "", ""); err != nil {
		t.Error(err)
	}
	if n := w.count("skein_rpc_duration_seconds", "code", "internal"); n != 2 {
		t.Errorf("%v internal errors counted", n)
	}
}

// A method that asks to break the connection off does so.
func TestAbort(t *testing.T) {
	w := newWorld(t)
	mountUnary(w.server, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic(http.ErrAbortHandler)
		})
	if _, err := w.blocked("ann")(1, "", ""); err == nil || connect.IsWireError(err) {
		t.Error(err)
	}
}

// A caller who goes away ends the call: by HTTP/2 at once, by HTTP/1.1 only when there is an
// answer, which is dropped then.
func TestCallerGoesAway(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	for _, way := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
			at := w.publish(follow("ann", "bob"))
			if way == "HTTP/2" {
				w.multiplexed()
			}
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan error, 1)
			go func() {
				_, err := w.graph.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
				answered <- err
			}()
			w.awaitInFlight(1)
			cancel()
			if err := <-answered; connect.CodeOf(err) != connect.CodeCanceled {
				t.Error(err)
			}
			if way == "HTTP/1.1" {
				w.fold()
			}
			w.http.CloseIdleConnections()
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			for w.server.budgets.InFlight() > 0 { // net/http does not wait for the end of a stream whose connection is gone
				runtime.Gosched()
			}
		})
	}
}
