//go:build upgrade

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// programOfOldFold returns a program that has another version of the fold of counters, and does not
// differ from the program under test in any other way except its age.
func programOfOldFold(t *testing.T) string {
	t.Helper()
	old := os.Getenv("SKEIN_OLD_FOLD")
	if old == "" {
		t.Fatal("SKEIN_OLD_FOLD is a program with another version of counters: go tool -modfile=tools.mod task upgrade:drill")
	}
	return old
}

// restartLoad reads and publishes continuously while a server is replaced. A read may fail only
// during a restart.
type restartLoad struct {
	t   *testing.T
	api *command.Client
	// restartSteps counts when the server begins to stop and when it is ready again. It is odd
	// during a restart.
	restartSteps atomic.Int64
	reads, plays atomic.Int64
	stop         chan struct{}
	running      sync.WaitGroup

	mu sync.Mutex
	// lastRead is the end of the last read that succeeded, and longestGap the longest time between
	// two such ends.
	lastRead   time.Time
	longestGap time.Duration
}

// start starts two readers and a writer.
func (l *restartLoad) start(ctx context.Context) {
	l.stop = make(chan struct{})
	l.lastRead = time.Now()
	for range 2 {
		l.running.Go(func() { l.repeat(func() { l.read(ctx) }) })
	}
	l.running.Go(func() { l.repeat(func() { l.publish(ctx) }) })
}

// repeat calls a function until the load is stopped.
func (l *restartLoad) repeat(step func()) {
	for {
		select {
		case <-l.stop:
			return
		default:
			step()
		}
	}
}

// read makes two calls, and fails the test if one of them fails outside of a restart.
func (l *restartLoad) read(ctx context.Context) {
	steps := l.restartSteps.Load()
	err := l.readCountersAndFollow(ctx)
	if err != nil {
		// A restart may have begun or ended during the calls, or both.
		if steps%2 == 0 && l.restartSteps.Load() == steps {
			l.t.Errorf("a read failed while the server was running: %v", err)
		}
		return
	}

	l.reads.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.longestGap = max(l.longestGap, now.Sub(l.lastRead))
	l.lastRead = now
}

// readCountersAndFollow asks two projections, of which the upgrade rebuilds only the counters.
func (l *restartLoad) readCountersAndFollow(ctx context.Context) error {
	_, err := l.api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
		Keys: []*skeinv1.CounterKey{itemKey("i1")},
	}))
	if err != nil {
		return err
	}
	_, err = l.api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
		Pairs: []*skeinv1.FollowPair{userPair("u1", "u2")},
	}))
	return err
}

// publish publishes a play, with the same event id until the play is acknowledged.
func (l *restartLoad) publish(ctx context.Context) {
	ev := &skeinv1.Event{
		EventId: fmt.Sprint("play-", l.plays.Load()),
		Kind:    &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "u1", ItemId: "i1"}},
	}
	for ctx.Err() == nil {
		_, err := l.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{ev}}))
		if err == nil {
			l.plays.Add(1)
			return
		}
	}
}

// restart replaces the program of the server, and logs for how long no read was answered.
func (l *restartLoad) restart(ctx context.Context, s *serverProcess, program string) {
	l.t.Helper()
	l.mu.Lock()
	l.longestGap = 0
	l.mu.Unlock()

	l.restartSteps.Add(1)
	if err := s.stopGracefully(); err != nil {
		l.t.Fatal(err)
	}
	s.program = program
	if err := s.start(ctx); err != nil {
		l.t.Fatal(err)
	}
	l.restartSteps.Add(1)

	// Wait until reads succeed again, so that the gap is complete.
	const wantReads = 10
	before := l.reads.Load()
	waitUntil(ctx, l.t, func(context.Context) error {
		if reads := l.reads.Load() - before; reads < wantReads {
			return fmt.Errorf("%d reads since the restart, want %d", reads, wantReads)
		}
		return nil
	})

	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("restarted as %s: for %v no read was answered", filepath.Base(program), l.longestGap.Round(time.Millisecond))
}

