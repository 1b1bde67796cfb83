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

// awaitServing reads from a stream until the service serves, or the stream ends.
func awaitServing(watch *connect.ServerStreamForClient[healthv1.HealthCheckResponse]) {
	for watch.Receive() {
		if watch.Msg().GetStatus() == serving {
			return
		}
	}
}

// wantHealth checks the health of services by their names. A failure says when.
func (w *world) wantHealth(when string, want map[string]healthv1.HealthCheckResponse_ServingStatus) {
	w.t.Helper()
	for service, status := range want {
		res, err := w.health.Check(context.Background(), connect.NewRequest(newHealthCheck(service)))
		switch {
		case status == unknown:
			if connect.CodeOf(err) != connect.CodeNotFound {
				w.t.Errorf("%s: health of %q: got error %v, want not_found", when, service, err)
			}
		case err != nil:
			w.t.Errorf("%s: health of %q: got error %v, want %v", when, service, err, status)
		case res.Msg.GetStatus() != status:
			w.t.Errorf("%s: health of %q: got %v, want %v", when, service, res.Msg.GetStatus(), status)
		}
	}
}

// wantReady checks the code of /readyz, its status, and the state of the graph on the page.
func (w *world) wantReady(when string, code int, status, state string) {
	w.t.Helper()
	gotCode, _, body := w.get("/readyz")
	var page struct {
		Status      string
		Projections map[string]struct{ State string }
	}
	if err := json.Unmarshal(body, &page); err != nil {
		w.t.Fatal(err)
	}
	if gotCode != code || page.Status != status || page.Projections["graph"].State != state {
		w.t.Errorf("%s: /readyz: got code %d and %s, want code %d, status %s and a graph that is %s", when, gotCode, body, code, status, state)
	}
}

// TestNodeIsNotReadyBeforeOthersKnowIt checks that a node is not ready before other nodes can know
// which partitions it serves.
func TestNodeIsNotReadyBeforeOthersKnowIt(t *testing.T) {
	var joined atomic.Bool
	w := newWorld(t, func(o *worldOptions) {
		o.Nodes = func() []Node { return nil }
		o.IsJoined = joined.Load
	})
	w.publish(follow("ann", "bob"))
	w.fold()
	w.wantReady("before the node has joined", http.StatusServiceUnavailable, "joining", "ready")
	w.wantHealth("before the node has joined", map[string]healthv1.HealthCheckResponse_ServingStatus{
		"": notServing, connectv1.GraphServiceName: notServing,
	})

	joined.Store(true)
	w.wantReady("after the node has joined", http.StatusOK, "ready", "ready")
	w.wantHealth("after the node has joined", map[string]healthv1.HealthCheckResponse_ServingStatus{
		"": serving, connectv1.GraphServiceName: serving,
	})
}

// TestNodeIsReadyOnceEveryPartitionIsServed checks that a node is not ready before the nodes
// together serve all partitions, so that a load balancer that polls /readyz sends no calls that
// would fail because no node has the rows. A node that has partitions and was ready stays ready
// while others are lost, because calls about the remaining partitions are answered.
func TestNodeIsReadyOnceEveryPartitionIsServed(t *testing.T) {
	t.Parallel()
	var none, firstHalf events.Partitions
	for p := range events.NumPartitions / 2 {
		firstHalf.Add(uint8(p))
	}
	all := events.AllPartitions()
	secondHalf := all.Without(&firstHalf)

	for _, c := range []struct {
		name string
		own  events.Partitions
		// servedByOther are the partitions that another node serves in each step, and statuses are
		// those of the tested node.
		servedByOther []events.Partitions
		statuses      []string
	}{
		{"a new node of a new cluster", none, []events.Partitions{none, firstHalf, all}, []string{"unserved", "unserved", "ready"}},
		{"a node that holds a half", firstHalf, []events.Partitions{none, secondHalf, none}, []string{"unserved", "ready", "ready"}},
		{"a router", none, []events.Partitions{all, firstHalf, none}, []string{"ready", "ready", "unserved"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var served events.Partitions
			w := newWorld(t, func(o *worldOptions) {
				o.partitions = &c.own
				o.Nodes = func() []Node { return []Node{{Name: "other", Addr: "127.0.0.1:1", Serves: served}} }
			})
			w.publish(follow("ann", "bob"))
			w.fold()
			for i, status := range c.statuses {
				served = c.servedByOther[i]
				code := http.StatusServiceUnavailable
				health := notServing
				if status == "ready" {
					code = http.StatusOK
					health = serving
				}
				step := fmt.Sprintf("step %d", i)
				w.wantReady(step, code, status, "ready")
				w.wantHealth(step, map[string]healthv1.HealthCheckResponse_ServingStatus{
					"": health, connectv1.GraphServiceName: health,
				})
			}
		})
	}
}

