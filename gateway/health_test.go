package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

const (
	serving    = healthv1.HealthCheckResponse_SERVING
	notServing = healthv1.HealthCheckResponse_NOT_SERVING
	unknown    = healthv1.HealthCheckResponse_SERVICE_UNKNOWN
)

func newHealthCheck(service string) *healthv1.HealthCheckRequest {
	return &healthv1.HealthCheckRequest{Service: service}
}

// awaitServing reads until the service serves.
func awaitServing(watch *connect.ServerStreamForClient[healthv1.HealthCheckResponse]) {
	for watch.Receive() {
		if watch.Msg().GetStatus() == serving {
			return
		}
	}
}

// wantHealth demands the health of services by name.
func (w *world) wantHealth(when string, want map[string]healthv1.HealthCheckResponse_ServingStatus) {
	w.t.Helper()
	for service, status := range want {
		res, err := w.health.Check(context.Background(), connect.NewRequest(newHealthCheck(service)))
		switch {
		case status == unknown:
			if connect.CodeOf(err) != connect.CodeNotFound {
				w.t.Errorf("%s: %q: %v", when, service, err)
			}
		case err != nil:
			w.t.Errorf("%s: %q: %v", when, service, err)
		case res.Msg.GetStatus() != status:
			w.t.Errorf("%s: %q is %v, want %v", when, service, res.Msg.GetStatus(), status)
		}
	}
}

func (w *world) wantReady(when string, code int, status, state string) {
	w.t.Helper()
	got, _, body := w.get("/readyz")
	var page struct {
		Status      string
		Projections map[string]struct{ State string }
	}
	if err := json.Unmarshal(body, &page); err != nil {
		w.t.Fatal(err)
	}
	if got != code || page.Status != status || page.Projections["graph"].State != state {
		w.t.Errorf("%s: %d %s, want %d %s %s", when, got, body, code, status, state)
	}
}

// A node is not ready before other nodes can know what it serves.
func TestNodeIsNotReadyBeforeOthersKnowIt(t *testing.T) {
	var known atomic.Bool
	w := newWorld(t, func(o *worldOptions) {
		o.Nodes, o.IsJoined = func() []Node { return nil }, known.Load
	})
	w.publish(follow("ann", "bob"))
	w.fold()
	w.wantReady("unknown", http.StatusServiceUnavailable, "joining", "ready")
	w.wantHealth("unknown", map[string]healthv1.HealthCheckResponse_ServingStatus{"": notServing, connectv1.GraphServiceName: notServing})
	known.Store(true)
	w.wantReady("known", http.StatusOK, "ready", "ready")
	w.wantHealth("known", map[string]healthv1.HealthCheckResponse_ServingStatus{"": serving, connectv1.GraphServiceName: serving})
}

// A load balancer that polls /readyz sends no calls that fail because no node has the rows. A node
// that was ready stays ready while a part of the cluster is lost, because calls about the other
// partitions are answered.
func TestNodeIsReadyOnceEveryPartitionIsServed(t *testing.T) {
	var half events.Partitions
	for p := range events.NumPartitions / 2 {
		half.Add(uint8(p))
	}
	all := events.AllPartitions()
	otherHalf := all.Without(&half)
	for _, c := range []struct {
		name     string
		own      events.Partitions
		others   []events.Partitions // what another node serves, step by step
		statuses []string
	}{
		{"a new node of a new cluster", events.Partitions{}, []events.Partitions{{}, half, all}, []string{"unserved", "unserved", "ready"}},
		{"a node that holds a half", half, []events.Partitions{{}, otherHalf, {}}, []string{"unserved", "ready", "ready"}},
		{"a router", events.Partitions{}, []events.Partitions{all, half, {}}, []string{"ready", "ready", "unserved"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var serves events.Partitions
			w := newWorld(t, func(o *worldOptions) {
				o.partitions = &c.own
				o.Nodes = func() []Node { return []Node{{Name: "other", Addr: "127.0.0.1:1", Serves: serves}} }
			})
			w.publish(follow("ann", "bob"))
			w.fold()
			for i, status := range c.statuses {
				serves = c.others[i]
				code, health := http.StatusServiceUnavailable, notServing
				if status == "ready" {
					code, health = http.StatusOK, serving
				}
				w.wantReady(fmt.Sprintf("step %d", i), code, status, "ready")
				w.wantHealth(fmt.Sprintf("step %d", i), map[string]healthv1.HealthCheckResponse_ServingStatus{
					"": health, connectv1.GraphServiceName: health,
				})
			}
		})
	}
}

// Problems do not change the status, because a restart repairs none of them.
func TestHealthzNamesProblems(t *testing.T) {
	var problems []string
	w := newWorld(t, func(o *worldOptions) { o.Problems = func() []string { return problems } })
	for _, want := range []string{
		`{"status":"ok","version":"test"}`,
		`{"status":"ok","version":"test","problems":["the log cannot be archived"]}`,
	} {
		if status, _, body := w.get("/healthz"); status != http.StatusOK || strings.TrimSpace(string(body)) != want {
			t.Errorf("expected 200 %s, got %d %s", want, status, body)
		}
		problems = []string{"the log cannot be archived"}
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	all := []string{"", connectv1.GraphServiceName, connectv1.EventServiceName, connectv1.AdminServiceName, healthv1connect.HealthName}
	w.wantReady("at first", http.StatusServiceUnavailable, "catching_up", "starting")
	for _, service := range all {
		w.wantHealth("at first", map[string]healthv1.HealthCheckResponse_ServingStatus{service: notServing})
	}
	w.wantHealth("at first", map[string]healthv1.HealthCheckResponse_ServingStatus{"skein.v1.Nothing": unknown})
	w.fold()
	watch, err := w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck(connectv1.GraphServiceName)))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	awaitServing(watch)
	w.wantReady("when it has caught up", http.StatusOK, "ready", "ready")
	for _, service := range all {
		w.wantHealth("when it has caught up", map[string]healthv1.HealthCheckResponse_ServingStatus{service: serving})
	}
	w.wantHealth("when it has caught up", map[string]healthv1.HealthCheckResponse_ServingStatus{
		connectv1.FeedServiceName: notServing, connectv1.SeenServiceName: notServing, connectv1.CounterServiceName: notServing,
		"skein.v1.Nothing": unknown,
	})
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Error(err)
	}
	w.unfold()
	if !watch.Receive() || watch.Msg().GetStatus() != notServing {
		t.Error("the watcher was not told: ", watch.Msg(), watch.Err())
	}
	w.wantReady("when all have stopped", http.StatusServiceUnavailable, "failed", "stopped")
	w.wantHealth("when all have stopped", map[string]healthv1.HealthCheckResponse_ServingStatus{
		"": notServing, connectv1.GraphServiceName: notServing, connectv1.EventServiceName: serving,
	})
	if status, _, body := w.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
}

// A health stream of an unknown service reports that, and stays open.
func TestHealthWatchOfAnUnknownService(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := w.health.Watch(ctx, connect.NewRequest(newHealthCheck("skein.v1.Nothing")))
	if err != nil {
		t.Fatal(err)
	}
	if !watch.Receive() || watch.Msg().GetStatus() != unknown {
		t.Error(watch.Msg(), watch.Err())
	}
	cancel()
	if watch.Receive() {
		t.Error(watch.Msg())
	}
	_ = watch.Close()
}
