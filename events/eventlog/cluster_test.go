package eventlog

import (
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

	"github.com/skein-feed/skein/events"
)

// routePorts counts the ports that [routePort] has tried, in all tests of the process.
var routePorts atomic.Int32

// routePort finds a free port for the routes of a server. It is given before the server listens, so it is none that the kernel gives to
// clients, and none that another test of this package has got.
func findRoutePort(t *testing.T) int {
	t.Helper()
	const first, last = 30_000, 32_000
	for {
		port := first + int(routePorts.Add(1))
		if port > last {
			t.Fatal("no free ports")
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
}

// testCluster starts servers that form a JetStream cluster, and returns them with the URL of all.
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

// TestClusterLosesNothingWithItsLeader publishes to a cluster of three and reads from it while one server, the leader of the stream, is
// stopped in the middle.
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
	info, err := l.streamInfo(ctx)
	if err != nil || info.Config.Replicas != 3 || other.ID() != l.ID() {
		t.Fatalf("the log has %d replicas, %v", info.Config.Replicas, err)
	}
	if _, err := Open(ctx, Config{URL: url, Replicas: 1}); !errors.Is(err, events.ErrStreamMismatch) {
		t.Errorf("opened for one replica: %v", err)
	}
	h, _ := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	read := make(chan []*events.Envelope)
	const last = "end"
	go func() {
		var envs []*events.Envelope
		for {
			more, err := s.Next(ctx, 1<<20)
			envs = append(envs, more...)
			if err != nil || more[len(more)-1].Events[0].User == last {
				if err != nil {
					t.Error(err)
				}
				read <- envs
				return
			}
		}
	}()

	p := newPublisher(t, l, PublisherOptions{})
	for n := range calls {
		if n == calls/2 {
			stopLeader(t, servers, info.Cluster.Leader)
		}
		mustPublish(t, p, newFollows(n, n+1))
	}
	if _, err := l.Health(ctx); err != nil {
		t.Errorf("with two servers of three: %v", err)
	}
	mustPublish(t, p, append(newFollows(0, 0), newLike(last, "item", "")))
	envs := <-read
	seen := countFollowers(envs)
	for n := range calls {
		if id := fmt.Sprint(n); seen[id] != 1 {
			t.Errorf("event %s was read %d times", id, seen[id])
		}
	}
	// The cursor of one process is good for the other, whatever server it talks to.
	if err := other.CheckCursor(ctx, envs[len(envs)-1].Cursor); err != nil {
		t.Error(err)
	}
	if err := other.CheckPosition(ctx, envs[len(envs)-1].Cursor.Position()); err != nil {
		t.Error(err)
	}
	h.Close()

	// A new log made now gets three replicas too, or none is made: it must not be left with one in silence.
	if err := l.conn.js.DeleteStream(ctx, StreamName); err != nil {
		t.Fatal(err)
	}
	lone, err := Open(ctx, Config{URL: url, Logger: quiet, ConnectTimeout: 3 * time.Second})
	if err != nil {
		t.Logf("no log with a server of three down: %v", err)
		return
	}
	defer closeLog(t, lone)
	if info, err := lone.streamInfo(ctx); err != nil || info.Config.Replicas != 3 {
		t.Errorf("with a server of three down a log was made with %d replicas, %v", info.Config.Replicas, err)
	}
}

func stopLeader(t *testing.T, servers []*server.Server, leader string) {
	t.Helper()
	for _, ns := range servers {
		if ns.Name() == leader {
			stopServer(ns)
			return
		}
	}
	t.Errorf("there is no server %q", leader)
}

// TestSmallClusterGetsOneReplica: a cluster of two gets a log with one replica.
func TestSmallClusterGetsOneReplica(t *testing.T) {
	t.Parallel()
	_, url := startTestCluster(t, 2)
	l := mustOpenLog(t, Config{URL: url, Logger: slog.New(slog.DiscardHandler)})
	info, err := l.streamInfo(testContext(t))
	if err != nil || info.Config.Replicas != 1 {
		t.Errorf("in a cluster of two the log has %d replicas, %v", info.Config.Replicas, err)
	}
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
	if envs := readWholeLog(t, l); len(envs) != 1 {
		t.Errorf("read %d envelopes", len(envs))
	}
}
