package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/http2"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// TestShutdownLosesNothing stops the server while clients publish. Every call that the server began
// must be answered, and every event that a client knows to be published must be in the store.
func TestShutdownLosesNothing(t *testing.T) {
	w := newWorld(t)

	// The clients publish until the server is gone.
	const clients = 16
	var accepted atomic.Int64
	var wg sync.WaitGroup
	busy := make(chan struct{}, clients)
	for n := range clients {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := w.events.Publish(context.Background(), connect.NewRequest(&skeinv1.PublishRequest{
					Events: []*skeinv1.Event{follow(fmt.Sprint("fan", n), fmt.Sprint("star", i))},
				}))
				if err != nil {
					// A connection may be refused, or closed before the server reads the call. But
					// the server must not send an error.
					if connect.IsWireError(err) {
						t.Errorf("client %d: %v", n, err)
					}
					return
				}
				accepted.Add(1)
				if i == 10 {
					busy <- struct{}{}
				}
			}
		})
	}

	// The server stops when all clients are busy.
	for range clients {
		<-busy
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()

	// The store has all that is in the log.
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
		counts, err := r.UserCounts(fmt.Sprint("fan", n))
		if err != nil {
			t.Fatal(err)
		}
		stored += counts.Following
	}

	if stored != accepted.Load() {
		t.Errorf("got %d stored events, want %d as accepted", stored, accepted.Load())
	}
	began := int64(w.count("skein_rpc_duration_seconds", "method", "skein.v1.EventService/Publish"))
	if began != accepted.Load() {
		t.Errorf("the server began %d calls, want %d as accepted", began, accepted.Load())
	}
}

// gather returns the present values of all metrics.
func (w *world) gather() []*dto.MetricFamily {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	return families
}

// gatherWithLog returns the present values of all metrics, including those of the log. Those are
// missing if the log does not answer within a second, and all are gathered again then.
func (w *world) gatherWithLog() (families []*dto.MetricFamily) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		families = w.gather()
		if valueOf(families, "skein_log_up") == 1 {
			break
		}
	}
	return families
}

// count returns the present value of a metric, as valueOf does.
func (w *world) count(name string, labels ...string) float64 {
	w.t.Helper()
	return valueOf(w.gather(), name, labels...)
}

// valueOf returns the value of a metric, or the number of its observations. The labels are names
// and values in turn. If several series have them, valueOf returns the sum.
func valueOf(families []*dto.MetricFamily, name string, labels ...string) float64 {
	total := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if hasLabels(m, labels) {
				total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}

// hasLabels reports whether a series has all the labels, which are names and values in turn.
func hasLabels(m *dto.Metric, labels []string) bool {
	for pair := range slices.Chunk(labels, 2) {
		hasLabel := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == pair[0] && l.GetValue() == pair[1]
		})
		if !hasLabel {
			return false
		}
	}
	return true
}

// TestShutdownWaitsForCalls checks that a call that waits when the server is told to stop is still
// answered.
func TestShutdownWaitsForCalls(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	answered := make(chan error, 1)
	go func() {
		p, err := w.followers("bob", anyKind)(1, "", at)
		if err == nil && len(p.entries) != 1 {
			err = fmt.Errorf("got %d followers, want 1", len(p.entries))
		}
		answered <- err
	}()
	w.awaitInFlight(1)

	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	<-w.server.serverCtx.Done()
	awaitRefused(t, strings.TrimPrefix(w.url, "http://"))

	// Only now can the call be answered.
	w.fold()
	if err := <-answered; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// awaitRefused waits until no process listens at the address.
func awaitRefused(t *testing.T, addr string) {
	t.Helper()
	for t.Context().Err() == nil {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
	}
	t.Fatalf("%s still accepts connections", addr)
}

// TestShutdownTimeout checks that a call that does not end in time is interrupted, and that Run
// returns an error about it.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
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
		t.Errorf("Run: got %v, want %v with a text about calls that are still under way", err, context.DeadlineExceeded)
	}
	if err := <-answered; err == nil {
		t.Error("the call that was interrupted: got an answer, want an error")
	}

	// The cleanup of the world would fail the test for the error of Run.
	w.stop = func() error { return nil }
}

