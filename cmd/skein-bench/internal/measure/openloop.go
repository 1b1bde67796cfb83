package measure

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longestCall is the longest duration in a histogram. A call that takes longer counts as this long.
const longestCall = 10 * time.Minute

// DurationHistogram is a histogram of durations, with a precision of three digits. Durations may be
// added concurrently.
type DurationHistogram struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

// newDurationHistogram returns an empty histogram.
func newDurationHistogram() *DurationHistogram {
	return &DurationHistogram{hist: hdrhistogram.New(1, longestCall.Microseconds(), 3)}
}

// add adds a duration.
func (t *DurationHistogram) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.hist.RecordValue(min(max(1, d.Microseconds()), longestCall.Microseconds())) // cannot fail within the bounds
}

// Count returns the number of durations.
func (t *DurationHistogram) Count() int64 { return t.hist.TotalCount() }

// Milliseconds returns a percentile in milliseconds.
func (t *DurationHistogram) Milliseconds(percent float64) float64 {
	return float64(t.hist.ValueAtPercentile(percent)) / 1000
}

// PoissonMoments returns the moments of a Poisson process with a mean rate per second, up to d.
// Calls of many independent users come like this, with bursts.
func PoissonMoments(rate float64, d time.Duration, seed uint64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		r := rand.New(rand.NewPCG(seed, 0))
		for at := 0.0; ; {
			at += r.ExpFloat64() / rate
			if moment := time.Duration(at * float64(time.Second)); moment >= d || !yield(moment) {
				return
			}
		}
	}
}

// SteadyMoments returns moments at a constant rate per second, without an end.
func SteadyMoments(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0; yield(time.Duration(float64(i) / rate * float64(time.Second))); i++ { //nolint:revive // all is in the head
		}
	}
}

// OpenLoop makes calls at given moments, whether or not the calls before were answered. A client
// that waits for answers would send less to a slow service, and hide how long its users wait.
type OpenLoop struct {
	// AnswerTimes has the times from the moment at which a call was due to its answer, including
	// the time for which the call waited to be sent.
	AnswerTimes *DurationHistogram
	// StartDelays has the times from the moment at which a call was due to its start, of the calls
	// for which a worker was free. They show by how much the client itself was late.
	StartDelays *DurationHistogram

	mu sync.Mutex
	// seconds has the answer times of the calls that were due in each second.
	seconds []*DurationHistogram
}

// WorstSecond returns the greatest value of a percentile in one second, in milliseconds. It leaves
// out seconds with fewer than a hundred calls, which say nothing about a p99.
func (l *OpenLoop) WorstSecond(percent float64) (worst float64) {
	for _, s := range l.seconds {
		if s.Count() >= 100 {
			worst = max(worst, s.Milliseconds(percent))
		}
	}
	return worst
}

// add adds the time of a call that was due at a moment.
func (l *OpenLoop) add(due, took time.Duration) {
	l.AnswerTimes.add(took)

	l.mu.Lock()
	// A second without calls also gets a histogram, so that the index is the second.
	for int(due/time.Second) >= len(l.seconds) {
		l.seconds = append(l.seconds, newDurationHistogram())
	}
	second := l.seconds[due/time.Second]
	l.mu.Unlock()
	second.add(took)
}

// dueCall is a call whose moment has come.
type dueCall struct {
	// moment is when the call is due, counted from the start of the loop.
	moment time.Duration
	// number counts the calls from 0.
	number int
	// hasWorker reports that a worker was free, so that only the client itself can delay the call.
	hasWorker bool
}

// WaitingCalls is how many calls may wait for a worker. When more are due they wait in pace, and
// their times still count from the moments at which they were due.
const WaitingCalls = 1 << 14

// Run makes the calls with some workers, and returns the first error. It ends after the last
// moment, or with the context, which is not an error.
func (l *OpenLoop) Run(
	ctx context.Context, moments iter.Seq[time.Duration], workers int, call func(ctx context.Context, worker, i int) error,
) error {
	l.AnswerTimes = newDurationHistogram()
	l.StartDelays = newDurationHistogram()
	l.seconds = nil

	callCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	due := make(chan dueCall, WaitingCalls)
	begin := time.Now()
	var wg sync.WaitGroup
	var unanswered atomic.Int64 // how many calls are due and not answered yet
	for worker := range workers {
		wg.Go(func() {
			for c := range due {
				if callCtx.Err() != nil {
					return // the calls that still wait are dropped
				}
				if c.hasWorker {
					l.StartDelays.add(time.Since(begin) - c.moment)
				}
				if err := call(callCtx, worker, c.number); err != nil {
					stop(err)
					return
				}
				l.add(c.moment, time.Since(begin)-c.moment)
				unanswered.Add(-1)
			}
		})
	}

	// A worker is free if fewer calls are unanswered than there are workers.
	countCall := func() bool { return unanswered.Add(1) <= int64(workers) }
	l.pace(callCtx, begin, moments, due, countCall)
	close(due)
	wg.Wait()
	if ctx.Err() != nil {
		return nil // the caller has ended the loop
	}
	return context.Cause(callCtx)
}

// pace sends calls to due when their moments come. countCall counts a call and reports whether a
// worker is free for it.
func (l *OpenLoop) pace(
	ctx context.Context, begin time.Time, moments iter.Seq[time.Duration], due chan<- dueCall, countCall func() bool,
) {
	// pause blocks its thread, which must not run other goroutines meanwhile.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	number := 0
	for moment := range moments {
		// A pause can end early, so look at the clock again.
		for wait := moment - time.Since(begin); wait > 0; wait = moment - time.Since(begin) {
			pause(wait)
		}
		select {
		case due <- dueCall{moment, number, countCall()}:
			number++
		case <-ctx.Done():
			return
		}
	}
}

// ClosedLoop lets each of some workers make one call after the other for a time, and returns the
// number of calls per second. Each worker makes at least one call, so the rate is not 0 if the
// workers start late.
func ClosedLoop(
	ctx context.Context, d time.Duration, workers int, call func(ctx context.Context, worker, i int) error,
) (rate float64, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, workers)
	begin := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for isFirst := true; isFirst || time.Since(begin) < d; isFirst = false {
				if ctx.Err() != nil {
					return
				}
				errs[worker] = call(ctx, worker, int(next.Add(1)-1))
				if errs[worker] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(next.Load()) / time.Since(begin).Seconds(), errors.Join(errors.Join(errs...), ctx.Err())
}
