package gateway

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShedCalls: what is refused is so by every way of calling, and told when to come again; health
// and administration are not.
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
			g.server.budgets.Shedder.Observe(time.Second)
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
	if got := g.server.budgets.Reads.Refused(); got != uint64(refused) {
		t.Errorf("expected %d refusals to be counted, got %d", refused, got)
	}
	for range 100 {
		ask(reader, reader.health.Check, &healthv1.HealthCheckRequest{})
		admin := g.as(g.tokens["admin"])
		ask(admin, admin.admin.GetStatus, &skeinv1.GetStatusRequest{})
	}
}
