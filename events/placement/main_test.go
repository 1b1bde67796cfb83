package placement

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testLog = "test"

// inBubble runs a test with a real server. Its clock continues only while all wait, so no test depends on the speed of the machine.
func runInBubble(t *testing.T, test func(t *testing.T, ns *server.Server)) {
	t.Helper()
	// All file stores of a process have one clock, which must not be started in the bubble.
	createBucket(t, startServer(t), jetstream.FileStorage)
	// The NATS client keeps timers in a sync.Pool, in which it must not find one of another bubble: two collections empty it.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		ns := startServer(t)
		// In memory: the server's clock for files is not the bubble's.
		createBucket(t, ns, jetstream.MemoryStorage)
		test(t, ns)
	})
}

func createBucket(t *testing.T, ns *server.Server, storage jetstream.StorageType) {
	t.Helper()
	if _, err := connect(t, ns).js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "skein-cluster-" + testLog, Storage: storage,
	}); err != nil {
		t.Fatal(err)
	}
}

// startServer starts a server that only this process can reach.
func startServer(t *testing.T) *server.Server {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), DisableShortFirstPing: true,
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40,
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

// line connects to a server, and can be cut.
type cuttableConn struct {
	ns *server.Server
	nc *nats.Conn
	js jetstream.JetStream

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

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

// cut cuts the line, or restores it.
func (l *cuttableConn) setCut(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

func connect(t *testing.T, ns *server.Server) *cuttableConn {
	t.Helper()
	l := &cuttableConn{ns: ns}
	var err error
	l.nc, err = nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectBufSize(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
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

	log   *bytes.Buffer // read it when Run has ended
	stop  func()
	ended chan error
}

func newNode(name, zone string) *Member {
	return &Member{Name: name, Addr: name + ":7411", Zone: zone}
}

// openProcess opens a cluster that does not run yet; self may be nil.
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

// start opens a cluster and runs it until it is stopped, or the test ends.
func start(t *testing.T, ns *server.Server, self *Member) *process {
	t.Helper()
	p := openProcess(t, ns, self)
	p.run(t)
	return p
}

func (p *process) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.WaitGroup
	once.Go(func() { p.ended <- p.Run(ctx) })
	p.stop = func() {
		cancel()
		once.Wait()
	}
	t.Cleanup(p.stop)
}

// end waits until Run has ended, and returns its error.
func (p *process) waitUntilEnded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Hour):
		t.Fatalf("it runs on; the members are %v", p.memberNames())
		return nil
	}
}

// until waits until a condition holds that depends on members and table.
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

// names returns the names of the members.
func (p *process) memberNames() (names []string) {
	for _, m := range p.Members() {
		names = append(names, m.Name)
	}
	return names
}

func (p *process) member(t *testing.T, name string) Member {
	t.Helper()
	for _, m := range p.Members() {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("%s is not among %v", name, p.memberNames())
	return Member{}
}

// placed returns the names that occur in the table.
func (p *process) nodesWithPartitions() []string {
	t := p.Table()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(t.Nodes[:]...))))
}

// untilMembers waits until these are the members.
func (p *process) waitUntilMembers(t *testing.T, names ...string) {
	t.Helper()
	p.waitUntil(t, "these members", func() bool { return slices.Equal(p.memberNames(), names) })
}

// untilPlaced waits until the table has these names.
func (p *process) waitUntilPlaced(t *testing.T, names ...string) {
	t.Helper()
	p.waitUntil(t, "these names in the table", func() bool { return slices.Equal(p.nodesWithPartitions(), names) })
}

// controller returns the process that has the lease, by what another one knows.
func (p *process) findController(among ...*process) *process {
	p.Cluster.mu.Lock()
	defer p.Cluster.mu.Unlock()
	for _, other := range among {
		if other.instance == p.state.lease.holder {
			return other
		}
	}
	return nil
}
