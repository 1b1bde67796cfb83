package main

import (
	"context"
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
		o.Log = eventlog.Config{URL: e.url}
		o.Maintenance.Archive = e.openBucket(e.archiveDir)
		o.Maintenance.Snapshots = e.openBucket(e.snapshotDir)
		o.Node = &node.Config{Name: name, Addr: listener.Addr().String(), Listener: listener, Weight: 1, Copies: 1}
	})
	e.apis[name] = api
	e.stops[name] = stop
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
		for _, name := range []string{"a", "b"} {
			status, err := getStatus(ctx, e.apis[name])
			if err != nil {
				return err
			}
			nodes := status.GetCluster().GetNodes()
			if len(nodes) != 2 {
				return fmt.Errorf("node %s knows %d nodes, want 2", name, len(nodes))
			}
			for _, n := range nodes {
				if n.GetServes() != n.GetGiven() || n.GetGiven() == 0 {
					return fmt.Errorf("according to node %s, a node does not serve all that it was given: %v", name, n)
				}
			}
		}
		return nil
	})
}

// eraseAtArchiver erases a user at node a, which archives. It returns the exit code, and the output
// and the errors together.
func (e *erasureCluster) eraseAtArchiver(user string) (code int, text string) {
	code, out, errOut := runInProcess("replay", "erase", user, "--yes", "--server", e.apis["a"].URL)
	return code, out + errOut
}

// takeSnapshots lets each node take a snapshot. It adds the snapshots of a node that no longer
// exists, and returns the directory with a copy of all snapshots.
func (e *erasureCluster) takeSnapshots() (copied string) {
	e.t.Helper()
	for _, api := range e.apis {
		checkRun(e.t, exitOK, "", "", "snapshot", "--name", "before", "--server", api.URL)
	}

	nodes := filepath.Join(e.snapshotDir, "nodes")
	if err := os.CopyFS(filepath.Join(nodes, "gone"), os.DirFS(filepath.Join(nodes, "b"))); err != nil {
		e.t.Fatal(err)
	}

	copied = filepath.Join(e.t.TempDir(), "snapshots")
	if err := os.CopyFS(copied, os.DirFS(e.snapshotDir)); err != nil {
		e.t.Fatal(err)
	}
	return copied
}

// restoreNode restores the latest snapshot of node b from the directory of all snapshots, and
// returns the data directory.
func (e *erasureCluster) restoreNode(snapshots string) (dir string) {
	e.t.Helper()
	dir = e.t.TempDir()
	checkRun(e.t, exitOK, "", "", "restore", "--data", dir, "--target", filepath.Join(snapshots, "nodes", "b"))
	return dir
}

// checkInNoFile checks that no file of the directories has the id of a user.
func (e *erasureCluster) checkInNoFile(user string, dirs ...string) {
	e.t.Helper()
	for _, dir := range dirs {
		if found := conformance.FilesWith(e.t, dir, user); len(found) > 0 {
			e.t.Errorf("the id of the erased user is still in %v", found)
		}
	}
}

