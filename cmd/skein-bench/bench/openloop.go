package bench

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

// times are durations, of which three digits are kept.
type times struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
}

func newTimes() *times {
	return &times{hist: hdrhistogram.New(1, longestCall.Microseconds(), 3)}
}

func (t *times) note(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.hist.RecordValue(min(max(1, d.Microseconds()), longestCall.Microseconds())) // it is within the bounds
}

// count is how many there are.
func (t *times) count() int64 { return t.hist.TotalCount() }

// ms is the time in milliseconds that so many percent do not exceed.
func (t *times) ms(percent float64) float64 { return float64(t.hist.ValueAtPercentile(percent)) / 1000 }

// poisson are moments at a mean rate a second, for a time, each independent of the others: bursts included, as they come
// from many users.
func poisson(rate float64, d time.Duration, seed uint64) iter.Seq[time.Duration] {
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

// steady are moments at a rate a second, without an end.
func steady(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0; yield(time.Duration(float64(i) / rate * float64(time.Second))); i++ { //nolint:revive // all is in the head
		}
	}
}

// openLoop makes calls at given moments, whatever became of those before.
type openLoop struct {
	// took is from the moment at which a call was due to its answer, however long it had to wait to be sent.
	took *times
	// late is by how much the pacer itself missed moments.
	late *times
}

// dueCall is a call whose moment has come.
type dueCall struct {
	at time.Duration
	i  int
}

// waitingCalls may wait for a worker. When there are more the pacer waits too, and the calls keep their moments.
const waitingCalls = 1 << 14

// run makes the calls by some workers, and returns the first error. It ends with the moments or with the context, which is no
// error.
func (l *openLoop) run(
	ctx context.Context, moments iter.Seq[time.Duration], workers int, call func(ctx context.Context, worker, i int) error,
) error {
	l.took, l.late = newTimes(), newTimes()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	due := make(chan dueCall, waitingCalls)
	begin := time.Now()
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for c := range due {
				if running.Err() != nil {
					return
				}
				if err := call(running, worker, c.i); err != nil {
					stop(err)
					return
				}
				l.took.note(time.Since(begin) - c.at)
			}
		})
	}
	l.pace(running, begin, moments, due)
	close(due)
	wg.Wait()
	if ctx.Err() != nil {
		return nil // it was ended
	}
	return context.Cause(running)
}

// pace hands out calls when their moments come. It has a thread of its own, because it waits in the system.
func (l *openLoop) pace(ctx context.Context, begin time.Time, moments iter.Seq[time.Duration], due chan<- dueCall) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	i := 0
	for at := range moments {
		for wait := at - time.Since(begin); wait > 0; wait = at - time.Since(begin) {
			pause(wait)
		}
		if len(due) < cap(due) {
			l.late.note(time.Since(begin) - at)
		}
		select {
		case due <- dueCall{at, i}:
			i++
		case <-ctx.Done():
			return
		}
	}
}

// closedLoop makes calls one after the other by some workers for a time, and returns how many there were a second.
func closedLoop(
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
