package gateway

import (
	"context"
	"math"
	"math/rand/v2"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// shedder refuses a part of the calls while what runs has to wait long for a processor. Calls that are accepted without end would
// all be answered after their callers have given up; so some are told at once to come again, and the others are answered in time.
//
//	every shedPeriod: median wait of goroutines for a processor ─▶ above the limit: refuse more
//	                                                               └ below: refuse less, slowly
//
// The wait is what Go's scheduler measures: where calls queue when the processors are the bottleneck. What waits for the disk, for
// a position or for the client waits elsewhere, and sheds nothing.
type shedder struct {
	// limit is 0 or negative to refuse nothing.
	limit time.Duration
	// share is the bits of the part of calls that are refused: a float64 from 0 to maxShare. Written by observe only.
	share atomic.Uint64
	// refused counts.
	refused atomic.Uint64
}

const (
	shedPeriod = 100 * time.Millisecond
	// maxShare lets some through at any time: without calls nobody would see that the load has gone.
	maxShare = 0.98
	// shedStep of the calls that were let through are refused besides after a period above the limit; after one below it
	// the share falls to calmStep of itself, and below leastShare to nothing. Rising faster than falling keeps waits below the limit.
	shedStep, calmStep, leastShare = 0.2, 0.9, 0.005
	// leastWaits are too few to say anything.
	leastWaits = 50
	waitsOf    = "/sched/latencies:seconds"
)

// run observes until ctx ends.
func (d *shedder) run(ctx context.Context) {
	if d.limit <= 0 {
		return
	}
	tick := time.NewTicker(shedPeriod)
	defer tick.Stop()
	var waits waitMedian
	waits.next()
	for {
		select {
		case <-tick.C:
			d.observe(waits.next())
		case <-ctx.Done():
			return
		}
	}
}

// observe takes the median wait of a period; negative: too few waited.
func (d *shedder) observe(median time.Duration) {
	share := d.part()
	if median > d.limit {
		share = min(share+(1-share)*shedStep, maxShare)
	} else if share *= calmStep; share < leastShare {
		share = 0
	}
	d.share.Store(math.Float64bits(share))
}

// part returns the part of calls that are refused.
func (d *shedder) part() float64 { return math.Float64frombits(d.share.Load()) }

// admit refuses a call by chance.
func (d *shedder) admit() *failure {
	if d.share.Load() == 0 || rand.Float64() >= d.part() {
		return nil
	}
	d.refused.Add(1)
	return &failure{
		code: connect.CodeResourceExhausted, reason: skeinv1.Reason_REASON_OVERLOADED,
		text: "the service is asked for more than its processors can do; nothing was done", retry: retrySoon,
	}
}

// waitMedian reads how long goroutines have waited for a processor.
type waitMedian struct {
	sample [1]runtimemetrics.Sample
	// before is what had been counted when it was read last, by bucket.
	before []uint64
}

// next returns the median since it was called last, -1 if few have waited.
func (w *waitMedian) next() time.Duration {
	w.sample[0].Name = waitsOf
	runtimemetrics.Read(w.sample[:])
	if w.sample[0].Value.Kind() != runtimemetrics.KindFloat64Histogram {
		return -1 // a later Go has no such metric: nothing is shed
	}
	h := w.sample[0].Value.Float64Histogram()
	if len(w.before) != len(h.Counts) {
		w.before = make([]uint64, len(h.Counts))
	}
	var all uint64
	for i, n := range h.Counts {
		all += n - w.before[i]
	}
	median := time.Duration(-1)
	if all >= leastWaits {
		median = bucketOf(h, w.before, (all+1)/2)
	}
	copy(w.before, h.Counts)
	return median
}

// bucketOf returns the lower bound of the bucket in which the nth count since before is.
func bucketOf(h *runtimemetrics.Float64Histogram, before []uint64, nth uint64) time.Duration {
	for i, n := range h.Counts {
		if n -= before[i]; n >= nth {
			return time.Duration(max(h.Buckets[i], 0) * float64(time.Second))
		}
		nth -= h.Counts[i] - before[i]
	}
	return -1
}
