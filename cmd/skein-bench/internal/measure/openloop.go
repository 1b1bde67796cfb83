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

// Times is a histogram of durations, with a precision of three digits. Durations may be added concurrently.
type Times struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

func newTimes() *Times {
	return &Times{hist: hdrhistogram.New(1, longestCall.Microseconds(), 3)}
}

func (t *Times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.hist.RecordValue(min(max(1, d.Microseconds()), longestCall.Microseconds())) // cannot fail within the bounds
}

// Count returns the number of durations.
func (t *Times) Count() int64 { return t.hist.TotalCount() }

// MS returns a percentile in milliseconds.
func (t *Times) MS(percent float64) float64 { return float64(t.hist.ValueAtPercentile(percent)) / 1000 }

// Poisson returns the moments of a Poisson process with a mean rate per second, up to d. Calls of many independent users come like this, with
// bursts.
func Poisson(rate float64, d time.Duration, seed uint64) iter.Seq[time.Duration] {
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

// Steady returns moments at a constant rate per second, without an end.
func Steady(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0; yield(time.Duration(float64(i) / rate * float64(time.Second))); i++ { //nolint:revive // all is in the head
		}
	}
}

// OpenLoop makes calls at given moments, whether or not the calls before were answered. A client that waits for answers would send less to a slow
// service, and hide how long its users wait.
type OpenLoop struct {
	// Took has the times from the moment at which a call was due to its answer, including the time for which the call waited to be sent.
	Took *Times
	// Late has the times from the moment at which a call was due to its start, of the calls for which a worker was free. They show by how much the
	// client itself was late.
	Late *Times

	mu sync.Mutex
	// seconds has the times of Took for each second in which calls were due.
	seconds []*Times
}

// WorstSecond returns the greatest value of a percentile in one second, in milliseconds. It leaves out seconds with fewer than a hundred calls,
// which say nothing about a p99.
func (l *OpenLoop) WorstSecond(percent float64) (worst float64) {
	for _, s := range l.seconds {
		if s.Count() >= 100 {
			worst = max(worst, s.MS(percent))
		}
	}
	return worst
}

// add adds the time of a call that was due at a moment.
func (l *OpenLoop) add(due, took time.Duration) {
	l.Took.add(took)

	l.mu.Lock()
	for int(due/time.Second) >= len(l.seconds) {
		l.seconds = append(l.seconds, newTimes())
	}
	second := l.seconds[due/time.Second]
	l.mu.Unlock()
	second.add(took)
}

// dueCall is a call whose moment has come.
type dueCall struct {
	at time.Duration
	i  int
	// hasWorker reports that a worker was free, so that only the client itself can delay the call.
	hasWorker bool
}

// WaitingCalls is how many calls may wait for a worker. When more are due they wait in pace, and their times still count from the moments at
// which they were due.
const WaitingCalls = 1 << 14

// Run makes the calls with some workers, and returns the first error. It ends after the last moment, or with the context, which is not an error.
func (l *OpenLoop) Run(
	ctx context.Context, moments iter.Seq[time.Duration], workers int, call func(ctx context.Context, worker, i int) error,
) error {
	l.Took = newTimes()
	l.Late = newTimes()
	l.seconds = nil

	callCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	due := make(chan dueCall, WaitingCalls)
	begin := time.Now()
	var wg sync.WaitGroup
	var unanswered atomic.Int64 // calls that are due and not answered
	for worker := range workers {
		wg.Go(func() {
			for c := range due {
				if callCtx.Err() != nil {
					return
				}
				if c.hasWorker {
					l.Late.add(time.Since(begin) - c.at)
				}
				if err := call(callCtx, worker, c.i); err != nil {
					stop(err)
					return
				}
				l.add(c.at, time.Since(begin)-c.at)
				unanswered.Add(-1)
			}
		})
	}

	l.pace(callCtx, begin, moments, due, func() bool { return unanswered.Add(1) <= int64(workers) })
	close(due)
	wg.Wait()
	if ctx.Err() != nil {
		return nil // the caller has ended the loop
	}
	return context.Cause(callCtx)
}

// pace sends calls to due when their moments come. countCall counts a call and reports whether a worker is free for it.
func (l *OpenLoop) pace(
	ctx context.Context, begin time.Time, moments iter.Seq[time.Duration], due chan<- dueCall, countCall func() bool,
) {
	// pause blocks its thread, which must not run other goroutines meanwhile.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	i := 0
	for at := range moments {
		for wait := at - time.Since(begin); wait > 0; wait = at - time.Since(begin) {
			pause(wait)
		}
		select {
		case due <- dueCall{at, i, countCall()}:
			i++
		case <-ctx.Done():
			return
		}
	}
}

// ClosedLoop lets each of some workers make one call after the other for a time, and returns the number of calls per second.
func ClosedLoop(
	ctx context.Context, d time.Duration, workers int, call func(ctx context.Context, worker, i int) error,
) (rate float64, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, workers)
	begin := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for time.Since(begin) < d && errs[worker] == nil && ctx.Err() == nil {
				errs[worker] = call(ctx, worker, int(next.Add(1)-1))
			}
		})
	}
	wg.Wait()
	return float64(next.Load()) / time.Since(begin).Seconds(), errors.Join(errors.Join(errs...), ctx.Err())
}
