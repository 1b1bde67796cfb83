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
	const callCount, longTime = 50, 20 * time.Millisecond

	// All calls are due at once, at the start of the loop.
	allDue := make(chan struct{})
	moments := func(yield func(time.Duration) bool) {
		defer close(allDue)
		for range callCount {
			if !yield(0) {
				return
			}
		}
	}

	// The first call takes longTime after all calls are due, and keeps the only worker busy.
	var loop OpenLoop
	var made []int
	err := loop.Run(t.Context(), moments, 1, func(_ context.Context, _, i int) error {
		if i == 0 {
			<-allDue
			<-time.After(longTime)
		}
		made = append(made, i)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if got := loop.AnswerTimes.Count(); got != callCount {
		t.Errorf("calls with an answer time: got %d, want %d", got, callCount)
	}
	if len(made) != callCount || !slices.IsSorted(made) {
		t.Errorf("calls: got %v, want %d of them in their order", made, callCount)
	}

	// The histogram keeps three digits, so the shortest time may be a little less than 20 ms.
	if got := loop.AnswerTimes.Milliseconds(0); got < 19.9 {
		t.Errorf("shortest answer time: got %v ms, want at least %v", got, longTime)
	}
	if got := loop.StartDelays.Count(); got != 1 {
		t.Errorf("calls for which a worker was free: got %d, want only the first one", got)
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

	// This call is the only one of its second.
	loop.add(3*time.Second, time.Second)

	if got := loop.WorstSecond(99); got < 4.9 || got > 5.1 {
		t.Errorf("p99 of the worst second: got %v ms, want about 5 ms", got)
	}
}

func TestOpenLoopEndsWithErrorOrContext(t *testing.T) {
	t.Run("error of a call", func(t *testing.T) {
		callErr := errors.New("broken")
		var loop OpenLoop
		err := loop.Run(t.Context(), SteadyMoments(1e6), 3, func(_ context.Context, _, i int) error {
			if i == 100 {
				return callErr
			}
			return nil
		})
		if !errors.Is(err, callErr) {
			t.Errorf("Run: got error %v, want %v", err, callErr)
		}
	})

	t.Run("end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var loop OpenLoop
		err := loop.Run(ctx, SteadyMoments(1e6), 3, func(_ context.Context, _, i int) error {
			if i == 100 {
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Errorf("Run: got error %v, want none", err)
		}
		if got := loop.AnswerTimes.Count(); got < 50 {
			t.Errorf("calls with an answer time: got %d, want at least 50", got)
		}
	})
}

func TestClosedLoopReturnsRateAndError(t *testing.T) {
	t.Run("rate", func(t *testing.T) {
		const duration = 10 * time.Millisecond
		var calls atomic.Int64
		rate, err := ClosedLoop(t.Context(), duration, 2, func(context.Context, int, int) error {
			calls.Add(1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if calls.Load() == 0 {
			t.Error("calls: got none, want some")
		}

		// The loop takes at least its duration, so the rate cannot be greater than this.
		if maxRate := float64(calls.Load()) / duration.Seconds(); rate <= 0 || rate > maxRate {
			t.Errorf("rate: got %v, want more than 0 and at most %v", rate, maxRate)
		}
	})

	t.Run("error of a call", func(t *testing.T) {
		callErr := errors.New("broken")
		_, err := ClosedLoop(t.Context(), time.Hour, 2, func(context.Context, int, int) error { return callErr })
		if !errors.Is(err, callErr) {
			t.Errorf("ClosedLoop: got error %v, want %v", err, callErr)
		}
	})
}

func TestMomentsAreRandomOrSteady(t *testing.T) {
	t.Run("Poisson", func(t *testing.T) {
		const rate, duration = 10_000, 2 * time.Second
		moments := slices.Collect(PoissonMoments(rate, duration, 1))
		if !slices.IsSorted(moments) {
			t.Error("moments: got them out of order, want them in order")
		}
		if last := moments[len(moments)-1]; last >= duration {
			t.Errorf("last moment: got %v, want it before %v", last, duration)
		}

		// The standard deviation of the count is its root.
		wantCount := rate * duration.Seconds()
		if got := float64(len(moments)); math.Abs(got-wantCount) > 5*math.Sqrt(wantCount) {
			t.Errorf("count of moments: got %v, want about %v", got, wantCount)
		}

		// The standard deviation of the gaps in a Poisson process equals their mean.
		var sum, sumOfSquares float64
		for i := range moments[1:] {
			gap := (moments[i+1] - moments[i]).Seconds()
			sum += gap
			sumOfSquares += gap * gap
		}
		gapCount := float64(len(moments) - 1)
		mean := sum / gapCount
		deviation := math.Sqrt(sumOfSquares/gapCount - mean*mean)
		if ratio := deviation / mean; ratio < 0.9 || ratio > 1.1 {
			t.Errorf("deviation of the gaps by their mean: got %v, want about 1", ratio)
		}
	})

	t.Run("steady", func(t *testing.T) {
		next, stop := iter.Pull(SteadyMoments(4))
		defer stop()
		for i := range 5 {
			want := time.Duration(i) * 250 * time.Millisecond
			if got, ok := next(); got != want || !ok {
				t.Errorf("moment %d: got %v, %v, want %v", i, got, ok, want)
			}
		}
	})
}

func TestTimesGivePercentiles(t *testing.T) {
	times := newDurationHistogram()
	for i := range 1000 {
		times.add(time.Duration(i+1) * time.Millisecond)
	}

	// Times outside of the histogram count as its least and its greatest one.
	times.add(-time.Second)
	times.add(2 * longestCall)

	if got := times.Count(); got != 1002 {
		t.Errorf("count: got %d, want 1002", got)
	}
	if got := times.Milliseconds(50); math.Abs(got-500) > 1 {
		t.Errorf("p50: got %v ms, want about 500 ms", got)
	}
	if got := times.Milliseconds(99.9); math.Abs(got-1000) > 2 {
		t.Errorf("p99.9: got %v ms, want about 1000 ms", got)
	}
}