// TestShutdownNamesTheLastCallOfHTTP2 checks that an idle connection of HTTP/2 ends with a GOAWAY
// frame that names the last call. So a client that sends a call meanwhile knows whether the server
// has accepted the call.
func TestShutdownNamesTheLastCallOfHTTP2(t *testing.T) {
	t.Parallel()
	ca := accesstest.NewAuthority(t)
	withTLS := func(o *worldOptions) {
		cert, key := ca.Server(t.TempDir())
		var err error
		if o.Certificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key}, nil); err != nil {
			t.Fatal(err)
		}
		o.clientTLS = &tls.Config{RootCAs: ca.Pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	}
	for name, options := range map[string][]func(*worldOptions){"without TLS": nil, "with TLS": {withTLS}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options...)
			_, addr, _ := strings.Cut(w.url, "://")
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if w.clientTLS != nil {
				config := w.clientTLS.Clone()
				config.ServerName = "127.0.0.1"
				conn = tls.Client(conn, config)
			}
			defer conn.Close()

			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			framer := http2.NewFramer(conn, conn)
			const stream = 5
			f := &h2Client{Framer: framer}
			body := marshal(t, &skeinv1.ListFollowersRequest{UserId: "bob"})
			if framer.WriteSettings() != nil || !f.call(stream, h2Head(connectv1.GraphServiceListFollowersProcedure), body) {
				t.Fatal("the server has closed the connection before the call")
			}

			// nextFrame returns the next frame of a kind that ends something: the call or the
			// connection.
			nextFrame := func() http2.Frame {
				for {
					frame, err := framer.ReadFrame()
					if err != nil {
						t.Fatalf("got the end of the connection: %v", err)
					}
					h := frame.Header()
					if h.Type == http2.FrameGoAway || h.StreamID == stream && h.Flags.Has(http2.FlagDataEndStream) {
						return frame
					}
				}
			}
			if got := nextFrame(); got.Header().StreamID != stream {
				t.Fatalf("got %v, want the end of the answer", got)
			}

			stopped := make(chan error, 1)
			go func() { stopped <- w.stop() }()
			away, ok := nextFrame().(*http2.GoAwayFrame)
			if !ok || away.ErrCode != http2.ErrCodeNo || away.LastStreamID != stream {
				t.Errorf("got %v, want a GOAWAY frame without an error that names the stream %d", away, stream)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShutdownEndsStreams checks that the server ends streams, which do not end by themselves, with
// an error that tells the client to call again.
func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch, err := w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck("")))
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(watch)
	if err := w.stop(); err != nil {
		t.Error(err)
	}

	// The last message says that the server is not serving.
	if !watch.Receive() {
		t.Fatalf("got no message after the shutdown: %v", watch.Err())
	}
	if got := watch.Msg().GetStatus(); got != notServing {
		t.Errorf("after the shutdown: got status %v, want %v", got, notServing)
	}
	if watch.Receive() {
		t.Errorf("got another message %v, want the end of the stream", watch.Msg())
	}
	wantError(t, watch.Err(), connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
	_ = watch.Close()
}

// TestDrain checks that the server first says on /readyz that it stops, and goes on answering
// meanwhile.
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
			t.Fatalf("the server has stopped without draining: %v", err)
		default:
		}
	}
	w.wantReady("draining", http.StatusServiceUnavailable, "stopping", "ready")

	// A call is answered, but its connection is not kept.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+connectv1.GraphServiceListFollowersProcedure,
		strings.NewReader(`{"userId":"bob"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("call while draining: got status %s, want 200", res.Status)
	}
	if !res.Close {
		t.Error("call while draining: the connection stays open, want it to be closed")
	}
	res.Body.Close()

	// The end of the listener ends the delay, too.
	w.closeListener()
	if err := <-stopped; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: got %v, want %v", err, net.ErrClosed)
	}
	w.stop = func() error { return nil }
}

// TestDrainDelayEnds checks that the server stops without an error after the delay.
func TestDrainDelayEnds(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.DrainDelay = time.Millisecond })
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// awaitInFlight waits until the server has at least n calls in work.
func (w *world) awaitInFlight(n int64) {
	for w.server.budgets.InFlight() < n {
		select {
		case <-w.t.Context().Done():
			return
		default:
		}
	}
}

// TestRunOnAClosedListener checks that Run returns the error of its listener.
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
		t.Errorf("Run: got %v, want %v", err, net.ErrClosed)
	}
}

// TestSlowClients checks that the server closes the connection of a client that sends its request
// slowly, but not that of a client that waits for the next message of a stream.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	w := newWorld(t, func(o *worldOptions) { o.Limits.IOTimeout = limit })

	for name, request := range map[string]string{
		"half a header": "POST /skein.v1.GraphService/ListFollowers HTTP/1.1\r\nHost: localhost\r\n",
		"half a body": "POST /skein.v1.GraphService/ListFollowers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}

			// The server ends the connection in some way, with or without an answer.
			if err := conn.SetReadDeadline(time.Now().Add(patienceOfTests)); err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is still open after %v, want an end after about %v", patienceOfTests, limit)
			}
		})
	}

	// On a busy machine even this client may be too slow, and tries again.
	deadline := time.Now().Add(time.Minute)
	for !w.streamSurvives(limit + limit/2) {
		if time.Now().After(deadline) {
			t.Fatalf("each stream has ended in a silence of %v, want one that continues", limit+limit/2)
		}
	}
}

// streamSurvives opens a stream of health on which the server then sends nothing for some time. It
// reports whether the client still receives a change of the health after that.
func (w *world) streamSurvives(silence time.Duration) bool {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	watch, err := w.health.Watch(ctx, connect.NewRequest(newHealthCheck(connectv1.GraphServiceName)))
	if err != nil {
		return false
	}
	defer func() {
		cancel()
		_ = watch.Close()
	}()
	awaitServing(watch)

	<-time.After(silence)
	w.server.draining.Store(true)
	defer w.server.draining.Store(false)
	return watch.Receive() && watch.Msg().GetStatus() == notServing
}

func TestNewDemandsItsParts(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("New without options: got no error")
	}

	// Two servers cannot have the same registry.
	w := newWorld(t)
	o := Options{Log: w.log, Publisher: w.publisher, Hub: w.hub, Graph: w.store, Registry: w.registry}
	var taken prometheus.AlreadyRegisteredError
	if _, err := New(o); !errors.As(err, &taken) {
		t.Errorf("New with the registry of another server: got %v, want a %T", err, taken)
	}
}
