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
		name         string
		freeMiB      uint64
		wantRefusing bool
		wantPausing  bool
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
			if got := g.refusing.Load(); got != step.wantRefusing {
				t.Errorf("refusing: got %t, want %t", got, step.wantRefusing)
			}
			if got := g.pausing.Load(); got != step.wantPausing {
				t.Errorf("pausing: got %t, want %t", got, step.wantPausing)
			}

			var want error
			if step.wantRefusing {
				want = gateway.ErrDiskFull
			}
			if err := g.checkPublishAllowed(); !errors.Is(err, want) {
				t.Errorf("checkPublishAllowed: got %v, want %v", err, want)
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
				t.Errorf("reserve: got %d bytes, want %d", got, c.wantMiB*mib)
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
		ended := make(chan error, 2)

		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- g.awaitResume(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("after the context has ended: got %v, want context.Canceled", err)
		}

		go func() { ended <- g.awaitResume(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("while the disk is full: got the end %v, want to wait", err)
		default:
		}

		free = 1000
		g.check()
		if err := <-ended; err != nil {
			t.Errorf("after the disk has become free: got %v, want no error", err)
		}
		if err := g.awaitResume(t.Context()); err != nil {
			t.Errorf("while the disk is free: got %v, want no error", err)
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

		ended := make(chan error, 1)
		go func() { ended <- g.awaitOpeningSpace(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("while too little is free: got the end %v, want to wait", err)
		default:
		}

		// The service opens its stores, but what is free is still less than half of the reserve.
		free.Store(minOpenBytes)
		if err := <-ended; err != nil {
			t.Errorf("after there is enough disk: got %v, want no error", err)
		}
		refusing := g.refusing.Load()
		pausing := g.pausing.Load()
		if !refusing || !pausing {
			t.Errorf("below the reserve: got refusing %t and pausing %t, want both", refusing, pausing)
		}

		free.Store(0)
		g.check()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.awaitOpeningSpace(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after the context has ended: got %v, want context.Canceled", err)
		}
	})
}
