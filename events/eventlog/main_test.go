package eventlog

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/leaktest"
	"github.com/skein-feed/skein/events/testmain"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// childEnv is the environment variable with the data directory of a child process, which a test
// kills.
const childEnv = "SKEIN_EVENTS_TEST_CHILD"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // parallel tests mostly wait, for elections and disks
	if dir := os.Getenv(childEnv); dir != "" {
		publishUntilKilled(dir)
		return
	}
	testmain.Run(m)
}

// testContext returns a context that ends after five minutes, or with the test.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// checkLeaks makes the test fail if it leaves goroutines behind. The test must not be parallel,
// because goroutines of others count, too.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaktest.Verify(t, before) })
}

// testLogger returns a logger that writes warnings to the output of the test.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// mustOpenLog opens a log, and closes it at the end of the test. Unless the configuration says
// otherwise, the log is embedded in a new directory.
func mustOpenLog(t testing.TB, cfg Config) *Log {
	t.Helper()
	if cfg.Dir == "" && cfg.URL == "" && !cfg.Ephemeral {
		cfg.Dir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = testLogger(t)
	}
	cfg.ConnectTimeout = 5 * time.Minute // servers of a cluster may need several elections
	l, err := Open(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLog(t, l) })
	return l
}

// closeLog closes a log before the end of the test.
func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// newPublisher returns a publisher, which the log closes.
func newPublisher(t testing.TB, l *Log, opt PublisherOptions) *Publisher {
	t.Helper()
	p, err := l.NewPublisher(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startTestServer starts a server with JetStream on a free port.
func startTestServer(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	opts.Host = "127.0.0.1"
	opts.NoSigs = true
	opts.NoLog = true
	opts.Port = server.RANDOM_PORT
	opts.JetStream = true
	opts.SyncAlways = true
	opts.JetStreamMaxStore = 1 << 40
	if opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}

	ns, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { stopServer(ns) })
	if !ns.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the test server is not ready")
	}
	return ns
}

// stopServer stops a server and waits for it.
func stopServer(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// connectPlainClient connects to the server as a program without this package would.
func connectPlainClient(t testing.TB, ns *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(ns), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// newFollow returns a follow by user n, which differs from the follows of all other numbers.
func newFollow(n int) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
		UserId: fmt.Sprint(n), TargetUserId: "author",
	}}}
}

// newFollows returns the follows with the numbers from <= n < to.
func newFollows(from, to int) (evs []*skeinv1.Event) {
	for n := from; n < to; n++ {
		evs = append(evs, newFollow(n))
	}
	return evs
}

// mustPublish publishes each list of events as one call, and returns the result of the last call.
func mustPublish(t testing.TB, p *Publisher, calls ...[]*skeinv1.Event) (last Result) {
	t.Helper()
	for _, evs := range calls {
		res, err := p.Publish(testContext(t), evs, PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = res
	}

	return last
}

// runHub runs a hub until the end of the test. The channel receives the result of Run.
func runHub(t testing.TB, l *Log, opt HubOptions) (*Hub, <-chan error) {
	t.Helper()
	h := NewHub(l, opt)
	result := make(chan error, 1)
	go func() { result <- h.Run(context.Background()) }()
	t.Cleanup(h.Close)
	return h, result
}

// mustSubscribe subscribes after a cursor until the end of the test.
func mustSubscribe(t testing.TB, h *Hub, from events.Cursor) *Subscription {
	t.Helper()
	s, err := h.Subscribe(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// readEnvelopes reads with a subscription up to a sequence, and checks that the sequences rise.
func readEnvelopes(t testing.TB, s *Subscription, to uint64) (envs []*events.Envelope) {
	t.Helper()
	ctx := testContext(t)
	for last := uint64(0); last < to; {
		more, err := s.Next(ctx, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range more {
			if e.Seq() <= last {
				t.Fatalf("sequence after %d: got %d, want a later one", last, e.Seq())
			}
			last = e.Seq()
		}

		envs = append(envs, more...)
	}

	return envs
}

// readWholeLog reads the log from its start to its present head.
func readWholeLog(t testing.TB, l *Log) []*events.Envelope {
	t.Helper()
	head, err := l.Head(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	h, _ := runHub(t, l, HubOptions{})
	defer h.Close()
	s := mustSubscribe(t, h, l.Start())
	defer s.Close()
	return readEnvelopes(t, s, head.Last)
}

// countFollowers counts the events of each acting user.
func countFollowers(envs []*events.Envelope) map[string]int {
	seen := make(map[string]int)
	for _, env := range envs {
		for i := range env.Events {
			seen[env.Events[i].User]++
		}
	}

	return seen
}
