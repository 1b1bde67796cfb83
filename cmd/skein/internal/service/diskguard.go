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

// diskGuard keeps a part of the data directory's disk free. The writers of the process stop one after the other, while each still has
// enough disk to stop cleanly, and continue when there is enough again:
//
//	free ≥ reserve        everything continues
//	     < reserve        Publish is refused
//	     < reserve / 2    the projections pause: their answers become older, and have a position that says so
//
// A disk that is completely full would leave half a table or half a message behind. The next start finds and removes both, but until then
// the store or the log that wrote it has failed.
type diskGuard struct {
	// free returns how many bytes are free, and of how many.
	freeDisk       func() (free, total uint64, err error)
	reserveSetting uint64 // in bytes; 0 means a share of the disk
	// heal is called periodically while there is room. It recovers a log that has met a full disk.
	recoverLog func(context.Context) error
	logger     *slog.Logger

	freeBytes, reserveBytes  atomic.Uint64 // free bytes when last looked at, and how many are kept
	refusing                 atomic.Bool
	pausing                  atomic.Bool
	mu                       sync.Mutex
	resumed                  chan struct{} // closed when folds continue; guarded by mu
	freeDesc, reserveDesc    *prometheus.Desc
	refusingDesc, pausedDesc *prometheus.Desc
}

const (
	// diskPeriod is the time between two checks of the free disk. A service at full speed writes some 100 MB in it.
	diskCheckPeriod = 500 * time.Millisecond
	// mostReserve and reserveShare determine the default reserve: one part in reserveShare of the disk, at most mostReserve.
	maxDefaultReserve     = 1 << 30
	defaultReserveDivisor = 10
	// leastRoom is the disk that opening the stores may need, in bytes, for new manifests and similar files.
	minOpenBytes = 8 << 20
)

func newDiskGuard(dir string, reserve uint64, logger *slog.Logger) *diskGuard {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	g := &diskGuard{
		freeDisk:       func() (uint64, uint64, error) { return store.FreeDisk(dir) },
		reserveSetting: reserve, logger: logger, resumed: make(chan struct{}),
		freeDesc:     describe("skein_disk_free_bytes", "Free disk where the data directory is."),
		reserveDesc:  describe("skein_disk_reserve_bytes", "Free disk below which Publish is refused."),
		refusingDesc: describe("skein_disk_refusing", "1 while Publish is refused for lack of disk."),
		pausedDesc:   describe("skein_disk_paused", "1 while the projections fold no more for lack of disk."),
	}
	g.check()
	return g
}

// awaitLeast blocks while the disk does not even have room to open the stores. A store that is opened on a full disk may fail for good.
func (g *diskGuard) awaitOpeningSpace(ctx context.Context) error {
	tick := time.NewTicker(diskCheckPeriod)
	defer tick.Stop()
	for told := false; g.freeBytes.Load() < minOpenBytes && g.reserveBytes.Load() > 0; g.check() {
		if !told {
			told = true
			g.logChange(true, "the service waits for room: the disk is full", "")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// run checks the disk until the context ends.
func (g *diskGuard) run(ctx context.Context) error {
	tick := time.NewTicker(diskCheckPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if g.check(); g.refusing.Load() {
			continue
		}
		if err := g.recoverLog(ctx); err != nil && ctx.Err() == nil {
			g.logger.Error("the log does not recover", "error", err)
		}
	}
}

// look checks the disk once. A writer that was stopped continues only when the free disk is a tenth above the threshold at which it
// stopped, so that it does not stop and continue all the time.
func (g *diskGuard) check() {
	free, total, err := g.freeDisk()
	if err != nil {
		return // nothing changes: the writers will meet the error of the disk themselves
	}
	reserve := g.reserveSetting
	if reserve == 0 {
		reserve = min(maxDefaultReserve, total/defaultReserveDivisor)
	}
	g.freeBytes.Store(free)
	g.reserveBytes.Store(reserve)
	below := func(limit uint64, already bool) bool {
		if already {
			limit += limit / 10
		}
		return free < limit
	}
	if refuse := below(reserve, g.refusing.Load()); refuse != g.refusing.Swap(refuse) {
		g.logChange(refuse, "Publish is refused: the disk is nearly full", "Publish is taken again")
	}
	pause := below(reserve/2, g.pausing.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	if pause == g.pausing.Swap(pause) {
		return
	}
	g.logChange(pause, "the projections are paused: the disk is nearly full", "the projections continue")
	if !pause {
		close(g.resumed)
		g.resumed = make(chan struct{})
	}
}

func (g *diskGuard) logChange(bad bool, stopped, goesOn string) {
	args := []any{"free", events.FormatSize(g.freeBytes.Load()), "kept free", events.FormatSize(g.reserveBytes.Load())}
	if bad {
		g.logger.Error(stopped, args...)
	} else {
		g.logger.Info(goesOn, args...)
	}
}

// room returns an error while Publish is refused.
func (g *diskGuard) checkPublishAllowed() error {
	if !g.refusing.Load() {
		return nil
	}
	return fmt.Errorf("%w: %s are free, %s are kept so (--disk-reserve)", gateway.ErrDiskFull,
		events.FormatSize(g.freeBytes.Load()), events.FormatSize(g.reserveBytes.Load()))
}

// await blocks while the projections are paused.
func (g *diskGuard) awaitResume(ctx context.Context) error {
	for g.pausing.Load() {
		g.mu.Lock()
		resumed, still := g.resumed, g.pausing.Load()
		g.mu.Unlock()
		if !still {
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
	one := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge(g.freeDesc, float64(g.freeBytes.Load()))
	gauge(g.reserveDesc, float64(g.reserveBytes.Load()))
	gauge(g.refusingDesc, one(g.refusing.Load()))
	gauge(g.pausedDesc, one(g.pausing.Load()))
}
