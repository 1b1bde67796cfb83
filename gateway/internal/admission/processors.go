package admission

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Processors has budgets refuse a part of the calls while goroutines wait long for a processor. If all calls were accepted then, most
// of them would be answered after their callers have given up. So some are refused at once, with a delay for a retry, and the others
// are answered in time.
//
// Ten times a second it reads from Go's scheduler how long goroutines that could run have waited until they ran. Calls that wait for
// the disk, for a position or for their client are not ready to run, and are not counted.
type Processors struct {
	// limit is the longest wait at which nothing is refused. 0 or less means that nothing is ever refused.
	limit time.Duration
	// waitsAbove counts the waits in succession that were above the limit. Only Observe uses it.
	waitsAbove int
	// refusedPart is the bits of the part of calls that are refused: a float64 from 0 to maxRefusedPart. Only Observe writes it.
	refusedPart atomic.Uint64
}

const (
	observePeriod = 100 * time.Millisecond
	// ignoredWaits is how many waits above the limit have no effect: one may be a pause of the whole machine.
	ignoredWaits = 2
	// maxRefusedPart accepts some calls at any time, so that the waits show when the load has gone.
	maxRefusedPart = 0.98
	// raiseStep of the calls that are still accepted are refused in addition after a wait above the limit. After a wait below it,
	// the refused part falls to lowerStep of itself, and from less than minRefusedPart to nothing. The part rises faster than it
	// falls, which keeps the waits below the limit.
	raiseStep, lowerStep, minRefusedPart = 0.2, 0.9, 0.005

	schedulerWaits = "/sched/latencies:seconds"
	// observedQuantile of the waits stands for all. Most waits are hand-overs within the process that take microseconds, however
	// long the calls that come from outside queue, so the median stays low (docs/decisions/0042-admission.md).
	observedQuantile = 0.99
)

// NewProcessors returns what refuses calls while waits are above the limit. Nothing is refused until [Processors.Run] observes waits.
func NewProcessors(limit time.Duration) *Processors { return &Processors{limit: limit} }

// Run observes waits until ctx ends.
func (p *Processors) Run(ctx context.Context) {
	if p.limit <= 0 {
		return
	}
	var waits waitReader
	waits.next() // those before now do not count
	tick := time.NewTicker(observePeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Observe(waits.next())
		case <-ctx.Done():
			return
		}
	}
}

// Observe adjusts the part of calls that are refused to how long goroutines had to wait.
func (p *Processors) Observe(wait time.Duration) {
	part := p.RefusedPart()
	if wait > p.limit {
		if p.waitsAbove++; p.waitsAbove > ignoredWaits {
			part = min(part+(1-part)*raiseStep, maxRefusedPart)
		}
	} else {
		p.waitsAbove = 0
		if part *= lowerStep; part < minRefusedPart {
			part = 0
		}
	}
	p.refusedPart.Store(math.Float64bits(part))
}

// RefusedPart returns the part of calls that are refused, from 0 to 1.
func (p *Processors) RefusedPart() float64 { return math.Float64frombits(p.refusedPart.Load()) }

// admit refuses a call by chance.
func (p *Processors) admit() *apierror.Failure {
	if p.refusedPart.Load() == 0 || rand.Float64() >= p.RefusedPart() {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
		Text: fmt.Sprintf("calls wait longer than %v (set by --shed-after) for a processor of the service, so a part of them is refused; "+
			"nothing was done", p.limit),
	}
}

// waitReader reads how long goroutines have waited for a processor.
type waitReader struct {
	sample [1]metrics.Sample
	// before is what each bucket of the histogram had counted when it was read last.
	before []uint64
}

// next returns the observedQuantile of the waits since it was called last, and 0 if there were none.
func (r *waitReader) next() time.Duration {
	r.sample[0].Name = schedulerWaits
	metrics.Read(r.sample[:])
	if r.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0 // this version of Go does not have the metric
	}
	h := r.sample[0].Value.Float64Histogram()
	if len(r.before) != len(h.Counts) {
		r.before = make([]uint64, len(h.Counts))
	}
	wait := quantileSince(h, r.before)
	copy(r.before, h.Counts)
	return wait
}

// quantileSince returns the lower bound of the bucket with the observedQuantile of what was counted after before.
func quantileSince(h *metrics.Float64Histogram, before []uint64) time.Duration {
	var all uint64
	for i, n := range h.Counts {
		all += n - before[i]
	}
	left := uint64(math.Ceil(observedQuantile * float64(all)))
	for i, n := range h.Counts {
		if n -= before[i]; n > 0 && n >= left {
			return time.Duration(max(h.Buckets[i], 0) * float64(time.Second))
		}
		left -= h.Counts[i] - before[i]
	}
	return 0
}
