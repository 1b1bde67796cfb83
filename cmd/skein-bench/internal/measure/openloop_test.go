package measure

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestOpenLoopCountsTheTimeOfWaiting makes one call that takes long. The times of all calls that
// were due meanwhile include their waiting, which does not count as a delay of the client.
func TestOpenLoopCountsTheTimeOfWaiting(t *testing.T) {
	const calls, long = 50, 20 * time.Millisecond
	var (
		loop   OpenLoop
		made   []int
		allDue = make(chan struct{}) // closed when all calls are due
	)
	moments := func(yield func(time.Duration) bool) {
		for i := 0; i < calls && yield(0); i++ { //nolint:revive // all is in the head
		}
		close(allDue)
	}
	err := loop.Run(t.Context(), moments, 1, func(_ context.Context, _, i int) error {
		if i == 0 {
			<-allDue
		}
		for begin := time.Now(); i == 0 && time.Since(begin) < long; { //nolint:revive // the call works
		}
		made = append(made, i)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if loop.AnswerTimes.Count() != calls || !slices.IsSorted(made) || len(made) != calls {
		t.Errorf("%d calls were timed, %v made", loop.AnswerTimes.Count(), made)
	}
	if least := loop.AnswerTimes.Milliseconds(0); least < 19.9 { // three digits are kept
		t.Errorf("a call that had to wait took %v ms", least)
	}
	if n := loop.StartDelays.Count(); n != 1 {
		t.Errorf("a worker was free for %d calls, want the first alone", n)
	}
}

// TestWorstSecondNeedsAHundredCalls checks that the worst second counts, and that a second with few
// calls does not.
func TestWorstSecondNeedsAHundredCalls(t *testing.T) {
	loop := OpenLoop{AnswerTimes: newDurationHistogram()}
	for second, took := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 2 * time.Millisecond} {
		for range 100 {
			loop.add(time.Duration(second)*time.Second, took)
		}
	}
	loop.add(3*time.Second, time.Second)
	if worst := loop.WorstSecond(99); worst < 4.9 || worst > 5.1 {
		t.Errorf("p99 of the worst second is %v ms, want 5", worst)
	}
}

func TestOpenLoopEndsWithErrorOrContext(t *testing.T) {
	broken := errors.New("broken")
	var loop OpenLoop
	err := loop.Run(t.Context(), SteadyMoments(1e6), 3, func(_ context.Context, _, i int) error {
		if i == 100 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("a failed call: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = loop.Run(ctx, SteadyMoments(1e6), 3, func(_ context.Context, _, i int) error {
		if i == 100 {
			cancel()
		}
		return nil
	})
	if err != nil || loop.AnswerTimes.Count() < 50 {
		t.Errorf("ended: %v after %d calls", err, loop.AnswerTimes.Count())
	}
}

func TestClosedLoopReturnsRateAndError(t *testing.T) {
	var made atomic.Int64
	rate, err := ClosedLoop(t.Context(), 10*time.Millisecond, 2, func(context.Context, int, int) error {
		made.Add(1)
		return nil
	})
	if n := made.Load(); err != nil || n == 0 || rate <= 0 || rate > float64(n)/0.01 {
		t.Errorf("%d calls at %v/s, %v", n, rate, err)
	}
	broken := errors.New("broken")
	if _, err := ClosedLoop(t.Context(), time.Hour, 2, func(context.Context, int, int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a failed call: %v", err)
	}
}

func TestMomentsAreRandomOrSteady(t *testing.T) {
	const rate, long = 10_000, 2 * time.Second
	random := slices.Collect(PoissonMoments(rate, long, 1))
	if !slices.IsSorted(random) || random[len(random)-1] >= long {
		t.Error("the moments are not in order, or beyond the end")
	}
	if want := rate * long.Seconds(); math.Abs(float64(len(random))-want) > 5*math.Sqrt(want) {
		t.Errorf("%d moments, about %v wanted", len(random), want)
	}
	// Of a Poisson process the gaps vary as much as they are long.
	var gaps, squares float64
	for i := range random[1:] {
		gap := (random[i+1] - random[i]).Seconds()
		gaps, squares = gaps+gap, squares+gap*gap
	}
	mean := gaps / float64(len(random)-1)
	if cv := math.Sqrt(squares/float64(len(random)-1)-mean*mean) / mean; cv < 0.9 || cv > 1.1 {
		t.Errorf("gaps vary by %v of their mean", cv)
	}
	next, stop := iter.Pull(SteadyMoments(4))
	defer stop()
	for i := range 5 {
		if at, _ := next(); at != time.Duration(i)*250*time.Millisecond {
			t.Errorf("moment %d is at %v", i, at)
		}
	}
}

func TestTimesGivePercentiles(t *testing.T) {
	times := newDurationHistogram()
	for i := range 1000 {
		times.add(time.Duration(i+1) * time.Millisecond)
	}
	times.add(-time.Second)
	times.add(2 * longestCall)
	if p50, p999 := times.Milliseconds(50), times.Milliseconds(99.9); math.Abs(p50-500) > 1 || math.Abs(p999-1000) > 2 || times.Count() != 1002 {
		t.Errorf("p50 %v, p99.9 %v of %d", p50, p999, times.Count())
	}
}
