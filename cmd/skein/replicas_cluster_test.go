package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// natsCluster is a JetStream cluster of three servers inside the test. The servers sync each
// message to disk before they acknowledge it.
type natsCluster struct {
	t       *testing.T
	opts    []*natsserver.Options
	servers []*natsserver.Server
	// js is a connection of the test itself, without the rules of skein.
	js jetstream.JetStream
}

// startNATSCluster starts the three servers. They stop at the end of the test.
func startNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	const size = 3
	c := &natsCluster{t: t, servers: make([]*natsserver.Server, size)}

	// Each server has a port for the other servers, and one for clients.
	ports, err := findFreePorts(27000, 2*size)
	if err != nil {
		t.Fatal(err)
	}
	routePorts := ports[:size]
	clientPorts := ports[size:]

	var routes []*url.URL
	for _, port := range routePorts {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}

	for n := range size {
		c.opts = append(c.opts, &natsserver.Options{
			ServerName: fmt.Sprint("n", n), Host: "127.0.0.1", Port: clientPorts[n], NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: filepath.Join(t.TempDir(), fmt.Sprint(n)), SyncAlways: true, JetStreamMaxStore: 1 << 40,
			Cluster: natsserver.ClusterOpts{Name: "replicas", Host: "127.0.0.1", Port: routePorts[n]},
			Routes:  routes,
		})
	}

	for n := range size {
		c.startServer(n)
		t.Cleanup(func() { c.stopServer(n) })
	}

	nc, err := nats.Connect(c.urls(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c.js, err = jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startServer starts server n, with the same port and directory each time.
func (c *natsCluster) startServer(n int) {
	c.t.Helper()
	ns, err := natsserver.NewServer(c.opts[n].Clone())
	if err != nil {
		c.t.Fatal(err)
	}

	c.servers[n] = ns
	ns.Start()
	if !ns.ReadyForConnections(waitLimit) {
		c.t.Fatalf("server %d of the cluster is not ready", n)
	}
}

// stopServer stops server n and waits until it has ended.
func (c *natsCluster) stopServer(n int) {
	c.servers[n].Shutdown()
	c.servers[n].WaitForShutdown()
}

// urls returns the addresses of all servers, as the flag --nats takes them.
func (c *natsCluster) urls() string {
	var list []string
	for _, o := range c.opts {
		list = append(list, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return strings.Join(list, ",")
}

// retryClusterRequest makes a request to the cluster until it succeeds. A server that was just
// started again may leave a request without an answer, so each attempt has five seconds.
func retryClusterRequest(ctx context.Context, request func(context.Context) error) error {
	return eventually(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return request(ctx)
	})
}

// waitUntilReplicated waits until every replica of the log is up and has all messages.
func (c *natsCluster) waitUntilReplicated(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = retryClusterRequest(ctx, func(ctx context.Context) error {
		stream, err := c.js.Stream(ctx, eventlog.StreamName)
		if err != nil {
			return err
		}
		info = stream.CachedInfo()
		if info.Cluster == nil || info.Cluster.Leader == "" {
			return errors.New("the log has no leader")
		}
		for _, r := range info.Cluster.Replicas {
			if r.Offline || !r.Current {
				return fmt.Errorf("replica %s: %+v", r.Name, r)
			}
		}
		return nil
	})
	return info, err
}

// findLeader returns the number of the server that leads the log.
func (c *natsCluster) findLeader(ctx context.Context) (int, error) {
	info, err := c.waitUntilReplicated(ctx)
	if err != nil {
		return -1, err
	}
	for n, ns := range c.servers {
		if ns.Name() == info.Cluster.Leader {
			return n, nil
		}
	}
	return -1, fmt.Errorf("there is no server %q", info.Cluster.Leader)
}

// stopFollower stops a server that does not lead the log, waits until the other servers know that
// it is down, and returns its number.
func (c *natsCluster) stopFollower(ctx context.Context) (n int) {
	c.t.Helper()
	leader, err := c.findLeader(ctx)
	if err != nil {
		c.t.Fatal(err)
	}

	n = (leader + 1) % len(c.servers)
	c.stopServer(n)
	checkOffline := func(ctx context.Context) error {
		stream, err := c.js.Stream(ctx, eventlog.StreamName)
		if err != nil {
			return err
		}
		for _, r := range stream.CachedInfo().Cluster.Replicas {
			if r.Name == c.opts[n].ServerName && r.Offline {
				return nil
			}
		}
		return fmt.Errorf("server %d is not reported as offline yet", n)
	}
	if err := retryClusterRequest(ctx, checkOffline); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// readEnvelopes reads all envelopes of the log directly from the stream, without the rules of
// skein.
func (c *natsCluster) readEnvelopes(ctx context.Context) (all []*skeinv1.EventBatch, err error) {
	info, err := c.waitUntilReplicated(ctx)
	if err != nil {
		return nil, err
	}
	want := info.State.Msgs

	var consumer jetstream.Consumer
	err = retryClusterRequest(ctx, func(ctx context.Context) (err error) {
		consumer, err = c.js.OrderedConsumer(ctx, eventlog.StreamName, jetstream.OrderedConsumerConfig{})
		return err
	})
	if err != nil {
		return nil, err
	}

	// A new consumer may not answer yet. After an error, the consumer continues after the messages
	// that it has already delivered.
	err = eventually(ctx, func(context.Context) error {
		for uint64(len(all)) < want {
			missing := want - uint64(len(all))
			msgs, err := consumer.Fetch(int(min(1000, missing)), jetstream.FetchMaxWait(time.Second))
			if err != nil {
				return err
			}

			before := len(all)
			for msg := range msgs.Messages() {
				batch := &skeinv1.EventBatch{}
				if err := proto.Unmarshal(msg.Data(), batch); err != nil {
					return err
				}
				all = append(all, batch)
			}
			if err := msgs.Error(); err != nil || len(all) == before {
				return fmt.Errorf("the log of %d envelopes ends after %d: %w", want, len(all), err)
			}
		}
		return nil
	})
	return all, err
}
