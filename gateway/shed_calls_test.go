package gateway

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShedCalls checks that an overloaded server refuses some of the reads, with a time to retry,
// counts the refusals, and still answers all health checks and calls of operators.
func TestShedCalls(t *testing.T) {
	g := newGuarded(t) // Its server measures nothing by itself, so the delays are those of the test.
	reader := g.as(g.tokens["reader"])
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}

	// The server refuses calls at random, and answers only few of them while delays are so long.
	const mostCalls = 5000
	refused := 0
	answered := 0
	for calls := 0; answered == 0 || refused < 20; calls++ {
		if calls == mostCalls {
			t.Fatalf("%d calls: got %d refused and %d answered, want at least 20 and 1", calls, refused, answered)
		}
		for range 10 {
			g.server.budgets.Shedder.Observe(time.Second)
		}
		_, err := reader.graph.CheckFollows(t.Context(), connect.NewRequest(check))
		if err == nil {
			answered++
			continue
		}
		refused++
		if d := detailsOf(t, err); d.code != connect.CodeResourceExhausted || d.reason != "OVERLOADED" || !d.retry {
			t.Fatalf("got error %v with %+v, want code %v, reason OVERLOADED and a time to retry", err, d, connect.CodeResourceExhausted)
		}
	}
	if got := g.server.budgets.Reads.Refused(); got != uint64(refused) {
		t.Errorf("got %d counted refusals, want %d", got, refused)
	}

	admin := g.as(g.tokens["admin"])
	for range 100 {
		ask(reader, reader.health.Check, &healthv1.HealthCheckRequest{})
		ask(admin, admin.admin.GetStatus, &skeinv1.GetStatusRequest{})
	}
}
