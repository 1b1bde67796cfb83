package admission

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"
)

// TestShedding: while waits are above the limit, again and again, more and more is refused, never all; when they are not, nothing in
// the end.
func TestShedding(t *testing.T) {
	d := Shedder{Limit: 100 * time.Millisecond}
	refused := func() (n int) {
		for range 1000 {
			if d.Admit() != nil {
				n++
			}
		}
		return n
	}
	d.Observe(d.Limit)
	for range shedPatience {
		d.Observe(time.Hour)
	}
	d.Observe(0)
	for range shedPatience {
		d.Observe(time.Hour)
	}
	if n := refused(); n > 0 {
		t.Errorf("%d of 1000 calls were refused without need", n)
	}
	last := 0.0
	for i := range 5 {
		d.Observe(d.Limit + 1)
		if d.Part() <= last {
			t.Fatalf("period %d above the limit: %v is refused, %v before", i, d.Part(), last)
		}
		last = d.Part()
	}
	if n := refused(); math.Abs(float64(n)/1000-last) > 0.1 {
		t.Errorf("%d of 1000 calls were refused, should be a part of %v", n, last)
	}
	for range 100 {
		d.Observe(time.Second)
	}
	if d.Part() != maxShare {
		t.Errorf("a part of %v is refused in the end, not %v", d.Part(), maxShare)
	}
	periods := 0
	for ; d.Part() > 0; periods++ {
		d.Observe(0)
	}
	if calm := time.Duration(periods) * shedPeriod; calm > 10*time.Second || calm < time.Second {
		t.Errorf("%v after the load nothing is refused", calm)
	}
}

// TestShedderMeasures: the measured wait is above zero, and below a minute; the measurement stops with its context.
func TestShedderMeasures(t *testing.T) {
	for _, limit := range []time.Duration{1, time.Minute} {
		d := Shedder{Limit: limit}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.Run(ctx, slog.New(slog.DiscardHandler)); close(ended) }()
		tick := time.NewTicker(shedPeriod)
		for range 600 {
			if <-tick.C; d.Part() > 0.5 || limit > 1 {
				break
			}
		}
		tick.Stop()
		cancel()
		<-ended
		if sheds := d.Part() > 0.5; sheds != (limit == 1) {
			t.Errorf("with a limit of %v a part of %v is refused", limit, d.Part())
		}
	}
}
