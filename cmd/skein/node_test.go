package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
)

// TestNodeCommandsListAndDrainNodes demands that an operator sees the nodes of a cluster, and that
// copies are missing, and can drain a node.
func TestNodeCommandsListAndDrainNodes(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log = eventlog.Config{URL: ns.ClientURL()}
		o.Node = &node.Config{Name: "node-1", Addr: l.Addr().String(), Listener: l, Zone: "east", Weight: 1, Copies: 2}
	})
	defer stop()
	checkLine := func(wantCode int, line string, args ...string) {
		t.Helper()
		checkRunMatches(t, wantCode, line, append(args, "--server", api.URL)...)
	}
	// waitForLine waits until `skein node list` prints a line.
	waitForLine := func(line string) {
		t.Helper()
		waitUntil(t.Context(), t, func(context.Context) error {
			_, out, errOut := runInProcess("node", "list", "--server", api.URL) //nolint:contextcheck // a command line has no context
			if !regexp.MustCompile("(?m)" + line).MatchString(out + errOut) {
				return fmt.Errorf("expected %q in\n%s%s", line, out, errOut)
			}
			return nil
		})
	}

	// The only node serves all partitions, each of which lacks its second copy.
	waitForLine(`^node-1 +127\.0\.0\.1:\d+ +east +1 +256 +256 +[A-Za-z0-9_-]+ +serving, answers this$`)
	checkLine(exitOK, `^LACKS COPIES: 256 partitions are served by fewer than 2 nodes$`, "status")

	// The partitions came by one change of each store, which ends when the generation without them
	// is deleted.
	if err := eventually(t.Context(), func(ctx context.Context) error {
		families := scrapeMetrics(ctx, t, api)
		states := map[string]int{}
		for _, name := range []string{"skein_cluster_node_state", "skein_cluster_change_state"} {
			for _, m := range families[name].GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "state" {
						states[label.GetValue()] += int(m.GetGauge().GetValue())
					}
				}
			}
		}
		if diff := cmp.Diff(map[string]int{"joining": 0, "serving": 1, "leaving": 0, "dropped": 5}, states); diff != "" {
			return errors.New(diff)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	families := scrapeMetrics(t.Context(), t, api)
	for name, want := range map[string]float64{
		"skein_cluster_nodes": 1, "skein_cluster_partitions": 256, "skein_cluster_partitions_short": 256, "skein_cluster_partitions_unserved": 0,
	} {
		for _, m := range families[name].GetMetric() {
			if m.GetGauge().GetValue() != want {
				t.Errorf("%s: %v, want %v", name, m, want)
			}
		}
	}

	// Drain the node, and undo that.
	checkLine(exitFailed, `this process knows no node "node-2", and sees node-1`, "node", "drain", "node-2")
	checkLine(exitOK, `^node-1 is drained: it gives up each partition once other nodes serve it`, "node", "drain", "node-1")
	waitForLine(` serving, answers this, drained$`)
	checkLine(exitOK, `^node-1 gets partitions again$`, "node", "drain", "node-1", "--undo")

	// A node ignores a key whose value no node has written, and reports the key to operators.
	putIntoClusterBucket(t, ns.ClientURL(), "node.x", "garbage")
	if err := eventually(t.Context(), func(ctx context.Context) error {
		for _, m := range scrapeMetrics(ctx, t, api)["skein_cluster_keys_unreadable"].GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				return nil
			}
		}
		return errors.New("skein_cluster_keys_unreadable is not 1")
	}); err != nil {
		t.Error(err)
	}
	checkLine(exitFailed, "the bucket of the cluster has values that cannot be read", "healthcheck", "--healthy")
	checkLine(exitOK, `(?m)^UNREADABLE: the node that answers ignores 1 key of the cluster's bucket: node\.x$`, "node", "list")
}

