package gateway

import (
	"testing"

	"connectrpc.com/connect"

	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestCallerLimitRefusesOneCallerOnly checks that a caller who calls too often is refused in every
// protocol, and is told when to call again. Other callers and health checks are not refused.
func TestCallerLimitRefusesOneCallerOnly(t *testing.T) {
	// The limit allows two calls, and a further one only after a long time.
	g := newGuarded(t, func(o *worldOptions) {
		o.Limits.CallerRate = 0.001
		o.Limits.CallerBurst = 2
	})
	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	plain := g.as(g.tokens["reader"])
	asJSON := g.as(g.tokens["reader"], connect.WithProtoJSON())
	ask(plain, plain.graph.CheckFollows, check)
	ask(asJSON, asJSON.graph.CheckFollows, check)

	for name, w := range map[string]*world{"plain": plain, "json": asJSON} {
		t.Run(name, func(t *testing.T) {
			_, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(check))
			wantError(t, err, connect.CodeResourceExhausted, "CALLER_LIMIT", "")
			if d := detailsOf(t, err); !d.retry {
				t.Errorf("got no time after which to call again: %+v", d)
			}
		})
	}

	other := g.as(g.tokens["ann"])
	ask(other, other.graph.CheckFollows, check)
	for range 5 {
		ask(plain, plain.health.Check, &healthv1.HealthCheckRequest{})
	}
}

// TestCallerLimitOfStreams checks that a stream counts as a call of its caller until it ends.
func TestCallerLimitOfStreams(t *testing.T) {
	g := newGuarded(t, func(o *worldOptions) { o.Limits.CallerInFlight = 1 })
	watcher := g.as(g.tokens["all"])
	watch, err := watcher.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{After: "EARLIEST"}))
	if err != nil {
		t.Fatal(err)
	}

	// The stream has begun once it has a message.
	publisher := g.as(g.tokens["publisher"])
	ask(publisher, publisher.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}})
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}

	check := &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}}
	_, err = watcher.graph.CheckFollows(t.Context(), connect.NewRequest(check))
	wantError(t, err, connect.CodeResourceExhausted, "CALLER_LIMIT", "")

	// The server learns of the end of the stream some time after Close, and admits calls then.
	watch.Close()
	for {
		_, err := watcher.graph.CheckFollows(t.Context(), connect.NewRequest(check))
		if err == nil {
			return
		}
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatal(err)
		}
	}
}
