package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/store"
)

// diskGuard keeps a reserve of the data directory's disk free. As the free disk shrinks, diskGuard
// first refuses Publish and then pauses the projections, while each of them still has enough disk
// to stop cleanly:
//
//	free ≥ reserve        everything works
//	     < reserve        Publish is refused
//	     < reserve / 2    the projections pause: reads still answer, from the position at which the projections stopped
//
// When there is enough disk again, both continue. If the disk became completely full, a store or
// the log would leave half a table or half a message behind, and would have failed until the next
// start, which removes such remains.
type diskGuard struct {
	// freeDisk returns how many bytes of the disk are free, and its size in bytes.
	freeDisk func() (free, total uint64, err error)
	// reserveSetting is the reserve that the operator wants, in bytes; 0 means a share of the disk.
	reserveSetting uint64
	// recoverLog is called in every period in which Publish is not refused. It repairs a log that
	// has met a full disk.
	recoverLog func(context.Context) error
	logger     *slog.Logger

	// freeBytes and reserveBytes are the free disk and the reserve at the last check.
	freeBytes, reserveBytes atomic.Uint64
	refusing                atomic.Bool // Publish is refused
	pausing                 atomic.Bool // the projections are paused

	mu sync.Mutex
	// resumed is closed, and replaced by a new channel, when the projections continue. mu guards
	// it.
	resumed chan struct{}

	freeDesc, reserveDesc, refusingDesc, pausedDesc *prometheus.Desc
}

const (
	// diskCheckPeriod is the time between two checks of the free disk. A service at full speed
	// writes some 100 MB in this time.
	diskCheckPeriod = 500 * time.Millisecond
	// By default the reserve is the size of the disk divided by defaultReserveDivisor, but not more
	// than maxDefaultReserve bytes.
	maxDefaultReserve     = 1 << 30
	defaultReserveDivisor = 10
	// minOpenBytes is how much disk opening the stores may take, for new manifests and similar
	// files.
	minOpenBytes = 8 << 20
)

// newDiskGuard returns the guard of the disk on which dir is. It has checked the disk once.
func newDiskGuard(dir string, reserve uint64, logger *slog.Logger) *diskGuard {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	g := &diskGuard{
		freeDisk:       func() (uint64, uint64, error) { return store.FreeDisk(dir) },
		reserveSetting: reserve,
		logger:         logger,
		resumed:        make(chan struct{}),
		freeDesc:       describe("skein_disk_free_bytes", "Free bytes of the disk that holds the data directory."),
		reserveDesc:    describe("skein_disk_reserve_bytes", "Publish is refused while fewer bytes of the disk are free."),
		refusingDesc:   describe("skein_disk_refusing", "1 while Publish is refused because the disk is nearly full."),
		pausedDesc:     describe("skein_disk_paused", "1 while the projections are paused because the disk is nearly full."),
	}
	g.check()
	return g
}

// awaitOpeningSpace waits until there is enough disk to open the stores. A store that is opened on
// a full disk can fail for good.
func (g *diskGuard) awaitOpeningSpace(ctx context.Context) error {
	tick := time.NewTicker(diskCheckPeriod)
	defer tick.Stop()
	hasLogged := false
	// The reserve is 0 until a check of the disk has succeeded. If the disk cannot be checked, do
	// not wait.
	for g.freeBytes.Load() < minOpenBytes && g.reserveBytes.Load() > 0 {
		if !hasLogged {
			hasLogged = true
			g.logError("the disk is full: the service does not start until there is free disk")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		g.check()
	}
	return nil
}

// run checks the disk periodically, and lets the log recover while there is enough disk, until ctx
// ends.
func (g *diskGuard) run(ctx context.Context) error {
	tick := time.NewTicker(diskCheckPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		g.check()
		if g.refusing.Load() {
			continue
		}
		if err := g.recoverLog(ctx); err != nil && ctx.Err() == nil {
			g.logger.Error("the log does not recover", "error", err)
		}
	}
}

// check checks the free disk once, and changes whether Publish is refused and whether the
// projections are paused.
func (g *diskGuard) check() {
	free, total, err := g.freeDisk()
	if err != nil {
		return // a disk with an error also fails those who write to it, and they report the error
	}
	reserve := g.reserveSetting
	if reserve == 0 {
		reserve = min(maxDefaultReserve, total/defaultReserveDivisor)
	}
	g.freeBytes.Store(free)
	g.reserveBytes.Store(reserve)

	refuse := isBelow(free, reserve, g.refusing.Load())
	if refuse != g.refusing.Swap(refuse) {
		if refuse {
			g.logError("the disk is nearly full: Publish is refused")
		} else {
			g.logInfo("there is enough free disk: Publish is accepted again")
		}
	}

	pause := isBelow(free, reserve/2, g.pausing.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	if pause == g.pausing.Swap(pause) {
		return
	}
	if pause {
		g.logError("the disk is nearly full: the projections are paused")
		return
	}
	g.logInfo("there is enough free disk: the projections continue")
	close(g.resumed)
	g.resumed = make(chan struct{})
}

// isBelow reports whether the free disk is below a limit. If it was below the limit before, the
// free disk must exceed the limit by a tenth to count as enough again. Otherwise, at the limit,
// writers would stop and continue all the time.
func isBelow(free, limit uint64, wasBelow bool) bool {
	if wasBelow {
		limit += limit / 10
	}
	return free < limit
}

func (g *diskGuard) logError(message string) { g.logger.Error(message, g.logValues()...) }

func (g *diskGuard) logInfo(message string) { g.logger.Info(message, g.logValues()...) }

// logValues returns the free disk and the reserve for a log line.
func (g *diskGuard) logValues() []any {
	return []any{"free", events.FormatSize(g.freeBytes.Load()), "reserve", events.FormatSize(g.reserveBytes.Load())}
}

// checkPublishAllowed fails with [gateway.ErrDiskFull] while Publish is refused.
func (g *diskGuard) checkPublishAllowed() error {
	if !g.refusing.Load() {
		return nil
	}
	return fmt.Errorf("%w: %s of the disk are free, and %s must stay free (--disk-reserve)", gateway.ErrDiskFull,
		events.FormatSize(g.freeBytes.Load()), events.FormatSize(g.reserveBytes.Load()))
}

// awaitResume waits while the projections are paused.
func (g *diskGuard) awaitResume(ctx context.Context) error {
	for g.pausing.Load() {
		// check changes pausing and resumed under the lock. Without it, check could close resumed
		// between the two lines below, and this goroutine would then wait for the end of the next
		// pause.
		g.mu.Lock()
		resumed := g.resumed
		isPausing := g.pausing.Load()
		g.mu.Unlock()
		if !isPausing {
			return nil
		}

		select {
		case <-resumed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Describe is part of prometheus.Collector.
func (g *diskGuard) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.freeDesc, g.reserveDesc, g.refusingDesc, g.pausedDesc} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (g *diskGuard) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(g.freeDesc, float64(g.freeBytes.Load()))
	gauge(g.reserveDesc, float64(g.reserveBytes.Load()))
	gauge(g.refusingDesc, boolGauge(g.refusing.Load()))
	gauge(g.pausedDesc, boolGauge(g.pausing.Load()))
}

// boolGauge returns the value of a gauge that is 1 while something is so, and 0 otherwise.
func boolGauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
