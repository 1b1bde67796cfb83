package gateway

import (
	"math"
	runtimemetrics "runtime/metrics"
	"testing"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShedding: while goroutines wait longer than the limit more and more is refused, never all; when they do not, nothing in the end.
func TestShedding(t *testing.T) {
	d := shedder{limit: 100 * time.Millisecond}
	refused := func() (n int) {
		for range 1000 {
			if d.admit() != nil {
				n++
			}
		}
		return n
	}
	d.observe(d.limit)
	d.observe(-1)
	if n := refused(); n > 0 {
		t.Errorf("%d of 1000 calls were refused without need", n)
	}
	last := 0.0
	for i := range 5 {
		d.observe(d.limit + 1)
		if d.part() <= last {
			t.Fatalf("period %d above the limit: %v is refused, %v before", i, d.part(), last)
		}
		last = d.part()
	}
	if n := refused(); math.Abs(float64(n)/1000-last) > 0.1 {
		t.Errorf("%d of 1000 calls were refused, should be a part of %v", n, last)
	}
	for range 100 {
		d.observe(time.Second)
	}
	if d.part() != maxShare {
		t.Errorf("a part of %v is refused in the end, not %v", d.part(), maxShare)
	}
	periods := 0
	for ; d.part() > 0; periods++ {
		d.observe(0)
	}
	if calm := time.Duration(periods) * shedPeriod; calm > 10*time.Second || calm < time.Second {
		t.Errorf("%v after the load nothing is refused", calm)
	}
}

// TestWaitMedian: it is that of what came since the last time.
func TestWaitMedian(t *testing.T) {
	h := &runtimemetrics.Float64Histogram{Buckets: []float64{math.Inf(-1), 0.001, 0.01, 0.1, math.Inf(1)}, Counts: []uint64{100, 7, 9, 4}}
	before := []uint64{100, 1, 0, 0}
	for nth, want := range map[uint64]time.Duration{1: time.Millisecond, 6: time.Millisecond, 7: 10 * time.Millisecond, 19: 100 * time.Millisecond} {
		if got := bucketOf(h, before, nth); got != want {
			t.Errorf("wait %d is %v, want %v", nth, got, want)
		}
	}
	var w waitMedian
	w.next()
	waited := make(chan struct{})
	for range 100 * leastWaits {
		go func() { waited <- struct{}{} }()
	}
	for range 100 * leastWaits {
		<-waited
	}
	if got := w.next(); got < 0 || got > time.Minute {
		t.Errorf("the median of thousands is %v", got)
	}
}

// TestShedCalls: what is refused is so by every way of calling, and told when to come again; health and administration are not.
func TestShedCalls(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Limits.ShedAfter = 1 })
	reader := g.as(g.tokens["reader"])
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	var refused, served int
	for calls := 0; served == 0 || refused < 20; calls++ {
		if calls == 5000 {
			t.Fatalf("of %d calls %d were refused", calls, refused)
		}
		for range 10 {
			g.server.shed.observe(time.Second) // the server, which is at rest, observes that nothing waits
		}
		_, err := reader.graph.CheckFollows(t.Context(), connect.NewRequest(check))
		if err == nil {
			served++
			continue
		}
		refused++
		if d := detailsOf(t, err); d.code != connect.CodeResourceExhausted || d.reason != "OVERLOADED" || !d.retry {
			t.Fatalf("%v: %+v", err, d)
		}
	}
	if got := g.server.shed.refused.Load(); got != uint64(refused) {
		t.Errorf("%d are counted, %d were refused", got, refused)
	}
	for range 100 {
		ask(reader, reader.health.Check, &healthv1.HealthCheckRequest{})
		admin := g.as(g.tokens["admin"])
		ask(admin, admin.admin.GetStatus, &skeinv1.GetStatusRequest{})
	}
}
