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

// newTestDiskGuard returns a guard whose disk freeDisk simulates. It has checked the disk once.
func newTestDiskGuard(reserve uint64, freeDisk func() (free, total uint64, err error)) *diskGuard {
	g := &diskGuard{
		freeDisk:       freeDisk,
		reserveSetting: reserve,
		logger:         slog.New(slog.DiscardHandler),
		resumed:        make(chan struct{}),
	}
	g.check()
	return g
}

// TestDiskGuardStopsWritersInOrder: as the free disk shrinks, Publish stops first and the
// projections second. Each continues when the free disk exceeds its limit by a tenth.
func TestDiskGuardStopsWritersInOrder(t *testing.T) {
	const mib = 1 << 20
	free := uint64(1000 * mib)
	g := newTestDiskGuard(100*mib, func() (uint64, uint64, error) { return free, 1000 * mib, nil })

	for _, step := range []struct {
		name              string
		freeMiB           uint64
		refusing, pausing bool
	}{
		{"the reserve is free", 100, false, false},
		{"less than the reserve", 99, true, false},
		{"not yet a tenth above the reserve", 109, true, false},
		{"a tenth above the reserve", 110, false, false},
		{"half of the reserve", 50, true, false},
		{"less than half of the reserve", 49, true, true},
		{"not yet a tenth above half of the reserve", 54, true, true},
		{"a tenth above half of the reserve", 55, true, false},
		{"the disk is full", 0, true, true},
		{"twice the reserve", 200, false, false},
	} {
		// The steps depend on each other, so a subtest cannot run alone.
		t.Run(step.name, func(t *testing.T) {
			free = step.freeMiB * mib
			g.check()
			refusing := g.refusing.Load()
			pausing := g.pausing.Load()
			if refusing != step.refusing || pausing != step.pausing {
				t.Errorf("expected refusing %v and pausing %v, got %v and %v", step.refusing, step.pausing, refusing, pausing)
			}
			err := g.checkPublishAllowed()
			if step.refusing && !errors.Is(err, gateway.ErrDiskFull) {
				t.Errorf("Publish: expected ErrDiskFull, got %v", err)
			}
			if !step.refusing && err != nil {
				t.Errorf("Publish: expected no error, got %v", err)
			}
		})
	}
}

// TestDefaultReserveIsATenthOfTheDisk: the default reserve is a tenth of the disk, but at most 1
// GiB.
func TestDefaultReserveIsATenthOfTheDisk(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name              string
		totalMiB, wantMiB uint64
	}{
		{"small disk", 1000, 100},
		{"large disk", 100 << 10, 1 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newTestDiskGuard(0, func() (uint64, uint64, error) { return 0, c.totalMiB * mib, nil })
			if got := g.reserveBytes.Load(); got != c.wantMiB*mib {
				t.Errorf("expected a reserve of %d bytes, got %d", c.wantMiB*mib, got)
			}
		})
	}
}

// TestAwaitResumeWaitsForFreeDisk: a projection that waits continues once there is enough free
// disk, or returns when its context ends.
func TestAwaitResumeWaitsForFreeDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := uint64(0)
		g := newTestDiskGuard(100, func() (uint64, uint64, error) { return free, 1000, nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)

		go func() { ended <- g.awaitResume(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("after the context has ended: expected context.Canceled, got %v", err)
		}

		go func() { ended <- g.awaitResume(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("expected to wait while the disk is full, got %v", err)
		default:
		}
		free = 1000
		g.check()
		if err := <-ended; err != nil {
			t.Errorf("after the disk has become free: %v", err)
		}
		if err := g.awaitResume(t.Context()); err != nil {
			t.Errorf("while the disk is free: %v", err)
		}
	})
}

// TestAwaitOpeningSpaceWaitsForMinOpenBytes: a service that starts on a full disk waits until there
// is enough disk to open its stores, and no longer.
func TestAwaitOpeningSpaceWaitsForMinOpenBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(minOpenBytes - 1)
		g := newTestDiskGuard(1<<30, func() (uint64, uint64, error) { return free.Load(), 1 << 40, nil })
		ended := make(chan error)
		go func() { ended <- g.awaitOpeningSpace(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("expected to wait while too little is free, got %v", err)
		default:
		}

		free.Store(minOpenBytes)
		if err := <-ended; err != nil {
			t.Errorf("after there is enough disk: %v", err)
		}
		if refusing, pausing := g.refusing.Load(), g.pausing.Load(); !refusing || !pausing {
			t.Errorf("below the reserve: expected refusing and pausing, got %v and %v", refusing, pausing)
		}

		free.Store(0)
		g.check()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.awaitOpeningSpace(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after the context has ended: expected context.Canceled, got %v", err)
		}
	})
}
