package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// routePorts counts the ports that [routePort] has tried, in all tests of the process.
var routePorts atomic.Int32

// findRoutePort finds a free port for the routes of a server. The server listens on it only later.
// So the port is outside the range from which the kernel takes the ports of clients, and no two
// calls in one process return the same port. Until the end of the test, a listener on the port
// after it keeps other processes that run this test from returning it.
func findRoutePort(t *testing.T) int {
	t.Helper()
	const first, last = 30_000, 32_000
	for {
		port := first + 2*int(routePorts.Add(1))
		if port >= last {
			t.Fatalf("no free port between %d and %d", first, last)
		}
		reservation, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = reservation.Close() })

		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// startTestCluster starts servers that form a JetStream cluster. clientURL lists all of them.
func startTestCluster(t *testing.T, size int) (servers []*server.Server, clientURL string) {
	t.Helper()
	var ports []int
	var routes []*url.URL
	for range size {
		port := findRoutePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}

	var urls []string
	for n := range size {
		ns := startTestServer(t, server.Options{
			ServerName: fmt.Sprintf("s%d", n),
			Cluster:    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[n]},
			Routes:     routes,
		})
		servers = append(servers, ns)
		urls = append(urls, ns.ClientURL())
	}

	return servers, strings.Join(urls, ",")
}

// TestClusterLosesNothingWithItsLeader publishes to a cluster of three servers and reads from it,
// and stops the leader of the stream meanwhile. Every event is read once.
func TestClusterLosesNothingWithItsLeader(t *testing.T) {
	t.Parallel()
	calls := 1200
	if testing.Short() {
		calls = 200
	}

	servers, url := startTestCluster(t, 3)
	quiet := slog.New(slog.DiscardHandler)
	ctx := testContext(t)
	l := mustOpenLog(t, Config{URL: url, Logger: quiet})
	other := mustOpenLog(t, Config{URL: url, Logger: quiet, Replicas: 3})
	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.Replicas != 3 {
		t.Fatalf("replicas: got %d, want 3", info.Config.Replicas)
	}
	if other.ID() != l.ID() {
		t.Fatalf("id of the log in the second process: got %x, want %x", other.ID(), l.ID())
	}
	if _, err := Open(ctx, Config{URL: url, Replicas: 1}); !errors.Is(err, events.ErrStreamMismatch) {
		t.Errorf("Open for one replica: got error %v, want %v", err, events.ErrStreamMismatch)
	}

	// A subscriber reads until an event of lastUser comes.
	h, _ := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	read := make(chan []*events.Envelope)
	const lastUser = "end"
	go func() {
		var envs []*events.Envelope
		for {
			more, err := s.Next(ctx, 1<<20)
			envs = append(envs, more...)
			if err != nil {
				t.Error(err)
			}
			if err != nil || more[len(more)-1].Events[0].User == lastUser {
				read <- envs
				return
			}
		}
	}()

	// Stop the leader in the middle of the calls.
	p := newPublisher(t, l, PublisherOptions{})
	p.retryFor = dedupeWindow - attemptTimeout // long enough for several elections
	for n := range calls {
		if n == calls/2 {
			stopLeader(t, servers, info.Cluster.Leader)
		}
		mustPublish(t, p, newFollows(n, n+1))
	}

	if _, err := l.Health(ctx); err != nil {
		t.Errorf("Health with two servers of three: got error %v, want none", err)
	}
	mustPublish(t, p, append(newFollows(0, 0), newLike(lastUser, "item", "")))

	envs := <-read
	seen := countFollowers(envs)
	for n := range calls {
		if id := fmt.Sprint(n); seen[id] != 1 {
			t.Errorf("event %s: got it %d times, want once", id, seen[id])
		}
	}

	// Another process, which may talk to another server, accepts the cursor.
	if err := other.CheckCursor(ctx, envs[len(envs)-1].Cursor); err != nil {
		t.Error(err)
	}
	if err := other.CheckPosition(ctx, envs[len(envs)-1].Cursor.Position()); err != nil {
		t.Error(err)
	}
	h.Close()

	// With a server down, a new log either gets three replicas or is not created. It must not
	// silently get one replica.
	for {
		// The servers may be electing a leader of the cluster. Until there is one, none of them
		// deletes the stream, and the request may get no answer.
		err := l.conn.request(ctx, l.conn.state(), requestTimeout, func(ctx context.Context) error {
			return l.conn.js.DeleteStream(ctx, StreamName)
		})
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		if wait.For(ctx, electionRetryPause) != nil {
			t.Fatal(err)
		}
	}
	newLog, err := Open(ctx, Config{URL: url, Logger: quiet, ConnectTimeout: 3 * time.Second})
	if err != nil {
		t.Logf("no log with a server of three down: %v", err)
		return
	}
	defer closeLog(t, newLog)
	newInfo, err := newLog.fetchStreamInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if newInfo.Config.Replicas != 3 {
		t.Errorf("replicas of a log created with a server down: got %d, want 3", newInfo.Config.Replicas)
	}
}

// stopLeader stops the server with the given name.
func stopLeader(t *testing.T, servers []*server.Server, leader string) {
	t.Helper()
	for _, ns := range servers {
		if ns.Name() == leader {
			stopServer(ns)
			return
		}
	}

	t.Errorf("leader: got %q, want the name of a server", leader)
}

// TestSmallClusterGetsOneReplica creates a log in a cluster of two servers, which is too small for
// three replicas.
func TestSmallClusterGetsOneReplica(t *testing.T) {
	t.Parallel()
	_, url := startTestCluster(t, 2)
	l := mustOpenLog(t, Config{URL: url, Logger: slog.New(slog.DiscardHandler)})
	info, err := l.fetchStreamInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Config.Replicas != 1 {
		t.Errorf("replicas: got %d, want 1", info.Config.Replicas)
	}
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
	if envs := readWholeLog(t, l); len(envs) != 1 {
		t.Errorf("envelopes: got %d, want 1", len(envs))
	}
}
