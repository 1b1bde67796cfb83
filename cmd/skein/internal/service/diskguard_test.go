package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/skein-feed/skein/gateway"
)

// TestDiskGuard: Publish stops first, then the projections, and each continues when a tenth more is free than where it stopped.
func TestDiskGuard(t *testing.T) {
	const mib = 1 << 20
	free, total := uint64(0), uint64(1000*mib)
	g := &diskGuard{
		freeDisk:       func() (uint64, uint64, error) { return free, total, nil },
		reserveSetting: 100 * mib, logger: slog.New(slog.DiscardHandler), resumed: make(chan struct{}),
	}
	for _, step := range []struct {
		free              uint64
		refusing, pausing bool
	}{
		{100, false, false},
		{99, true, false},
		{109, true, false},
		{110, false, false},
		{50, true, false},
		{49, true, true},
		{54, true, true},
		{55, true, false},
		{0, true, true},
		{200, false, false},
	} {
		free = step.free * mib
		g.check()
		if g.refusing.Load() != step.refusing || g.pausing.Load() != step.pausing {
			t.Errorf("%d MiB free: refusing %v, pausing %v", step.free, g.refusing.Load(), g.pausing.Load())
		}
		if err := g.checkPublishAllowed(); step.refusing != errors.Is(err, gateway.ErrDiskFull) || (err == nil) == step.refusing {
			t.Errorf("%d MiB free: %v", step.free, err)
		}
	}
	for _, size := range []struct{ total, reserve uint64 }{{1000, 100}, {100 << 10, 1 << 10}} {
		g.reserveSetting, total = 0, size.total*mib
		if g.check(); g.reserveBytes.Load() != size.reserve*mib {
			t.Errorf("of %d MiB %d bytes are kept free", size.total, g.reserveBytes.Load())
		}
	}
}

// TestDiskGuardAwait: a caller that waits for room continues once there is some, or returns with the context.
func TestDiskGuardAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := uint64(0)
		g := &diskGuard{
			freeDisk:       func() (uint64, uint64, error) { return free, 1000, nil },
			reserveSetting: 100, logger: slog.New(slog.DiscardHandler), resumed: make(chan struct{}),
		}
		g.check()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- g.awaitResume(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		go func() { ended <- g.awaitResume(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it continued without room, with %v", err)
		default:
		}
		free = 1000
		g.check()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := g.awaitResume(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDiskGuardAwaitLeast: a service that starts on a full disk waits until there is room for opening its stores, and no longer.
func TestDiskGuardAwaitLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(minOpenBytes - 1)
		g := &diskGuard{
			freeDisk:       func() (uint64, uint64, error) { return free.Load(), 1 << 40, nil },
			reserveSetting: 1 << 30, logger: slog.New(slog.DiscardHandler), resumed: make(chan struct{}),
		}
		g.check()
		waited := make(chan error)
		go func() { waited <- g.awaitOpeningSpace(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("it does not wait: %v", err)
		default:
		}
		free.Store(minOpenBytes)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if !g.refusing.Load() || !g.pausing.Load() {
			t.Error("facts are taken as soon as the stores can be opened")
		}
		free.Store(0)
		g.check()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.awaitOpeningSpace(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
