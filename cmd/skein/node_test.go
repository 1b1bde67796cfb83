package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/eventlog"
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
	checkLine(exitFailed, `the cluster has no node "node-2", only node-1`, "node", "drain", "node-2")
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
