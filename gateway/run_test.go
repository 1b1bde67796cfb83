package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// A shutdown in the middle of work loses nothing that was accepted: every call that the server
// began is answered, and every event that a client was told is in the log is there.
func TestShutdownLosesNothing(t *testing.T) {
	w := newWorld(t)
	const clients = 16
	var told, begun atomic.Int64
	var wg sync.WaitGroup
	busy := make(chan struct{}, clients)
	for n := range clients {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := w.events.Publish(context.Background(), connect.NewRequest(&skeinv1.PublishRequest{
					Events: []*skeinv1.Event{follow(fmt.Sprint("fan", n), fmt.Sprint("star", i))},
				}))
				if err != nil {
					// The connection was refused, or closed before the call was read: nothing that
					// the server said.
					if connect.IsWireError(err) {
						t.Errorf("client %d: %v", n, err)
					}
					return
				}
				told.Add(1)
				if i == 10 {
					busy <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-busy
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	begun.Store(int64(w.count("skein_rpc_duration_seconds", "method", "skein.v1.EventService/Publish")))
	head, err := w.log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.WaitFor(t.Context(), head.Last); err != nil {
		t.Fatal(err)
	}
	r, err := w.server.views.OpenGraph(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var stored int64
	for n := range clients {
		c, err := r.UserCounts(fmt.Sprint("fan", n))
		if err != nil {
			t.Fatal(err)
		}
		stored += c.Following
	}
	if told.Load() != begun.Load() || told.Load() != stored {
		t.Errorf("%d calls begun, %d answered well, %d events stored", begun.Load(), told.Load(), stored)
	}
}

// count returns the value, or the number of observations, of a metric.
func (w *world) count(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i+1 < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !found {
					continue metrics
				}
			}
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// A call that waits when the order to stop comes is answered.
func TestShutdownWaitsForCalls(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	answered := make(chan error, 1)
	go func() {
		p, err := w.followers("bob", anyKind)(1, "", at)
		if err == nil && len(p.entries) != 1 {
			err = errors.New("a stale answer")
		}
		answered <- err
	}()
	w.awaitInFlight(1)
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	<-w.server.serverCtx.Done()
	awaitRefused(t, strings.TrimPrefix(w.url, "http://"))
	w.fold()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// awaitRefused waits until no process listens at the address.
func awaitRefused(t *testing.T, addr string) {
	t.Helper()
	for t.Context().Err() == nil {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		_ = c.Close()
	}
	t.Fatal("the listener stays")
}

// A call that does not end in time is interrupted, and Run says so.
func TestShutdownTimeout(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.ShutdownTimeout = time.Millisecond })
	at := w.publish(follow("ann", "bob"))
	answered := make(chan error, 1)
	go func() {
		_, err := w.followers("bob", anyKind)(1, "", at)
		answered <- err
	}()
	w.awaitInFlight(1)
	err := w.stop()
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still under way") {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("a call was answered that was interrupted")
	}
	w.stop = func() error { return nil }
}

// Streams have no end of their own: they are ended with an error that says to go elsewhere.
func TestShutdownEndsStreams(t *testing.T) {
	w := newWorld(t)
	watch, err := w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck("")))
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(watch)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if !watch.Receive() || watch.Msg().GetStatus() != notServing || watch.Receive() {
		t.Error(watch.Msg())
	}
	wantError(t, watch.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
	_ = watch.Close()
}

// Before it stops accepting, the server says on /readyz that it stops, and continues answering.
func TestDrain(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.DrainDelay = time.Hour })
	defer w.closeListener()
	at := w.publish(follow("ann", "bob"))
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	for !w.server.draining.Load() {
		select {
		case err := <-stopped:
			t.Fatal("stopped without draining: ", err)
		default:
		}
	}
	w.wantReady("draining", http.StatusServiceUnavailable, "stopping", "ready")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.GraphServiceListFollowersProcedure,
		strings.NewReader(`{"userId":"bob"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := w.http.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal("a call while draining: ", res, err)
	}
	if !res.Close {
		t.Error("the connection stays open")
	}
	res.Body.Close()

	// The hour ends with the listener.
	w.closeListener()
	if err := <-stopped; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, expected %v", err, net.ErrClosed)
	}
	w.stop = func() error { return nil }
}

// TestDrainDelayEnds: after the delay the server stops without an error.
func TestDrainDelayEnds(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.DrainDelay = time.Millisecond })
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

func (w *world) awaitInFlight(n int64) {
	for w.server.budgets.InFlight() < n {
		select {
		case <-w.t.Context().Done():
			return
		default:
		}
	}
}

// A listener that fails ends Run with its error.
func TestRunOnAClosedListener(t *testing.T) {
	w := newWorld(t)
	s, err := New(Options{Log: w.log, Publisher: w.publisher, Hub: w.hub, Graph: w.store})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.Run(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A client that sends its request slowly, or does not take its answer, is cut off; one that streams
// is not.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	w := newWorld(t, func(o *worldOptions) { o.Limits.IOTimeout = limit })
	for name, request := range map[string]string{
		"half a header": "POST /skein.v1.GraphService/ListFollowers HTTP/1.1\r\nHost: localhost\r\n",
		"half a body": "POST /skein.v1.GraphService/ListFollowers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 100\r\n\r\n{",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Logf("%s: %v", name, err)
		}
		conn.Close()
	}
	// A stream that is silent for longer than the limit, and has a listener, continues: what is
	// sent next arrives.
	var watch *connect.ServerStreamForClient[healthv1.HealthCheckResponse]
	for { // on a busy machine the request itself may be too slow
		var err error
		watch, err = w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck(connectv1.GraphServiceName)))
		if err == nil && watch.Receive() {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	defer watch.Close()
	for watch.Msg().GetStatus() != serving {
		if !watch.Receive() {
			break
		}
	}
	time.AfterFunc(limit+limit/2, w.unfold)
	if !watch.Receive() || watch.Msg().GetStatus() != notServing {
		t.Error(watch.Msg(), watch.Err())
	}
}

func TestNewDemandsItsParts(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made of nothing")
	}
	w := newWorld(t)
	o := Options{Log: w.log, Publisher: w.publisher, Hub: w.hub, Graph: w.store, Registry: w.registry}
	var taken prometheus.AlreadyRegisteredError
	if _, err := New(o); !errors.As(err, &taken) {
		t.Errorf("two servers in one registry: %v", err)
	}
}