// TestPreparedUpgradeFailsNoRead upgrades a service under load to a version with another fold of
// counters. The new program prepares a generation while the old one serves, and continues that
// generation after the restart. The service then goes back and forth again, which takes a restart
// each. Reads may fail only during the restarts.
func TestPreparedUpgradeFailsNoRead(t *testing.T) {
	old := programOfOldFold(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*waitLimit)
	defer cancel()
	s := &serverProcess{t: t, dir: t.TempDir(), program: old}
	t.Cleanup(func() { s.kill() })
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	publishGoldenEvents(t, s, old)
	load := &restartLoad{t: t, api: s.newClient()}
	t.Cleanup(load.api.HTTP.CloseIdleConnections)
	load.start(ctx)

	// checkCommand checks that a command of the new program succeeds and prints a text. It logs the
	// command and its output, because they show how an upgrade goes.
	checkCommand := func(want string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(ctx, "skein", append(args, "--server", s.addr)...).CombinedOutput()
		command := strings.ReplaceAll(strings.Join(args, " "), s.dir, "DIR")
		text := strings.ReplaceAll(string(out), s.dir, "DIR")
		t.Logf("skein %s (%v)\n%s", command, err, text)
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("skein %s: got the error %v, want success and an output with %q", command, err, want)
		}
	}

	// Prepare again right before the restart, so that the generation is as recent as possible.
	for range 2 {
		checkCommand("counters: a generation is prepared", "replay", "prepare", "--data", s.dataDir())
	}

	for _, step := range []struct{ program, generation string }{
		{"skein", "generation 2: ready"},
		{old, "generation 1: ready"},
		{"skein", "generation 2: ready"},
	} {
		load.restart(ctx, s, step.program)
		waitUntil(ctx, t, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "skein", "replay", "status", "counters", "--server", s.addr).CombinedOutput()
			if err != nil {
				return err
			}
			if !strings.Contains(string(out), step.generation) {
				return fmt.Errorf("skein replay status: got %s, want %q", out, step.generation)
			}
			return nil
		})
		checkCommand("equal", "replay", "verify", "--share", "1")
	}

	close(load.stop)
	load.running.Wait()
	t.Logf("%d reads, %d plays", load.reads.Load(), load.plays.Load())
}

// TestPreparedUpgradeOfNodesFailsNoRead does the same node by node. The cluster of two versions
// must answer all questions meanwhile as a process that has all rows. Each start must continue a
// generation that exists, and must build none.
func TestPreparedUpgradeOfNodesFailsNoRead(t *testing.T) {
	old := programOfOldFold(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	c := startNodes(ctx, t, old)
	prepare := func(ctx context.Context, s *serverProcess) error {
		out, err := exec.CommandContext(ctx, "skein", "replay", "prepare", "--data", s.dataDir(),
			"--nats", c.nats.urls(), "--server", s.addr).CombinedOutput()
		if err != nil {
			return fmt.Errorf("skein replay prepare: %w: %s", err, out)
		}
		const want = "counters: a generation is prepared"
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("skein replay prepare: got %s, want %q", out, want)
		}
		return nil
	}

	c.runUnderLoad(ctx, func(ctx context.Context) {
		for i, upgrade := range []disruption{
			{"prepared, to the new program", func(ctx context.Context) error { return c.restartNodesAfter(ctx, "skein", prepare) }},
			{"back", func(ctx context.Context) error { return c.restartNodes(ctx, old) }},
			{"to the new program again", func(ctx context.Context) error { return c.restartNodes(ctx, "skein") }},
		} {
			if !c.disrupt(ctx, upgrade) {
				return
			}

			// Every node has restarted once per upgrade so far.
			wantStarts := i + 1
			for name, node := range c.inService {
				// The log of a process that runs reaches the file a little later.
				err := eventually(ctx, func(context.Context) error {
					text, err := node.readLogFile()
					const continued = "the live generation is outdated, and another one is live instead"
					if n := strings.Count(text, continued); err == nil && n != wantStarts {
						err = fmt.Errorf("it continued another generation at %d starts, want %d", n, wantStarts)
					}
					return err
				})
				if err != nil {
					t.Errorf("%s: %s: %v", upgrade.name, name, err)
				}
			}
		}
	})
}