// TestHealthzNamesProblems checks that /healthz names problems without a change of its status,
// because a restart repairs none of them.
func TestHealthzNamesProblems(t *testing.T) {
	var problems []string
	w := newWorld(t, func(o *worldOptions) { o.Problems = func() []string { return problems } })
	checkHealthz := func(want string) {
		t.Helper()
		if status, _, body := w.get("/healthz"); status != http.StatusOK || strings.TrimSpace(string(body)) != want {
			t.Errorf("/healthz: got %d %s, want 200 %s", status, body, want)
		}
	}

	checkHealthz(`{"status":"ok","version":"test"}`)
	problems = []string{"the log cannot be archived"}
	checkHealthz(`{"status":"ok","version":"test","problems":["the log cannot be archived"]}`)
}

// TestHealthFollowsTheStateOfTheGraph checks /readyz, health checks and a health stream while the
// graph starts, when it has caught up, and after it has stopped.
func TestHealthFollowsTheStateOfTheGraph(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	services := []string{"", connectv1.GraphServiceName, connectv1.EventServiceName, connectv1.AdminServiceName, healthv1connect.HealthName}

	// No service serves before the first catch-up.
	w.wantReady("at first", http.StatusServiceUnavailable, "catching_up", "starting")
	for _, service := range services {
		w.wantHealth("at first", map[string]healthv1.HealthCheckResponse_ServingStatus{service: notServing})
	}
	w.wantHealth("at first", map[string]healthv1.HealthCheckResponse_ServingStatus{"skein.v1.Nothing": unknown})

	// Afterwards, all do except those of stores that the world does not have.
	w.fold()
	watch, err := w.health.Watch(t.Context(), connect.NewRequest(newHealthCheck(connectv1.GraphServiceName)))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	awaitServing(watch)
	w.wantReady("when it has caught up", http.StatusOK, "ready", "ready")
	for _, service := range services {
		w.wantHealth("when it has caught up", map[string]healthv1.HealthCheckResponse_ServingStatus{service: serving})
	}
	w.wantHealth("when it has caught up", map[string]healthv1.HealthCheckResponse_ServingStatus{
		connectv1.FeedServiceName: notServing, connectv1.SeenServiceName: notServing, connectv1.CounterServiceName: notServing,
		"skein.v1.Nothing": unknown,
	})
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Errorf("ListFollowers when it has caught up: got error %v, want none", err)
	}

	// Events can still be published when the graph has stopped.
	w.unfold()
	if !watch.Receive() || watch.Msg().GetStatus() != notServing {
		t.Errorf("health stream when the graph has stopped: got %v and error %v, want %v", watch.Msg(), watch.Err(), notServing)
	}
	w.wantReady("when the graph has stopped", http.StatusServiceUnavailable, "failed", "stopped")
	w.wantHealth("when the graph has stopped", map[string]healthv1.HealthCheckResponse_ServingStatus{
		"": notServing, connectv1.GraphServiceName: notServing, connectv1.EventServiceName: serving,
	})
	if status, _, body := w.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz when the graph has stopped: got %d %s, want 200", status, body)
	}
}

// TestHealthWatchOfAnUnknownService checks that a health stream of an unknown service reports that,
// and stays open until the caller ends it.
func TestHealthWatchOfAnUnknownService(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := w.health.Watch(ctx, connect.NewRequest(newHealthCheck("skein.v1.Nothing")))
	if err != nil {
		t.Fatal(err)
	}
	if !watch.Receive() || watch.Msg().GetStatus() != unknown {
		t.Errorf("first message: got %v and error %v, want %v", watch.Msg(), watch.Err(), unknown)
	}
	cancel()
	if watch.Receive() {
		t.Errorf("after the cancellation: got the message %v, want none", watch.Msg())
	}
	if code := connect.CodeOf(watch.Err()); code != connect.CodeCanceled {
		t.Errorf("after the cancellation: got error %v, want canceled", watch.Err())
	}
	_ = watch.Close()
}
