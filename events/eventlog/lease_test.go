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

var errWorkDone = errors.New("the work is done")

// held starts work under a lease, and reports when it has it and how it ends.
func startLeasedWork(ctx context.Context, l *Log, ttl time.Duration) (<-chan context.Context, <-chan error, func()) {
	has, ended := make(chan context.Context, 1), make(chan error, 1)
	work := make(chan struct{})
	go func() {
		ended <- l.whileLeased(ctx, "archive", ttl, func(ctx context.Context) error {
			has <- ctx
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-work:
				return errWorkDone
			}
		})
	}()
	return has, ended, sync.OnceFunc(func() { close(work) })
}

// TestLeaseHasOneHolder has two holders at one server, of which the clock is the bubble's: a lease is lost when it must be, however busy the
// machine is.
func TestLeaseHasOneHolder(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Logger: slog.New(slog.DiscardHandler)})
		ctx := testContext(t)
		const ttl = 6 * time.Second
		// In memory: the server's clock for files is not the bubble's.
		kv, err := l.conn.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: leaseBucket, TTL: ttl, Storage: jetstream.MemoryStorage})
		if err != nil {
			t.Fatal(err)
		}
		hasA, endA, finishA := startLeasedWork(ctx, l, ttl)
		<-hasA
		hasB, endB, finishB := startLeasedWork(ctx, l, time.Hour) // the bucket's ttl counts
		// Longer than the ttl: it is renewed.
		select {
		case <-hasB:
			t.Fatal("two have the lease")
		case err := <-endA:
			t.Fatalf("lost: %v", err)
		case <-time.After(5*ttl + ttl/12): // between two renewals
		}
		finishA()
		if err := <-endA; !errors.Is(err, errWorkDone) {
			t.Errorf("the work returned %v", err)
		}
		given := time.Now()
		inB := <-hasB
		if after := time.Since(given); after >= ttl {
			t.Errorf("what was given back was taken after %v of %v", after, ttl)
		}

		// The loss of a lease is reported, whether another process has it already or not.
		if _, err := kv.Put(ctx, "archive", []byte("somebody else")); err != nil {
			t.Fatal(err)
		}
		<-inB.Done()
		if err := <-endB; !errors.Is(err, events.ErrLeaseLost) {
			t.Errorf("the lease was taken: %v", err)
		}
		finishB()

		// What the dead leave behind expires.
		taken := time.Now()
		hasA, endA, finishA = startLeasedWork(ctx, l, ttl)
		lost := <-hasA
		if after := time.Since(taken); after > 2*ttl {
			t.Errorf("it expired after %v of %v", after, ttl)
		}
		stopped := time.Now()
		if err := l.server.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		<-lost.Done()
		if err := <-endA; !errors.Is(err, events.ErrLeaseLost) {
			t.Errorf("the server is gone: %v", err)
		}
		if after := time.Since(stopped); after >= ttl {
			t.Errorf("it was believed for %v of %v", after, ttl)
		}
		finishA()
	})
}

// TestReleasedLeaseIsFreeAtOnce: a renewal whose answer never came does not keep the next holder waiting, and what another has taken stays.
func TestReleasedLeaseIsFreeAtOnce(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	ctx := testContext(t)
	const never = 24 * time.Hour
	for holder, taken := range map[string]bool{"this": false, "another": true} {
		le := &lease{log: l, name: "archive", ttl: never, holder: []byte("this")}
		if err := le.acquire(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := le.kv.Put(ctx, le.name, []byte(holder)); err != nil {
				t.Fatal(err)
			}
		}
		le.release(ctx)
		entry, err := le.kv.Get(ctx, le.name)
		if !taken && !errors.Is(err, jetstream.ErrKeyNotFound) || taken && (err != nil || string(entry.Value()) != holder) {
			t.Errorf("renewed by %s: %v, %v", holder, entry, err)
		}
		if err := le.kv.Purge(ctx, le.name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaseRejectsShortTTLAndSkipsEmbeddedLog: what is no lease, and what needs none.
func TestLeaseRejectsShortTTLAndSkipsEmbeddedLog(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	ctx := testContext(t)
	work := func(context.Context) error { return errWorkDone }
	if err := l.WhileLeased(ctx, "archive", MinLease, work); !errors.Is(err, errWorkDone) {
		t.Errorf("the work returned %v", err)
	}
	if err := l.WhileLeased(ctx, "archive", time.Millisecond, nil); err == nil {
		t.Error("a lease of a millisecond")
	}
	stopServer(ns)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := l.WhileLeased(gone, "archive", MinLease, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a lease ended with %v", err)
	}
	own := mustOpenLog(t, Config{Ephemeral: true})
	if err := own.WhileLeased(ctx, "archive", MinLease, work); !errors.Is(err, errWorkDone) {
		t.Errorf("an embedded log: %v", err)
	}
}

// In a cluster of three, of which one is stopped meanwhile, no two holders work at the same time.
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
				err := l.WhileLeased(ctx, "archive", ttl, func(context.Context) error {
					if working.Add(1) != 1 {
						t.Error("two work at once")
					}
					defer working.Add(-1)
					if n == 0 && done.Load() == 0 {
						info, err := l.streamInfo(ctx)
						if err != nil {
							return err
						}
						stopLeader(t, servers, info.Cluster.Leader)
					}
					done.Add(1)
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
		t.Errorf("%d of %d did their work", got, 3*rounds)
	}
}
