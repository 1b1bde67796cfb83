package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// errWorkDone is what leased work returns when it is told to finish.
var errWorkDone = errors.New("the work is done")

// startLeasedWork starts work under a lease. It returns a channel that gets the context of the work
// when the lease is acquired, a channel that gets the result, and a function that makes the work
// finish.
func startLeasedWork(ctx context.Context, l *Log, ttl time.Duration) (<-chan context.Context, <-chan error, func()) {
	acquired, ended := make(chan context.Context, 1), make(chan error, 1)
	finish := make(chan struct{})
	go func() {
		ended <- l.whileLeased(ctx, "archive", ttl, func(ctx context.Context) error {
			acquired <- ctx
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-finish:
				return errWorkDone
			}
		})
	}()

	return acquired, ended, sync.OnceFunc(func() { close(finish) })
}

// TestLeaseHasOneHolder lets two holders compete for a lease, with the clock of a bubble. A lease
// is renewed, handed over, lost to another holder, and lost when the server is gone, each within
// the time that the ttl allows.
func TestLeaseHasOneHolder(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Logger: slog.New(slog.DiscardHandler)})
		ctx := testContext(t)
		const ttl = 6 * time.Second

		// The bucket is in memory, because the server's clock for files runs outside the bubble.
		kv, err := l.conn.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: leaseBucket, TTL: ttl, Storage: jetstream.MemoryStorage})
		if err != nil {
			t.Fatal(err)
		}

		acquiredA, endedA, finishA := startLeasedWork(ctx, l, ttl)
		<-acquiredA
		acquiredB, endedB, finishB := startLeasedWork(ctx, l, time.Hour) // the ttl of the bucket counts

		// A holds the lease for longer than the ttl, because it renews the lease.
		select {
		case <-acquiredB:
			t.Fatal("second holder: got the lease while the first one has it, want it to wait")
		case err := <-endedA:
			t.Fatalf("first holder: got error %v, want it to keep the lease", err)
		case <-time.After(5*ttl + ttl/12): // between two renewals
		}

		finishA()
		if err := <-endedA; !errors.Is(err, errWorkDone) {
			t.Errorf("result of the work: got error %v, want %v", err, errWorkDone)
		}
		released := time.Now()
		workB := <-acquiredB
		if after := time.Since(released); after >= ttl {
			t.Errorf("time until the released lease was acquired: got %v, want less than %v", after, ttl)
		}

		// B loses the lease because another process has taken it.
		if _, err := kv.Put(ctx, "archive", []byte("somebody else")); err != nil {
			t.Fatal(err)
		}
		<-workB.Done()
		if err := <-endedB; !errors.Is(err, events.ErrLeaseLost) {
			t.Errorf("second holder after the lease was taken: got error %v, want %v", err, events.ErrLeaseLost)
		}
		finishB()

		// The lease of a process that has died expires.
		takenAway := time.Now()
		acquiredA, endedA, finishA = startLeasedWork(ctx, l, ttl)
		workA := <-acquiredA
		if after := time.Since(takenAway); after > 2*ttl {
			t.Errorf("time until the lease of the dead process expired: got %v, want at most %v", after, 2*ttl)
		}

		// A loses the lease because the server is gone.
		stopped := time.Now()
		if err := l.server.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		<-workA.Done()
		if err := <-endedA; !errors.Is(err, events.ErrLeaseLost) {
			t.Errorf("holder without a server: got error %v, want %v", err, events.ErrLeaseLost)
		}
		if after := time.Since(stopped); after >= ttl {
			t.Errorf("time until the holder stopped: got %v, want less than %v", after, ttl)
		}
		finishA()
	})
}

// TestLeaseIsRenewedUntilWorkHasEnded cancels the context of leased work that takes several ttls to
// stop. Another holder gets the lease only after the work has ended.
func TestLeaseIsRenewedUntilWorkHasEnded(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Logger: slog.New(slog.DiscardHandler)})
		ctx := testContext(t)
		const ttl = 6 * time.Second

		// The bucket is in memory, because the server's clock for files runs outside the bubble.
		_, err := l.conn.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: leaseBucket, TTL: ttl, Storage: jetstream.MemoryStorage})
		if err != nil {
			t.Fatal(err)
		}

		workCtx, cancel := context.WithCancel(ctx)
		started, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- l.whileLeased(workCtx, "archive", ttl, func(context.Context) error {
				close(started)
				<-finish // whatever happens to the context
				return errWorkDone
			})
		}()
		<-started
		cancel()

		acquired, endedNext, finishNext := startLeasedWork(ctx, l, ttl)
		select {
		case <-acquired:
			t.Error("second holder: got the lease while the first one still works, want it to wait")
		case <-time.After(3 * ttl):
		}

		close(finish)
		if err := <-ended; !errors.Is(err, errWorkDone) {
			t.Errorf("result of the work: got error %v, want %v", err, errWorkDone)
		}
		finishNext()
		if err := <-endedNext; !errors.Is(err, errWorkDone) {
			t.Errorf("result of the next holder: got error %v, want %v", err, errWorkDone)
		}
	})
}

