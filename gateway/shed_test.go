package gateway

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShedding: while waits are above the limit, again and again, more and more is refused, never all; when they are not, nothing in
// the end.
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
	for range shedPatience {
		d.observe(time.Hour)
	}
	d.observe(0)
	for range shedPatience {
		d.observe(time.Hour)
	}
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

// TestShedderMeasures: what comes waits longer than nothing, and not for a minute; it stops when it is told to.
func TestShedderMeasures(t *testing.T) {
	for _, limit := range []time.Duration{1, time.Minute} {
		d := shedder{limit: limit}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { d.run(ctx, slog.New(slog.DiscardHandler)); close(ended) }()
		tick := time.NewTicker(shedPeriod)
		for range 600 {
			if <-tick.C; d.part() > 0.5 || limit > 1 {
				break
			}
		}
		tick.Stop()
		cancel()
		<-ended
		if sheds := d.part() > 0.5; sheds != (limit == 1) {
			t.Errorf("with a limit of %v a part of %v is refused", limit, d.part())
		}
	}
}

// TestShedCalls: what is refused is so by every way of calling, and told when to come again; health and administration are not.
func TestShedCalls(t *testing.T) {
	g := newGuarded(t) // in which nothing is measured
	reader := g.as(g.tokens["reader"])
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	var refused, served int
	for calls := 0; served == 0 || refused < 20; calls++ {
		if calls == 5000 {
			t.Fatalf("of %d calls %d were refused", calls, refused)
		}
		for range 10 {
			g.server.shed.observe(time.Second)
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
