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
	free    func() (free, total uint64, err error)
	reserve uint64 // in bytes; 0 means a share of the disk
	// heal is called periodically while there is room. It recovers a log that has met a full disk.
	heal   func(context.Context) error
	logger *slog.Logger

	left, kept    atomic.Uint64 // free bytes when last looked at, and how many are kept
	refusing      atomic.Bool
	pausing       atomic.Bool
	mu            sync.Mutex
	resumed       chan struct{} // closed when folds continue; guarded by mu
	leftD, keptD  *prometheus.Desc
	refuseD, stop *prometheus.Desc
}

const (
	// diskPeriod is the time between two checks of the free disk. A service at full speed writes some 100 MB in it.
	diskPeriod = 500 * time.Millisecond
	// mostReserve and reserveShare determine the default reserve: one part in reserveShare of the disk, at most mostReserve.
	mostReserve  = 1 << 30
	reserveShare = 10
	// leastRoom is the disk that opening the stores may need, in bytes, for new manifests and similar files.
	leastRoom = 8 << 20
)

func newDiskGuard(dir string, reserve uint64, logger *slog.Logger) *diskGuard {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	g := &diskGuard{
		free:    func() (uint64, uint64, error) { return store.FreeDisk(dir) },
		reserve: reserve, logger: logger, resumed: make(chan struct{}),
		leftD:   describe("skein_disk_free_bytes", "Free disk where the data directory is."),
		keptD:   describe("skein_disk_reserve_bytes", "Free disk below which Publish is refused."),
		refuseD: describe("skein_disk_refusing", "1 while Publish is refused for lack of disk."),
		stop:    describe("skein_disk_paused", "1 while the projections fold no more for lack of disk."),
	}
	g.look()
	return g
}

// awaitLeast blocks while the disk does not even have room to open the stores. A store that is opened on a full disk may fail for good.
func (g *diskGuard) awaitLeast(ctx context.Context) error {
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for told := false; g.left.Load() < leastRoom && g.kept.Load() > 0; g.look() {
		if !told {
			told = true
			g.tell(true, "the service waits for room: the disk is full", "")
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
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if g.look(); g.refusing.Load() {
			continue
		}
		if err := g.heal(ctx); err != nil && ctx.Err() == nil {
			g.logger.Error("the log does not recover", "error", err)
		}
	}
}

// look checks the disk once. A writer that was stopped continues only when the free disk is a tenth above the threshold at which it
// stopped, so that it does not stop and continue all the time.
func (g *diskGuard) look() {
	free, total, err := g.free()
	if err != nil {
		return // nothing changes: the writers will meet the error of the disk themselves
	}
	reserve := g.reserve
	if reserve == 0 {
		reserve = min(mostReserve, total/reserveShare)
	}
	g.left.Store(free)
	g.kept.Store(reserve)
	below := func(limit uint64, already bool) bool {
		if already {
			limit += limit / 10
		}
		return free < limit
	}
	if refuse := below(reserve, g.refusing.Load()); refuse != g.refusing.Swap(refuse) {
		g.tell(refuse, "Publish is refused: the disk is nearly full", "Publish is taken again")
	}
	pause := below(reserve/2, g.pausing.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	if pause == g.pausing.Swap(pause) {
		return
	}
	g.tell(pause, "the projections are paused: the disk is nearly full", "the projections continue")
	if !pause {
		close(g.resumed)
		g.resumed = make(chan struct{})
	}
}

func (g *diskGuard) tell(bad bool, stopped, goesOn string) {
	args := []any{"free", events.FormatSize(g.left.Load()), "kept free", events.FormatSize(g.kept.Load())}
	if bad {
		g.logger.Error(stopped, args...)
	} else {
		g.logger.Info(goesOn, args...)
	}
}

// room returns an error while Publish is refused.
func (g *diskGuard) room() error {
	if !g.refusing.Load() {
		return nil
	}
	return fmt.Errorf("%w: %s are free, %s are kept so (--disk-reserve)", gateway.ErrDiskFull,
		events.FormatSize(g.left.Load()), events.FormatSize(g.kept.Load()))
}

// await blocks while the projections are paused.
func (g *diskGuard) await(ctx context.Context) error {
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
	for _, d := range []*prometheus.Desc{g.leftD, g.keptD, g.refuseD, g.stop} {
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
	gauge(g.leftD, float64(g.left.Load()))
	gauge(g.keptD, float64(g.kept.Load()))
	gauge(g.refuseD, one(g.refusing.Load()))
	gauge(g.stop, one(g.pausing.Load()))
}
