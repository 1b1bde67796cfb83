package admission

import (
	"math"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// TestLongWaitsRefuseCalls checks that a growing share of the calls is refused while waits stay
// above the limit, but never all of them. When the waits are below the limit again, the share falls
// to nothing.
func TestLongWaitsRefuseCalls(t *testing.T) {
	shedder := NewLoadShedder(100 * time.Millisecond)
	b := NewBudget(Class{Name: "reads", Limit: 1, Shedder: shedder})
	// countRefusals makes 1000 calls, one after the other, so that only the shedder refuses them.
	countRefusals := func() (refusals int) {
		for range 1000 {
			if b.Take("", 1) != nil {
				refusals++
			} else {
				b.Release("", 1)
			}
		}
		return refusals
	}

	// A wait of exactly the limit is not above it, and a few long waits in a row are ignored. The
	// short wait between them makes the count start again.
	shedder.Observe(shedder.limit)
	for range ignoredWaits {
		shedder.Observe(time.Hour)
	}
	shedder.Observe(0)
	for range ignoredWaits {
		shedder.Observe(time.Hour)
	}
	if got := countRefusals(); got != 0 {
		t.Errorf("refused calls without overload: got %d of 1000, want 0", got)
	}

	// Each further wait above the limit raises the share.
	lastPart := 0.0
	for i := range 5 {
		shedder.Observe(shedder.limit + 1)
		part := shedder.RefusedPart()
		if part <= lastPart {
			t.Fatalf("refused share after %d waits above the limit: got %v, want more than %v", i+1, part, lastPart)
		}
		lastPart = part
	}
	refusals := countRefusals()
	if got := float64(refusals) / 1000; math.Abs(got-lastPart) > 0.1 {
		t.Errorf("refused share of 1000 calls: got %v, want %v within 0.1", got, lastPart)
	}
	if got := b.Refused(); got != uint64(refusals) {
		t.Errorf("refusals that the budget has counted: got %d, want %d", got, refusals)
	}

	// The share has a limit.
	for range 100 {
		shedder.Observe(time.Second)
	}
	if got := shedder.RefusedPart(); got != maxRefusedPart {
		t.Errorf("refused share after many waits above the limit: got %v, want %v", got, maxRefusedPart)
	}

	// Short waits lower the share within seconds.
	periods := 0
	for shedder.RefusedPart() > 0 {
		shedder.Observe(0)
		periods++
	}
	took := time.Duration(periods) * observePeriod
	if took < time.Second || took > 10*time.Second {
		t.Errorf("time after the overload until nothing is refused: got %v, want 1s to 10s", took)
	}
}

// TestQuantileIgnoresOldCounts checks that the quantile is that of the bucket in which 99 of 100
// new counts end.
func TestQuantileIgnoresOldCounts(t *testing.T) {
	buckets := []float64{math.Inf(-1), 0.001, 0.01, 0.1, math.Inf(1)}
	for _, c := range []struct {
		name          string
		before, after []uint64
		want          time.Duration
	}{
		{"nothing is new", []uint64{5, 0, 0, 9}, []uint64{5, 0, 0, 9}, 0},
		{"one short wait", []uint64{5, 0, 0, 9}, []uint64{6, 0, 0, 9}, 0},
		{"one wait", []uint64{5, 0, 0, 9}, []uint64{5, 0, 1, 9}, 10 * time.Millisecond},
		{"one of 100 is long", []uint64{0, 0, 0, 9}, []uint64{90, 9, 0, 10}, time.Millisecond},
		{"two of 100 are long", []uint64{0, 0, 0, 9}, []uint64{90, 8, 0, 11}, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &metrics.Float64Histogram{Buckets: buckets, Counts: c.after}
			if got := quantileSince(h, c.before); got != c.want {
				t.Errorf("quantileSince: got %v, want %v", got, c.want)
			}
		})
	}
}

// TestRuntimeReportsWaits checks that the Go runtime has the metric, and that goroutines that were
// ready to run appear in it.
func TestRuntimeReportsWaits(t *testing.T) {
	var waits waitReader
	waits.next()
	if len(waits.before) == 0 {
		t.Fatalf("the runtime has no histogram %s, want one", schedulerWaits)
	}

	// 1000 goroutines that become ready at the same time wait for a processor. The test ends when
	// the metric shows that, and hangs if it never does.
	ran := make(chan struct{})
	for waits.next() == 0 {
		for range 1000 {
			go func() { ran <- struct{}{} }()
		}
		for range 1000 {
			<-ran
		}
	}
}

// TestRunObservesUntilItsContextEnds checks that Run observes waits, so that the refused share
// falls to nothing without load, and that the end of the context ends Run.
func TestRunObservesUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without a limit there is nothing to observe, so Run returns at once.
		NewLoadShedder(-1).Run(t.Context())

		// No wait is as long as the limit of an hour.
		shedder := NewLoadShedder(time.Hour)
		shedder.refusedPart.Store(math.Float64bits(0.5))
		go shedder.Run(t.Context())    // synctest waits until Run has returned
		<-time.After(20 * time.Second) // by the clock of synctest
		if got := shedder.RefusedPart(); got != 0 {
			t.Errorf("refused share after 20s without load: got %v, want 0", got)
		}
	})
}
