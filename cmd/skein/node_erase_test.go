package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/gatewaytest"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// erasureCluster is a cluster of two nodes, a and b, each of which serves some partitions alone,
// and a reference process that has all rows. Node a is the first, so it archives the log.
type erasureCluster struct {
	nodeCluster

	url        string // of the NATS server
	archiveDir string
	// snapshotDir has the snapshots of all nodes.
	snapshotDir string
	apis        map[string]*command.Client
	stops       map[string]func()
}

// startNode starts a node on a data directory.
func (e *erasureCluster) startNode(name, dir string) {
	e.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(e.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	api, stop := startService(e.t, dir, slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log, o.Maintenance.Archive, o.Maintenance.Snapshots = eventlog.Config{URL: e.url}, e.openBucket(e.archiveDir), e.openBucket(e.snapshotDir)
		o.Node = &node.Config{Name: name, Addr: listener.Addr().String(), Listener: listener, Weight: 1, Copies: 1}
	})
	e.apis[name], e.stops[name] = api, stop
	e.inService[name] = &callableNode{&serverProcess{addr: addressOf(api)}, e.t.Context(), func() {}}
}

// openBucket opens a directory as a bucket.
func (e *erasureCluster) openBucket(dir string) bucket.Bucket {
	e.t.Helper()
	b, err := bucket.NewDir(dir)
	if err != nil {
		e.t.Fatal(err)
	}
	return b
}

// addressOf returns the host and port that a client calls.
func addressOf(api *command.Client) string { return strings.TrimPrefix(api.URL, "http://") }

// stopNode stops a node, unless it is stopped already.
func (e *erasureCluster) stopNode(name string) {
	if stop := e.stops[name]; stop != nil {
		delete(e.stops, name)
		delete(e.inService, name)
		stop()
	}
}

// waitUntilServed waits until each of the two nodes knows both, and each serves all partitions that
// it was given.
func (e *erasureCluster) waitUntilServed() {
	e.t.Helper()
	waitUntil(e.t.Context(), e.t, func(ctx context.Context) error {
		for _, api := range []*command.Client{e.apis["a"], e.apis["b"]} {
			status, err := getStatus(ctx, api)
			if err != nil {
				return err
			}
			nodes := status.GetCluster().GetNodes()
			if len(nodes) != 2 {
				return fmt.Errorf("%d nodes", len(nodes))
			}
			for _, n := range nodes {
				if n.GetServes() != n.GetGiven() || n.GetGiven() == 0 {
					return fmt.Errorf("%v", n)
				}
			}
		}
		return nil
	})
}

// eraseAtArchiver erases a user at node a, which archives.
func (e *erasureCluster) eraseAtArchiver(user string) (code int, out string) {
	code, text, trouble := runInProcess("replay", "erase", user, "--yes", "--server", e.apis["a"].URL)
	return code, text + trouble
}

// takeSnapshots lets each node take a snapshot. It adds the snapshots of a node that no longer
// exists, and returns a copy of all snapshots.
func (e *erasureCluster) takeSnapshots() (copied string) {
	e.t.Helper()
	for _, api := range e.apis {
		if code, out, errOut := runInProcess("snapshot", "--name", "before", "--server", api.URL); code != exitOK {
			e.t.Fatal(code, out, errOut)
		}
	}
	copied = filepath.Join(e.t.TempDir(), "snapshots")
	err := errors.Join(os.CopyFS(filepath.Join(e.snapshotDir, "nodes", "gone"), os.DirFS(filepath.Join(e.snapshotDir, "nodes", "b"))),
		os.CopyFS(copied, os.DirFS(e.snapshotDir)))
	if err != nil {
		e.t.Fatal(err)
	}
	return copied
}

// restoreNode restores the latest snapshot of node b, and returns the data directory.
func (e *erasureCluster) restoreNode(target string) (dir string) {
	e.t.Helper()
	dir = e.t.TempDir()
	if code, out, errOut := runInProcess("restore", "--data", dir, "--target", filepath.Join(target, "nodes", "b")); code != exitOK {
		e.t.Fatal(code, out, errOut)
	}
	return dir
}

// checkSameAnswers puts 60 questions to the nodes, which must answer as the reference process does.
func (e *erasureCluster) checkSameAnswers(seed uint64, position string) {
	e.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		if err := e.compareAnswers(rng, gatewaytest.Question(rng, position)); err != nil {
			e.t.Fatal(err)
		}
	}
}

// userHeldByNode returns a user whose rows are on one of the two nodes alone.
func userHeldByNode(name string) string {
	table := placement.Place([]placement.Member{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}, 1)
	for i := 0; ; i++ {
		user := fmt.Sprintf("somebody-to-be-erased-%d", i)
		if table.Nodes[events.ShardOf(user).Partition()][0] == name {
			return user
		}
	}
}

