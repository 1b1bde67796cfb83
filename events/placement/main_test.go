package placement

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// testLog is the log id of the clusters of the tests.
const testLog = "test"

// runInBubble runs a test with a real server in a synctest bubble. The clock advances only while
// all goroutines wait, so the test does not depend on the speed of the machine.
func runInBubble(t *testing.T, test func(t *testing.T, ns *server.Server)) {
	t.Helper()

	// All file stores of a process share one clock, which must be started outside the bubble.
	createBucket(t, startServer(t), jetstream.FileStorage)

	// The NATS client keeps timers in a sync.Pool, where it must not find those of another bubble.
	// Two garbage collections empty the pool.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		ns := startServer(t)

		// The bucket is in memory, because the server's clock for files runs outside the bubble.
		createBucket(t, ns, jetstream.MemoryStorage)
		test(t, ns)
	})
}

// createBucket creates the bucket of the cluster.
func createBucket(t *testing.T, ns *server.Server, storage jetstream.StorageType) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	kv := jetstream.KeyValueConfig{Bucket: "skein-cluster-" + testLog, Storage: storage}
	if _, err := connect(t, ns).js.CreateKeyValue(ctx, kv); err != nil {
		t.Fatal(err)
	}
}

// startServer starts a server that only this process can reach.
func startServer(t *testing.T) *server.Server {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, DisableShortFirstPing: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})

	if !ns.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the test server is not ready")
	}
	return ns
}

// cuttableConn is a connection to a server that a test can cut.
type cuttableConn struct {
	ns *server.Server
	nc *nats.Conn
	js jetstream.JetStream

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

// errCut is the error of connecting while the connection is cut.
var errCut = errors.New("the line is cut")

// InProcessConn is part of nats.InProcessConnProvider.
func (l *cuttableConn) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errCut
	}
	conn, err := l.ns.InProcessConn()
	l.conns = append(l.conns, conn)
	return conn, err
}

// setCut cuts the connection, or allows the client to reconnect. In both cases it closes the
// connections that exist.
func (l *cuttableConn) setCut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// connect connects to the server until the end of the test.
func connect(t *testing.T, ns *server.Server) *cuttableConn {
	t.Helper()
	l := &cuttableConn{ns: ns}
	var err error
	l.nc, err = nats.Connect("", nats.InProcessServer(l), nats.Timeout(time.Minute), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.nc.Close)
	if l.js, err = jetstream.New(l.nc); err != nil {
		t.Fatal(err)
	}
	return l
}

// process is a cluster object with a connection of its own.
type process struct {
	*Cluster
	*cuttableConn

	log   *bytes.Buffer // may be read when Run has ended
	stop  func()
	ended chan error
}

// newNode returns a node with an address made of its name.
func newNode(name, zone string) *Member {
	return &Member{Name: name, Addr: name + ":7411", Zone: zone}
}

// openProcess opens a cluster that does not run yet. self is nil for a process that is no node.
func openProcess(t *testing.T, ns *server.Server, self *Member) *process {
	t.Helper()
	p := &process{cuttableConn: connect(t, ns), log: &bytes.Buffer{}, ended: make(chan error, 1)}
	var err error
	p.Cluster, err = Open(t.Context(), Options{
		JS: p.js, LogID: testLog, Self: self, Logger: slog.New(slog.NewTextHandler(p.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startProcess opens a cluster and runs it until it is stopped, or the test ends.
func startProcess(t *testing.T, ns *server.Server, self *Member) *process {
	t.Helper()
	p := openProcess(t, ns, self)
	p.run(t)
	return p
}

// run runs the cluster until stop is called or the test ends.
func (p *process) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.ended <- p.Run(ctx) })
	p.stop = func() {
		cancel()
		running.Wait()
	}

	t.Cleanup(p.stop)
}

// waitUntilEnded waits until Run has ended, and returns its error.
func (p *process) waitUntilEnded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Hour):
		t.Fatalf("Run has not ended; the members are %v", p.memberNames())
		return nil
	}
}

// waitUntil waits until a condition holds that depends on members and table. what describes the
// condition in the failure.
func (p *process) waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Hour)
	defer deadline.Stop()
	for {
		changed := p.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("never: %s; the members are %v, table %d has %v", what, p.memberNames(), p.Table().Revision, p.nodesWithPartitions())
		}
	}
}

// memberNames returns the names of the members.
func (p *process) memberNames() (names []string) {
	for _, m := range p.Members() {
		names = append(names, m.Name)
	}
	return names
}

// member returns the member with a name.
func (p *process) member(t *testing.T, name string) Member {
	t.Helper()
	for _, m := range p.Members() {
		if m.Name == name {
			return m
		}
	}

	t.Fatalf("members: got %v, want %s among them", p.memberNames(), name)
	return Member{}
}

// nodesWithPartitions returns the names of the nodes in the table.
func (p *process) nodesWithPartitions() []string {
	t := p.Table()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(t.Nodes[:]...))))
}

// waitUntilMembers waits until these are the members.
func (p *process) waitUntilMembers(t *testing.T, names ...string) {
	t.Helper()
	p.waitUntil(t, "the members are "+strings.Join(names, ", "), func() bool { return slices.Equal(p.memberNames(), names) })
}

// waitUntilPlaced waits until exactly these nodes have partitions.
func (p *process) waitUntilPlaced(t *testing.T, names ...string) {
	t.Helper()
	p.waitUntil(t, "exactly these nodes have partitions: "+strings.Join(names, ", "), func() bool {
		return slices.Equal(p.nodesWithPartitions(), names)
	})
}

// findController returns which of the processes has the lease, as far as p knows, or nil.
func (p *process) findController(among ...*process) *process {
	p.Cluster.mu.Lock()
	defer p.Cluster.mu.Unlock()
	for _, other := range among {
		if other.instance == p.bucketState.lease.holder {
			return other
		}
	}

	return nil
}
