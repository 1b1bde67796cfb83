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
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// childEnv makes the test binary a process that a test kills.
const childEnv = "SKEIN_EVENTS_TEST_CHILD"

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	_ = flag.Set("test.parallel", "6") // what runs in parallel waits, for elections and disks, more than it computes
	if dir := os.Getenv(childEnv); dir != "" {
		publishUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// checkLeaks fails the test if it leaves goroutines behind.
func checkLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// testLogger writes warnings to the test's log.
func testLogger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// openLog opens a log that the test closes: embedded in a new directory, unless the configuration says otherwise.
func mustOpenLog(t testing.TB, cfg Config) *Log {
	t.Helper()
	if cfg.Dir == "" && cfg.URL == "" && !cfg.Ephemeral {
		cfg.Dir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = testLogger(t)
	}
	l, err := Open(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLog(t, l) })
	return l
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func newPublisher(t testing.TB, l *Log, opt PublisherOptions) *Publisher {
	t.Helper()
	p, err := l.NewPublisher(opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testServer starts a server that listens on a port of its own choice, or on one of the options.
func startTestServer(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.NoSigs, opts.NoLog = "127.0.0.1", true, true
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.JetStream, opts.SyncAlways = true, true
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

func stopServer(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

// plainClient is what a program without this package would use.
func connectPlainClient(t testing.TB, ns *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(ns))
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

// followOf returns a follow that no other number returns.
func newFollow(n int) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
		UserId: fmt.Sprint(n), TargetUserId: "author",
	}}}
}

func newFollows(from, to int) (evs []*skeinv1.Event) {
	for n := from; n < to; n++ {
		evs = append(evs, newFollow(n))
	}
	return evs
}

// mustPublish publishes one call for each list of events.
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

// runHub runs a hub until the end of the test.
func runHub(t testing.TB, l *Log, opt HubOptions) (*Hub, <-chan error) {
	t.Helper()
	h := NewHub(l, opt)
	result := make(chan error, 1)
	go func() { result <- h.Run(context.Background()) }()
	t.Cleanup(h.Close)
	return h, result
}

func mustSubscribe(t testing.TB, h *Hub, from events.Cursor) *Subscription {
	t.Helper()
	s, err := h.Subscribe(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// readEnvelopes reads until the sequence.
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
				t.Fatalf("sequence %d after %d", e.Seq(), last)
			}
			last = e.Seq()
		}
		envs = append(envs, more...)
	}
	return envs
}

// readLog reads the whole log.
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

// followers counts how often each follower occurs.
func countFollowers(envs []*events.Envelope) map[string]int {
	seen := make(map[string]int)
	for _, env := range envs {
		for i := range env.Events {
			seen[env.Events[i].User]++
		}
	}
	return seen
}