// eventsOfUser returns follows of a user in both directions, and pins of the user.
func eventsOfUser(user string, rng *rand.Rand) (evs []*skeinv1.Event) {
	for i := range 30 {
		other := fmt.Sprint("u", i)
		evs = append(evs, userFollowed(user, other), userFollowed(other, user))
	}
	for i := range 60 {
		// Random bytes keep the tables from being compressed, so that the id can be found in the
		// files.
		attributes := make([]byte, 250)
		for n := range attributes {
			attributes[n] = byte(rng.Uint32())
		}
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: &skeinv1.Pin{OwnerId: user, PinId: fmt.Sprint("p", i)}, BoardId: "b", ItemId: "i", Attributes: attributes,
		}}})
	}
	return evs
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
	dirA := t.TempDir()
	dirB := t.TempDir()

	e := &erasureCluster{
		nodeCluster: nodeCluster{t: t, http: &http.Client{Transport: &http.Transport{}}, inService: map[string]*callableNode{}},
		url:         ns.ClientURL(),
		archiveDir:  t.TempDir(),
		snapshotDir: t.TempDir(),
		apis:        map[string]*command.Client{},
		stops:       map[string]func(){},
	}
	t.Cleanup(e.http.CloseIdleConnections)

	e.startNode("a", dirA)
	defer func() { e.stopNode("a") }()
	// Erasing an unknown user is refused for the right reason once node a archives.
	waitUntil(t.Context(), t, func(context.Context) error {
		code, text := e.eraseAtArchiver("nobody") //nolint:contextcheck // a command makes its own
		if code != exitFailed || !strings.Contains(text, "no event of the log names this user") {
			return fmt.Errorf("exit code %d: %s", code, text)
		}
		return nil
	})

	reference, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log = eventlog.Config{URL: e.url}
		o.Maintenance.Archive = e.openBucket(e.archiveDir)
	})
	defer stop()
	e.reference = &serverProcess{addr: addressOf(reference)}

	e.startNode("b", dirB)
	defer func() { e.stopNode("b") }()
	e.waitUntilServed()

	// Publish follows and pins of the user among other events, and let all nodes take a snapshot.
	rng := rand.New(rand.NewPCG(1, 1))
	mustPublish(t, reference, append(gatewaytest.Events(rng, 200), eventsOfUser(user, rng)...)...)
	position := mustPublish(t, reference, gatewaytest.Events(rng, 200)...)
	e.checkSameAnswers(1, position)
	snapshots := e.takeSnapshots()

	// Copy the data of node b after it was stopped, which flushes its stores.
	e.stopNode("b")
	dirBefore := filepath.Join(t.TempDir(), "before")
	if err := os.CopyFS(dirBefore, os.DirFS(dirB)); err != nil {
		t.Fatal(err)
	}
	if len(conformance.FilesWith(t, dirBefore, user)) == 0 {
		t.Fatal("no file of node b has the id before the erasure, want at least one")
	}

	// While a node is down, nothing is erased.
	const unreachable = "b cannot be reached: start it, or wait until other nodes have its partitions"
	code, text := e.eraseAtArchiver(user)
	if code == exitOK || !strings.Contains(text, unreachable) {
		t.Errorf("erasure while node b is down: exit code %d, want a failure with %q:\n%s", code, unreachable, text)
	}

	const rebuilt = "node b: its stores were built anew"
	e.startNode("b", dirB)
	e.waitUntilServed()
	code, text = e.eraseAtArchiver(user)
	if code != exitOK || !strings.Contains(text, rebuilt) {
		t.Fatalf("erasure: exit code %d, want success with %q:\n%s", code, rebuilt, text)
	}

	// Snapshots that an operator has taken are only removed by name.
	for _, name := range []string{"a", "b", "gone"} {
		checkRun(t, exitOK, "", "", "snapshot", "prune", "before", "--target", filepath.Join(e.snapshotDir, "nodes", name))
	}

	// No file may have the id now, not even one of a new snapshot.
	position = mustPublish(t, reference, userFollowed("u1", "u2"))
	e.checkSameAnswers(2, position)
	checkRun(t, exitOK, "", "", "snapshot", "--name", "after", "--server", e.apis["b"].URL)
	e.checkInNoFile(user, dirA, dirB, e.archiveDir, e.snapshotDir, ns.JetStreamConfig().StoreDir)

	// A node that returns with old data must be clean, too. These are no subtests, because services
	// and directories belong to the test as a whole.
	for i, returning := range []struct{ name, dir string }{
		{"a copy of the data before the erasure", dirBefore},
		{"a snapshot before the erasure", e.restoreNode(snapshots)},
		{"a snapshot after the erasure", e.restoreNode(e.snapshotDir)},
	} {
		t.Logf("node b returns with %s", returning.name)
		e.stopNode("b")
		e.startNode("b", returning.dir)
		e.waitUntilServed()
		e.checkSameAnswers(uint64(3+i), position)
		e.checkInNoFile(user, returning.dir, e.snapshotDir)
	}
}
