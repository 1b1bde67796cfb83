package gateway

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestQuotas: each caller has a burst and a rate of its own, and calls under way; what is refused counts for nothing, and the wait
// that it is told is enough.
func TestQuotas(t *testing.T) {
	if newQuotas(Limits{}.withDefaults()) != nil {
		t.Error("nobody is limited, and there are quotas")
	}
	q := newQuotas(Limits{CallerRate: 2, CallerBurst: 3, CallerInFlight: 2}.withDefaults())
	now := time.Now()
	take := func(name string, want bool) (retry time.Duration) {
		t.Helper()
		f := q.take(name, now)
		if (f == nil) != want {
			t.Fatalf("%s is taken: %v, want %v", name, f == nil, want)
		}
		if f != nil {
			retry = f.Retry
		}
		return retry
	}
	take("ann", true)
	take("ann", true)
	take("ann", false) // two are under way
	q.give("ann")
	take("ann", true) // the last of the burst
	q.give("ann")
	for range 10 {
		if retry := take("ann", false); retry != 500*time.Millisecond {
			t.Fatalf("to be tried after %v", retry)
		}
	}
	take("bob", true)
	now = now.Add(499 * time.Millisecond)
	take("ann", false)
	now = now.Add(time.Millisecond)
	take("ann", true)
}

// TestQuotasAreBounded: who has taken nothing lately is forgotten for those who come, and nobody else.
func TestQuotasAreBounded(t *testing.T) {
	q := newQuotas(Limits{CallerRate: 1}.withDefaults())
	q.most = 100
	now := time.Now()
	call := func(name string) {
		if f := q.take(name, now); f != nil {
			t.Fatal(name, f)
		}
	}
	call("busy")
	for i := range 99 {
		call(fmt.Sprint("once", i))
		q.give(fmt.Sprint("once", i))
	}
	now = now.Add(time.Second)
	call("new")
	if len(q.byName) != 2 || q.byName["busy"] == nil || q.most != maxQuotas {
		t.Errorf("%d callers are remembered, %d may be", len(q.byName), q.most)
	}
	q.give("busy")
}

// TestCallerLimit: one caller is refused, by every way of calling, and told when to come again; others are not, nor are those who
// ask for the health of the service.
func TestCallerLimit(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Limits.CallerRate, o.Limits.CallerBurst = 0.001, 2 })
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	reader := g.as(g.tokens["reader"])
	ask(reader, reader.graph.CheckFollows, check)
	asJSON := g.as(g.tokens["reader"], connect.WithProtoJSON())
	ask(asJSON, asJSON.graph.CheckFollows, check)
	for _, w := range []*world{reader, asJSON} {
		_, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(check))
		if d := detailsOf(t, err); d.code != connect.CodeResourceExhausted || d.reason != "CALLER_LIMIT" || !d.retry {
			t.Errorf("%v: %+v", err, d)
		}
	}
	other := g.as(g.tokens["ann"])
	ask(other, other.graph.CheckFollows, check)
	for range 5 {
		ask(reader, reader.health.Check, &healthv1.HealthCheckRequest{})
	}
}

// TestCallerLimitOfStreams: a stream is under way until it ends.
func TestCallerLimitOfStreams(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Limits.CallerInFlight = 1 })
	all := g.as(g.tokens["all"])
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	watch, err := all.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{After: "EARLIEST"}))
	if err != nil {
		t.Fatal(err)
	}
	publisher := g.as(g.tokens["publisher"])
	ask(publisher, publisher.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}})
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}
	_, err = all.graph.CheckFollows(t.Context(), connect.NewRequest(check))
	if d := detailsOf(t, err); d.code != connect.CodeResourceExhausted || d.reason != "CALLER_LIMIT" {
		t.Errorf("%v: %+v", err, d)
	}
	watch.Close()
	for {
		_, err := all.graph.CheckFollows(t.Context(), connect.NewRequest(check))
		if err == nil {
			return
		}
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatal(err)
		}
	}
}
