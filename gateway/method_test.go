package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestPanicEndsItsCallAlone checks that a panic in a method ends the call with an internal error,
// is logged with its stack and counted, and ends nothing else.
func TestPanicEndsItsCallAlone(t *testing.T) {
	var logged lockedLog
	w := newWorld(t, func(o *worldOptions) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	mountUnary(w.server, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic("a bug of user ann")
		})
	mountStream(w.server, connectv1.GraphServiceScanFollowersProcedure, nil,
		func(context.Context, *skeinv1.ScanFollowersRequest, call.Stream[skeinv1.ScanFollowersResponse]) error {
			panic(errors.New("a bug of user bob"))
		})

	// The caller does not see the text of the panic.
	_, err := w.blocked("ann")(1, "", "")
	wantError(t, err, connect.CodeInternal, "", "")
	if strings.Contains(err.Error(), "ann") {
		t.Errorf("ListBlocked: got error %v, want one without the text of the panic", err)
	}
	scan, err := w.graph.ScanFollowers(t.Context(), connect.NewRequest(scanUser("bob", "", "")))
	if err != nil {
		t.Fatal(err)
	}
	if scan.Receive() {
		t.Errorf("ScanFollowers: got the message %v, want none", scan.Msg())
	}
	wantError(t, scan.Err(), connect.CodeInternal, "", "")
	_ = scan.Close()

	// The log has it, and the file of the function that panicked.
	for _, want := range []string{"a bug of user ann", "a bug of user bob", "method_test.go", "level=ERROR"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("got the log\n%s\nwant %q in it", logged.String(), want)
		}
	}

	if _, err := w.muted("ann")(1, "", ""); err != nil {
		t.Errorf("ListMuted afterwards: got error %v, want none", err)
	}
	if n := w.count("skein_rpc_duration_seconds", "code", "internal"); n != 2 {
		t.Errorf("got %v internal errors in the metrics, want 2", n)
	}
}

// TestAbortClosesTheConnection checks that a method that panics with http.ErrAbortHandler closes
// the connection instead of answering, so that the client gets an error of its own.
func TestAbortClosesTheConnection(t *testing.T) {
	w := newWorld(t)
	mountUnary(w.server, connectv1.GraphServiceListBlockedProcedure, nil,
		func(context.Context, *skeinv1.ListBlockedRequest, *call.Info) (*skeinv1.ListBlockedResponse, error) {
			panic(http.ErrAbortHandler)
		})
	if _, err := w.blocked("ann")(1, "", ""); err == nil || connect.IsWireError(err) {
		t.Errorf("got error %v, want one that does not come from the server", err)
	}
}

// TestCallEndsWhenCallerLeaves checks that a call ends after its caller has canceled it: at once
// over HTTP/2, but over HTTP/1.1 only when the answer is ready, which is dropped then.
func TestCallEndsWhenCallerLeaves(t *testing.T) { //nolint:tparallel // the subtests run one after the other
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
			at := w.publish(follow("ann", "bob"))
			if protocol == "HTTP/2" {
				w.multiplexed()
			}

			// Cancel a call that waits for the graph.
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan error, 1)
			go func() {
				_, err := w.graph.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}))
				answered <- err
			}()
			w.awaitInFlight(1)
			cancel()
			if err := <-answered; connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("canceled call: got error %v, want canceled", err)
			}
			if protocol == "HTTP/1.1" {
				w.fold() // the answer becomes ready
			}

			// The server can stop, and the call ends. Its end may be later, because net/http does
			// not wait for a stream whose connection is gone.
			w.http.CloseIdleConnections()
			if err := w.stop(); err != nil {
				t.Errorf("stop of the server: got error %v, want none", err)
			}
			for w.server.budgets.InFlight() > 0 {
				runtime.Gosched()
			}
		})
	}
}
