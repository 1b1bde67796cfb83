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

// LoadShedder makes budgets refuse a share of the calls while goroutines wait long for a processor.
// If all calls were accepted in that situation, most of them would be answered after their callers
// have given up. So some calls are refused at once, with a delay for a retry, and the others are
// answered in time.
//
// Ten times a second it reads from Go's scheduler how long goroutines that were ready to run have
// waited until they ran. Calls that wait for the disk, for a position or for their client are not
// ready to run, so they do not count.
type LoadShedder struct {
	// limit is the longest wait at which nothing is refused. 0 or less means that nothing is ever
	// refused.
	limit time.Duration
	// waitsAbove counts the consecutive observations above the limit. Only Observe uses it.
	waitsAbove int
	// refusedPart has the bits of a float64 from 0 to maxRefusedPart, the share of the calls that
	// is refused. Only Observe writes it.
	refusedPart atomic.Uint64
}

const (
	observePeriod = 100 * time.Millisecond
	// ignoredWaits is how many consecutive waits above the limit have no effect, because the whole
	// machine may have paused.
	ignoredWaits = 2
	// maxRefusedPart is below 1, so that some calls are always accepted, and the waits show when
	// the load has gone.
	maxRefusedPart = 0.98
	// raiseStep is the share of the calls still accepted that is refused in addition after each
	// wait above the limit.
	raiseStep = 0.2
	// lowerStep is the factor by which the refused share falls after each wait below the limit. The
	// share rises faster than it falls, which keeps the waits below the limit.
	lowerStep = 0.9
	// minRefusedPart is the smallest refused share. A smaller one becomes 0.
	minRefusedPart = 0.005

	// schedulerWaits is the metric of the Go runtime with the waits, as a histogram.
	schedulerWaits = "/sched/latencies:seconds"
	// observedQuantile is the quantile of the waits that is compared with the limit. The median
	// would stay low, because most waits are hand-overs within the process that take microseconds,
	// however long the calls from outside queue (docs/decisions/0042-admission.md).
	observedQuantile = 0.99
)

// NewLoadShedder returns a LoadShedder that refuses calls while waits are above the limit. It
// refuses nothing until [LoadShedder.Run] runs.
func NewLoadShedder(limit time.Duration) *LoadShedder { return &LoadShedder{limit: limit} }

// Run observes waits until ctx ends.
func (s *LoadShedder) Run(ctx context.Context) {
	if s.limit <= 0 {
		return
	}
	var waits waitReader
	waits.next() // skip the waits before now
	tick := time.NewTicker(observePeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.Observe(waits.next())
		case <-ctx.Done():
			return
		}
	}
}

// Observe adjusts the share of the calls that is refused to a wait.
func (s *LoadShedder) Observe(wait time.Duration) {
	part := s.RefusedPart()
	if wait > s.limit {
		s.waitsAbove++
		if s.waitsAbove > ignoredWaits {
			part = min(part+(1-part)*raiseStep, maxRefusedPart)
		}
	} else {
		s.waitsAbove = 0
		part *= lowerStep
		if part < minRefusedPart {
			part = 0
		}
	}
	s.refusedPart.Store(math.Float64bits(part))
}

// RefusedPart returns the share of the calls that is refused, from 0 to 1.
func (s *LoadShedder) RefusedPart() float64 { return math.Float64frombits(s.refusedPart.Load()) }

// admit refuses a call at random, with the probability RefusedPart. It returns nil if the call is
// admitted.
func (s *LoadShedder) admit() *apierror.Failure {
	// The random number is drawn only under overload, because this is called for each call.
	if s.refusedPart.Load() == 0 || rand.Float64() >= s.RefusedPart() {
		return nil
	}
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
		Text: fmt.Sprintf("calls wait longer than %v (set by --shed-after) for a processor of the service, so a part of them is refused; "+
			"nothing was done", s.limit),
	}
}

// waitReader reads how long goroutines have waited for a processor.
type waitReader struct {
	sample [1]metrics.Sample
	// before has the count of each bucket of the histogram as of the last read.
	before []uint64
}

// next returns the observedQuantile of the waits since its last call, or 0 if there were none.
func (r *waitReader) next() time.Duration {
	r.sample[0].Name = schedulerWaits
	metrics.Read(r.sample[:])
	if r.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0 // this version of Go lacks the metric
	}
	h := r.sample[0].Value.Float64Histogram()
	if len(r.before) != len(h.Counts) {
		r.before = make([]uint64, len(h.Counts))
	}
	wait := quantileSince(h, r.before)
	copy(r.before, h.Counts)
	return wait
}

// quantileSince returns the lower bound of the bucket with the observedQuantile of the waits that
// were counted after before.
func quantileSince(h *metrics.Float64Histogram, before []uint64) time.Duration {
	var total uint64
	for i, n := range h.Counts {
		total += n - before[i]
	}

	// rank counts down to 0 at the bucket of the quantile.
	rank := uint64(math.Ceil(observedQuantile * float64(total)))
	for i := range h.Counts {
		n := h.Counts[i] - before[i]
		if n > 0 && n >= rank {
			// The lower bound of the first bucket is negative infinity.
			return time.Duration(max(h.Buckets[i], 0) * float64(time.Second))
		}
		rank -= n
	}
	return 0
}