// TestReleasedLeaseIsFreeAtOnce releases a lease after renewals whose answers never came. The lease
// is free at once. If another process has taken it meanwhile, it stays with that process.
func TestReleasedLeaseIsFreeAtOnce(t *testing.T) {
	checkLeaks(t)
	for name, test := range map[string]struct {
		lastHolder string
		wantKept   bool
	}{
		"renewed by this process":  {"this", false},
		"taken by another process": {"another", true},
	} {
		t.Run(name, func(t *testing.T) {
			testReleasedLease(t, test.lastHolder, test.wantKept)
		})
	}
}

// testReleasedLease acquires a lease, lets lastHolder renew it and releases it. It checks whether the
// server still has the lease then.
func testReleasedLease(t *testing.T, lastHolder string, wantKept bool) {
	t.Helper()
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	ctx := testContext(t)
	const never = 24 * time.Hour
	held := &lease{log: l, name: "archive", ttl: never, holder: []byte("this")}
	if err := held.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := held.kv.Put(ctx, held.name, []byte(lastHolder)); err != nil {
			t.Fatal(err)
		}
	}

	held.release(ctx)
	entry, err := held.kv.Get(ctx, held.name)
	if !wantKept {
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("lease after its release: got %v and error %v, want %v", entry, err, jetstream.ErrKeyNotFound)
		}
		return
	}
	if err != nil {
		t.Fatalf("lease of %s after its release: got error %v, want none", lastHolder, err)
	}
	if got := string(entry.Value()); got != lastHolder {
		t.Errorf("holder after the release: got %q, want %q", got, lastHolder)
	}
}

// TestLeaseRejectsShortTTLAndSkipsEmbeddedLog checks the limits of RunWithLease: a ttl that is too
// short, a context that ends while it waits, and an embedded log, which needs no lease.
func TestLeaseRejectsShortTTLAndSkipsEmbeddedLog(t *testing.T) {
	checkLeaks(t)

	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	ctx := testContext(t)
	work := func(context.Context) error { return errWorkDone }
	if err := l.RunWithLease(ctx, "archive", time.Hour, work); !errors.Is(err, errWorkDone) { // never lost
		t.Errorf("result of the work: got error %v, want %v", err, errWorkDone)
	}
	if err := l.RunWithLease(ctx, "archive", time.Millisecond, nil); err == nil {
		t.Error("lease of a millisecond: got no error, want one")
	}

	// The wait for a lease ends with its context.
	stopServer(ns)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.RunWithLease(canceled, "archive", MinLease, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("wait for a lease with an ended context: got error %v, want %v", err, context.Canceled)
	}

	embedded := mustOpenLog(t, Config{Ephemeral: true})
	if err := embedded.RunWithLease(ctx, "archive", MinLease, work); !errors.Is(err, errWorkDone) {
		t.Errorf("lease of an embedded log: got error %v, want %v", err, errWorkDone)
	}
}

// TestLeaseHasOneHolderInCluster checks that in a cluster of three servers, one of which is stopped
// meanwhile, no two holders of a lease work at the same time.
func TestLeaseHasOneHolderInCluster(t *testing.T) {
	t.Parallel()
	servers, url := startTestCluster(t, 3)
	quiet := slog.New(slog.DiscardHandler)
	ctx := testContext(t)
	rounds := 4
	if testing.Short() {
		rounds = 2
	}

	const ttl = 6 * time.Second
	var working, done atomic.Int32
	var wg sync.WaitGroup
	for n := range 3 {
		l := mustOpenLog(t, Config{URL: url, Logger: quiet})
		wg.Go(func() {
			for range rounds {
				err := l.RunWithLease(ctx, "archive", ttl, func(held context.Context) error {
					if got := working.Add(1); got != 1 {
						t.Errorf("holders that work at the same time: got %d, want 1", got)
					}
					defer working.Add(-1)
					isFirst := done.Add(1) == 1

					// The first work of the first process stops the server that leads the stream.
					// That may take longer than the lease is trusted without a leader, so the work
					// ends with the lease.
					if n == 0 && isFirst {
						stopped := make(chan struct{})
						wg.Go(func() {
							defer close(stopped)
							info, err := l.fetchStreamInfo(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							stopLeader(t, servers, info.Cluster.Leader)
						})
						select {
						case <-stopped:
						case <-held.Done():
						}
					}
					return nil
				})
				if err != nil && !errors.Is(err, events.ErrLeaseLost) {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	if got := done.Load(); got != int32(3*rounds) {
		t.Errorf("rounds of work: got %d, want %d", got, 3*rounds)
	}
}