// holdingProxy forwards connections to a server. It can hold back what the clients send.
type holdingProxy struct {
	listener net.Listener
	// held receives an element when a chunk with the text watched is held back.
	held    chan struct{}
	watched []byte
	// gate is locked while the proxy holds back what the clients send.
	gate sync.RWMutex
}

// startHoldingProxy starts a proxy to a server. It ends when the test ends.
func startHoldingProxy(t *testing.T, to, watched string) *holdingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &holdingProxy{listener: l, held: make(chan struct{}, 1), watched: []byte(watched)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go p.forward(server, client)
			go func() {
				defer client.Close()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return p
}

// forward copies what a client sends, until the connection ends. It goes on reading while the gate
// is locked: the watched text may come after other messages, such as pings.
func (p *holdingProxy) forward(server, client net.Conn) {
	chunks := make(chan []byte, 1024)
	defer close(chunks)
	go func() {
		defer server.Close()
		for chunk := range chunks {
			p.gate.RLock()
			_, err := server.Write(chunk)
			p.gate.RUnlock()
			if err != nil {
				_ = client.Close() // ends the reading
			}
		}
	}()

	for {
		chunk := make([]byte, 64<<10)
		n, err := client.Read(chunk)
		if err != nil {
			return
		}
		if p.gate.TryRLock() {
			p.gate.RUnlock()
		} else if bytes.Contains(chunk[:n], p.watched) {
			select {
			case p.held <- struct{}{}:
			default:
			}
		}
		chunks <- chunk[:n]
	}
}

// TestLeavingNodeWithdrawsBeforeItsEnd stops a node while it waits for an answer of the bucket, and
// demands that the bucket says in the end that the node serves nothing. Otherwise the other nodes
// would ask it until they notice its silence.
func TestLeavingNodeWithdrawsBeforeItsEnd(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	proxy := startHoldingProxy(t, ns.Addr().String(), ".node.node-1")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log = eventlog.Config{URL: "nats://" + proxy.listener.Addr().String()}
		o.Node = &node.Config{Name: "node-1", Addr: l.Addr().String(), Listener: l, Weight: 1, Copies: 1}
	})

	stopOnce := sync.OnceFunc(stop)
	defer stopOnce()

	js := jetStreamAt(t, ns.ClientURL())
	id, err := findClusterLogID(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	// servedPartitions returns what the bucket says.
	servedPartitions := func(ctx context.Context) (served int) {
		cluster, err := placement.Open(ctx, placement.Options{JS: js, LogID: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range cluster.Members() {
			served += m.Serves.Len()
		}
		return served
	}
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		if served := servedPartitions(ctx); served != events.NumPartitions {
			return fmt.Errorf("the node serves %d partitions, expected all", served)
		}
		return nil
	})

	// Stop the node while it renews its announcement, and let it go on when it takes no calls any
	// more.
	proxy.gate.Lock()
	release := sync.OnceFunc(proxy.gate.Unlock)
	defer release() // before the deferred stop, which would wait for the bucket
	select {
	case <-proxy.held:
	case <-time.After(waitLimit):
		t.Fatal("the node did not renew its announcement")
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopOnce()
	}()
	waitUntil(t.Context(), t, func(context.Context) error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL, "http://"))
		if err != nil {
			return nil //nolint:nilerr // the listener is closed
		}
		return errors.Join(errors.New("the node takes calls"), conn.Close())
	})
	release()
	<-stopped
	if served := servedPartitions(t.Context()); served != 0 {
		t.Errorf("after its end, the node serves %d partitions according to the bucket, expected none", served)
	}
}

// putIntoClusterBucket writes a key into the bucket of the only cluster on a NATS server.
func putIntoClusterBucket(t *testing.T, url, key, value string) {
	t.Helper()
	js := jetStreamAt(t, url)
	for name := range js.KeyValueStoreNames(t.Context()).Name() {
		if !strings.HasPrefix(name, "skein-cluster-") {
			continue
		}
		kv, err := js.KeyValue(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.PutString(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}
