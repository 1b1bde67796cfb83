package admission

import (
	"math"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// While waits stay above the limit, a growing share of the calls is refused, but never all of them.
// When the waits are below the limit again, the share falls to nothing.
func TestLongWaitsRefuseCalls(t *testing.T) {
	p := NewLoadShedder(100 * time.Millisecond)
	b := NewBudget(Class{Name: "reads", Limit: 1, Shedder: p})
	refused := func() (n int) {
		for range 1000 {
			if b.Take("", 1) != nil {
				n++
			} else {
				b.Release("", 1)
			}
		}
		return n
	}
	p.Observe(p.limit)
	for range ignoredWaits {
		p.Observe(time.Hour)
	}
	p.Observe(0)
	for range ignoredWaits {
		p.Observe(time.Hour)
	}
	if n := refused(); n > 0 {
		t.Errorf("%d of 1000 calls were refused without need", n)
	}
	last := 0.0
	for i := range 5 {
		p.Observe(p.limit + 1)
		if p.RefusedPart() <= last {
			t.Fatalf("period %d above the limit: a part of %v is refused, %v before", i, p.RefusedPart(), last)
		}
		last = p.RefusedPart()
	}
	if n := refused(); math.Abs(float64(n)/1000-last) > 0.1 {
		t.Errorf("%d of 1000 calls were refused, should be a part of %v", n, last)
	}
	if got := b.Refused(); got == 0 || got > 1000 {
		t.Errorf("expected the refusals to be counted, got %d", got)
	}
	for range 100 {
		p.Observe(time.Second)
	}
	if p.RefusedPart() != maxRefusedPart {
		t.Errorf("a part of %v is refused in the end, not %v", p.RefusedPart(), maxRefusedPart)
	}
	periods := 0
	for ; p.RefusedPart() > 0; periods++ {
		p.Observe(0)
	}
	if calm := time.Duration(periods) * observePeriod; calm > 10*time.Second || calm < time.Second {
		t.Errorf("%v after the load nothing is refused", calm)
	}
}

// The quantile is that of the bucket in which 99 of 100 new counts end.
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
				t.Errorf("expected %v, got %v", c.want, got)
			}
		})
	}
}

// The runtime has the metric, and goroutines that were ready to run appear in it.
func TestRuntimeReportsWaits(t *testing.T) {
	var r waitReader
	if r.next(); len(r.before) == 0 {
		t.Fatalf("the runtime has no histogram %s", schedulerWaits)
	}
	ran := make(chan struct{})
	for r.next() == 0 {
		for range 1000 {
			go func() { ran <- struct{}{} }()
		}
		for range 1000 {
			<-ran
		}
	}
}

// Waits below the limit lower the refused share to nothing, and the end of the context ends Run.
func TestRunObservesUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		NewLoadShedder(-1).Run(t.Context()) // returns at once
		p := NewLoadShedder(time.Hour)
		p.refusedPart.Store(math.Float64bits(0.5))
		go p.Run(t.Context())          // synctest waits for its end
		<-time.After(20 * time.Second) // of synctest
		if p.RefusedPart() != 0 {
			t.Errorf("expected Run to observe that nothing waits, got a refused part of %v", p.RefusedPart())
		}
	})
}
