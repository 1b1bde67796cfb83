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

// longestCall bounds what a histogram holds; what takes longer counts as so long.
const longestCall = 10 * time.Minute

// Times are durations, of which three digits are kept.
type Times struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

func newTimes() *Times {
	return &Times{hist: hdrhistogram.New(1, longestCall.Microseconds(), 3)}
}

func (t *Times) note(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.hist.RecordValue(min(max(1, d.Microseconds()), longestCall.Microseconds())) // it is within the bounds
}

// Count is how many there are.
func (t *Times) Count() int64 { return t.hist.TotalCount() }

// MS is the time in milliseconds that so many percent do not exceed.
func (t *Times) MS(percent float64) float64 { return float64(t.hist.ValueAtPercentile(percent)) / 1000 }

// Poisson are moments at a mean rate a second, for a time, each independent of the others: bursts included, as they come
// from many users.
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

// Steady are moments at a rate a second, without an end.
func Steady(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0; yield(time.Duration(float64(i) / rate * float64(time.Second))); i++ { //nolint:revive // all is in the head
		}
	}
}

// OpenLoop makes calls at given moments, whatever became of those before.
type OpenLoop struct {
	// Took is from the moment at which a call was due to its answer, however long it had to wait to be sent.
	Took *Times
	// Late is how much after its moment a call was begun though a worker was free: by how much the client itself was late.
	Late *Times

	mu sync.Mutex
	// seconds are the calls of Took by the second in which they were due.
	seconds []*Times
}

// WorstSecond is the greatest of a percentile over the seconds, in milliseconds. A second with fewer than a hundred calls
// says nothing, and is left out.
func (l *OpenLoop) WorstSecond(percent float64) (worst float64) {
	for _, s := range l.seconds {
		if s.Count() >= 100 {
			worst = max(worst, s.MS(percent))
		}
	}
	return worst
}

// note counts the time of a call.
func (l *OpenLoop) note(due, took time.Duration) {
	l.Took.note(took)
	l.mu.Lock()
	for int(due/time.Second) >= len(l.seconds) {
		l.seconds = append(l.seconds, newTimes())
	}
	second := l.seconds[due/time.Second]
	l.mu.Unlock()
	second.note(took)
}

// dueCall is a call whose moment has come.
type dueCall struct {
	at time.Duration
	i  int
	// free reports that a worker was free, so that nothing but the client delays the call.
	free bool
}

// WaitingCalls may wait for a worker. When there are more the pacer waits too, and the calls keep their moments.
const WaitingCalls = 1 << 14

// Run makes the calls by some workers, and returns the first error. It ends with the moments or with the context, which is no
// error.
func (l *OpenLoop) Run(
	ctx context.Context, moments iter.Seq[time.Duration], workers int, call func(ctx context.Context, worker, i int) error,
) error {
	l.Took, l.Late, l.seconds = newTimes(), newTimes(), nil
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	due := make(chan dueCall, WaitingCalls)
	begin := time.Now()
	var (
		wg   sync.WaitGroup
		busy atomic.Int64 // calls that are handed out and not answered
	)
	for worker := range workers {
		wg.Go(func() {
			for c := range due {
				if running.Err() != nil {
					return
				}
				if c.free {
					l.Late.note(time.Since(begin) - c.at)
				}
				if err := call(running, worker, c.i); err != nil {
					stop(err)
					return
				}
				l.note(c.at, time.Since(begin)-c.at)
				busy.Add(-1)
			}
		})
	}
	l.pace(running, begin, moments, due, func() bool { return busy.Add(1) <= int64(workers) })
	close(due)
	wg.Wait()
	if ctx.Err() != nil {
		return nil // it was ended
	}
	return context.Cause(running)
}

// pace hands out calls when their moments come. It has a thread of its own, because it waits in the system. free counts a call
// and reports whether a worker is free for it.
func (l *OpenLoop) pace(
	ctx context.Context, begin time.Time, moments iter.Seq[time.Duration], due chan<- dueCall, free func() bool,
) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	i := 0
	for at := range moments {
		for wait := at - time.Since(begin); wait > 0; wait = at - time.Since(begin) {
			pause(wait)
		}
		select {
		case due <- dueCall{at, i, free()}:
			i++
		case <-ctx.Done():
			return
		}
	}
}

// ClosedLoop makes calls one after the other by some workers for a time, and returns how many there were a second.
func ClosedLoop(
	ctx context.Context, d time.Duration, workers int, call func(ctx context.Context, worker, i int) error,
) (rate float64, err error) {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
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
