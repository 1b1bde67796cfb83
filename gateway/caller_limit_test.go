package gateway

import (
	"testing"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// One caller is refused in every protocol, and told when to call again. Other callers are not
// refused, and neither are health checks.
func TestCallerLimitRefusesOneCallerOnly(t *testing.T) {
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

// A stream counts for its caller until it ends.
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