// TestErasureRemovesUserFromEveryNode demands that a user who is erased at one node is in no file
// of any node, of the archive and of the log. Nothing may be scrubbed while a node is away. A node
// that returns with old data, be it a copy or a snapshot, must be clean, too, and no snapshot may
// have the user.
func TestErasureRemovesUserFromEveryNode(t *testing.T) {
	t.Parallel()
	user := userHeldByNode("b")
	ns := startNATS(t)
	a, b, archived := t.TempDir(), t.TempDir(), t.TempDir()

	e := &erasureCluster{
		nodeCluster: nodeCluster{t: t, http: &http.Client{Transport: &http.Transport{}}, inService: map[string]*callableNode{}},
		url:         ns.ClientURL(), archiveDir: archived, snapshotDir: t.TempDir(), apis: map[string]*command.Client{}, stops: map[string]func(){},
	}
	t.Cleanup(e.http.CloseIdleConnections)

	e.startNode("a", a)
	defer func() { e.stopNode("a") }()
	// Erasing an unknown user is refused for the right reason once node a archives.
	waitUntil(t.Context(), t, func(context.Context) error {
		code, out := e.eraseAtArchiver("nobody") //nolint:contextcheck // a command makes its own
		if code != exitFailed || !strings.Contains(out, "no event of the log names this user") {
			return errors.New(out)
		}
		return nil
	})

	whole, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log, o.Maintenance.Archive = eventlog.Config{URL: e.url}, e.openBucket(archived)
	})
	defer stop()
	e.reference = &serverProcess{addr: addressOf(whole)}

	e.startNode("b", b)
	defer func() { e.stopNode("b") }()
	e.waitUntilServed()

	// Publish follows and pins of the user among other events, and let all nodes take a snapshot.
	rng := rand.New(rand.NewPCG(1, 1))
	evs := gatewaytest.Events(rng, 200)
	for i := range 30 {
		evs = append(evs, userFollowed(user, fmt.Sprint("u", i)), userFollowed(fmt.Sprint("u", i), user))
	}
	for i := range 60 {
		// Random bytes keep the tables from being compressed, so that the id can be found in the
		// files.
		attributes := make([]byte, 250)
		for i := range attributes {
			attributes[i] = byte(rng.Uint32())
		}
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: user, PinId: fmt.Sprint("p", i)}, BoardId: "b", ItemId: "i", Attributes: attributes,
		}}})
	}

	mustPublish(t, whole, evs...)
	position := mustPublish(t, whole, gatewaytest.Events(rng, 200)...)
	e.checkSameAnswers(1, position)
	snapshots := e.takeSnapshots()

	// Copy the data of node b after it was stopped, which flushes its stores.
	e.stopNode("b")
	before := filepath.Join(t.TempDir(), "before")
	if err := os.CopyFS(before, os.DirFS(b)); err != nil {
		t.Fatal(err)
	}
	if len(conformance.FilesWith(e.t, before, user)) == 0 {
		t.Fatal("no file has the id before the erasure")
	}

	// While a node is down, nothing is erased.
	code, out := e.eraseAtArchiver(user)
	if code == exitOK || !strings.Contains(out, "b cannot be reached: start it, or wait until other nodes have its partitions") {
		t.Errorf("with a node away: %d, %s", code, out)
	}

	e.startNode("b", b)
	e.waitUntilServed()
	if code, out := e.eraseAtArchiver(user); code != exitOK || !strings.Contains(out, "node b: its stores were built anew") {
		t.Fatalf("%d, %s", code, out)
	}

	// Snapshots that an operator has taken are only removed by name.
	for _, name := range []string{"a", "b", "gone"} {
		if code, out, errOut := runInProcess("snapshot", "prune", "before", "--target", filepath.Join(e.snapshotDir, "nodes", name)); code != exitOK {
			t.Fatal(code, out, errOut)
		}
	}

	// No file may have the id now, not even one of a new snapshot.
	position = mustPublish(t, whole, userFollowed("u1", "u2"))
	e.checkSameAnswers(2, position)
	if code, out, errOut := runInProcess("snapshot", "--name", "after", "--server", e.apis["b"].URL); code != exitOK {
		t.Fatal(code, out, errOut)
	}
	for _, dir := range []string{a, b, archived, e.snapshotDir, ns.JetStreamConfig().StoreDir} {
		if found := conformance.FilesWith(e.t, dir, user); len(found) > 0 {
			t.Errorf("the id is still in %v", found)
		}
	}

	// A node that returns with old data must be clean, too.
	for i, dir := range []string{before, e.restoreNode(snapshots), e.restoreNode(e.snapshotDir)} {
		e.stopNode("b")
		e.startNode("b", dir)
		e.waitUntilServed()
		e.checkSameAnswers(uint64(3+i), position)
		for _, dir := range []string{dir, e.snapshotDir} {
			if found := conformance.FilesWith(e.t, dir, user); len(found) > 0 {
				t.Errorf("%d: the id is still in %v", i, found)
			}
		}
	}
}
