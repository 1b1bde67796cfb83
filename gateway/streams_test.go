package gateway

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/admission"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// multiplexed has the clients of a world use HTTP/2 without TLS.
func (w *world) multiplexed() {
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(h2.CloseIdleConnections)
	w.http = &http.Client{Transport: h2}
	w.connect(connect.WithGRPC())
}

// callsOfEachKind makes a read, a publish, a status and a health check, all of which must be
// answered. None may be refused. What did not arrive in time is sent again: in tests that give
// clients little of it, a machine that stands still for so long cuts off this client, too.
func (w *world) callsOfEachKind() {
	w.t.Helper()
	answered(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}})
	answered(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob"})
	answered(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	answered(w, w.health.Check, &healthv1.HealthCheckRequest{})
}

// answered makes a call until the server answers it, which it must do without an error.
func answered[Req, Res any](
	w *world, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) {
	w.t.Helper()
	for {
		_, err := method(w.t.Context(), connect.NewRequest(req))
		if err == nil {
			return
		}
		late := !connect.IsWireError(err) || strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error())
		if !late || w.t.Context().Err() != nil {
			w.t.Fatal(err)
		}
		w.t.Logf("called again: %v", err)
	}
}

// flood opens streams until one is refused, and returns how many were let in. They stay open until
// the test ends.
func flood[Res any](
	t *testing.T, open func() (*connect.ServerStreamForClient[Res], error), most int,
) (letIn int, refused error) {
	t.Helper()
	for letIn <= most {
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() {
			return letIn, stream.Err()
		}
		t.Cleanup(func() { _ = stream.Close() })
		letIn++
	}
	return letIn, nil
}

// TestFloodOfStreams: each kind of stream has a budget of its own, and takes nothing of the budget
// of calls. That of health needs no token.
func TestFloodOfStreams(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.InFlight = 4 })
	w.multiplexed()
	refusedAt := func(what string, letIn, want int, refused error) {
		t.Helper()
		if letIn != want || refused == nil {
			t.Errorf("%s: %d were let in, and then %v", what, letIn, refused)
			return
		}
		if d := detailsOf(t, refused); d.code != connect.CodeResourceExhausted || d.reason != "OVERLOADED" || !d.retry {
			t.Errorf("%s: %v", what, refused)
		}
	}
	letIn, err := flood(t, func() (*connect.ServerStreamForClient[healthv1.HealthCheckResponse], error) {
		return w.health.Watch(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{}))
	}, healthStreams)
	refusedAt("health", letIn, healthStreams, err)
	letIn, err = flood(t, func() (*connect.ServerStreamForClient[skeinv1.WatchResponse], error) {
		return w.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{}))
	}, w.server.limits.Watches)
	refusedAt("events", letIn, w.server.limits.Watches, err)
	if n := w.server.budgets.Reads.Used() + w.server.budgets.Writes.Used(); n != 0 {
		t.Errorf("%d calls of the budget are taken", n)
	}
	w.callsOfEachKind()
	if got := w.server.budgets.Streams["/"+healthv1connect.HealthName+"/Watch"].Limit; got != healthStreams {
		t.Errorf("the budget of health is %d", got)
	}
}

// TestEveryStreamHasABudget: no method that answers with a stream takes from the budget of calls.
func TestEveryStreamHasABudget(t *testing.T) {
	w := newWorld(t)
	for procedure := range w.server.streams {
		b := w.server.budgets.Streams[procedure]
		if b == nil || b.Limit > int64(max(healthStreams, w.server.limits.FeedWatches)) || b.Limit < 1 {
			t.Errorf("%s: %+v", procedure, b)
		}
	}
}

// TestStreamsOfFeedsAndNotificationsShareTheirMemory: both kinds of streams follow the log for a
// user and cost the same, so one bound, which is derived from the memory of the process, holds for
// both together.
func TestStreamsOfFeedsAndNotificationsShareTheirMemory(t *testing.T) {
	w := newWorld(t)
	streams := w.server.budgets.Streams
	feeds, notifications := streams[connectv1.FeedServiceWatchFeedProcedure],
		streams[connectv1.NotificationServiceWatchNotificationsProcedure]
	if feeds == nil || feeds != notifications {
		t.Fatalf("expected one budget for both kinds of streams, got %p and %p", feeds, notifications)
	}

	before := w.server.budgets.InFlight()
	if f := notifications.Take("", 1); f != nil {
		t.Fatal(f)
	}
	defer notifications.Release("", 1)
	if got := w.server.budgets.InFlight(); got != before+1 {
		t.Errorf("expected the stream to count once, got %d calls in work after %d", got, before)
	}
}

// TestCallsOfOperators: when the budgets of reads and writes are used up, operators are still
// answered.
func TestCallsOfOperators(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.InFlight = 1 })
	for _, b := range []*admission.Budget{w.server.budgets.Reads, w.server.budgets.Writes} {
		if f := b.Take("", 1); f != nil {
			t.Fatal(f)
		}
	}
	_, err := w.followers("bob", anyKind)(1, "", "")
	wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
	ask(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	ask(w, w.health.Check, &healthv1.HealthCheckRequest{})
	w.server.budgets.Reads.Release("", 1)
	w.server.budgets.Writes.Release("", 1)
	w.callsOfEachKind()
}

// TestWritesTakeNoPlaceOfReads: while writes hold all their places, because the log does not take
// them, reads are answered; and writes are while reads hold all of theirs.
func TestWritesTakeNoPlaceOfReads(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.InFlight = 1 })
	read := func() error {
		_, err := w.followers("bob", anyKind)(1, "", "")
		return err
	}
	write := func() error {
		_, err := w.events.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}}))
		return err
	}
	for _, c := range []struct {
		name           string
		full           *admission.Budget
		refused, taken func() error
	}{
		{"writes", w.server.budgets.Writes, write, read},
		{"reads", w.server.budgets.Reads, read, write},
	} {
		t.Run(c.name+" are full", func(t *testing.T) {
			if f := c.full.Take("", 1); f != nil {
				t.Fatal(f)
			}
			defer c.full.Release("", 1)
			before := c.full.Refused()
			err := c.refused()
			wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
			if want := "the service allows 1 " + c.name + " at a time"; !strings.Contains(err.Error(), want) {
				t.Errorf("expected an error with %q, got %v", want, err)
			}
			if got := c.full.Refused() - before; got != 1 {
				t.Errorf("expected 1 refusal to be counted, got %d", got)
			}
			if err := c.taken(); err != nil {
				t.Errorf("expected the other class to be answered, got %v", err)
			}
		})
	}
}

// TestFloodOfExpensiveReads: reads by heat run so many at once, some wait for a moment, and the
// rest is refused. Others are answered all the while.
func TestFloodOfExpensiveReads(t *testing.T) {
	w := newWorld(t, withFeeds, func(o *worldOptions) { o.Limits.ExpensiveReads, o.Limits.InFlight = 1, 16 })
	b := w.server.budgets.ExpensiveReads
	b.MaxWait = time.Millisecond
	byHeat := func() error {
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{
			ReaderId: "ann", Order: skeinv1.FeedOrder_FEED_ORDER_TRENDING,
		}))
		return err
	}
	if err := byHeat(); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, byHeat(), connect.CodeResourceExhausted, "OVERLOADED", "")
	b.MaxWait = time.Hour
	waits := make(chan error, 1)
	go func() { waits <- byHeat() }()
	for b.Waiting() < 1 {
		if len(waits) > 0 {
			t.Fatalf("expected a read to wait for its turn, and it ended with %v", <-waits)
		}
		runtime.Gosched()
	}
	wantError(t, byHeat(), connect.CodeResourceExhausted, "OVERLOADED", "") // 16 calls, of which two may be expensive
	ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann"})
	w.callsOfEachKind()
	b.Done()
	if err := <-waits; err != nil {
		t.Error(err)
	}
	if err := byHeat(); err != nil {
		t.Error(err)
	}
	if n := b.Used(); n != 0 {
		t.Errorf("%d expensive reads are under way", n)
	}
	if n := b.Refused(); n != 2 {
		t.Errorf("expected 2 refusals to be counted, got %d", n)
	}
}

// A read that waits for a store which lags holds no place of an expensive read. So while all places
// are taken, it learns that the store is behind.
func TestExpensiveReadsWaitForTheirStoresFirst(t *testing.T) {
	w := newWorld(t, withFeeds, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	at := w.publish(follow("ann", "bob"))
	places := w.server.budgets.ExpensiveReads
	for range places.Limit {
		if err := places.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer places.Done()
	}

	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	t.Run("ReadFeed by heat", func(t *testing.T) {
		_, err := w.feed.ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{
			ReaderId: "ann", Order: skeinv1.FeedOrder_FEED_ORDER_TRENDING, AtLeast: at,
		}))
		wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	})
	t.Run("ExplainPin", func(t *testing.T) {
		_, err := w.feed.ExplainPin(ctx, connect.NewRequest(&skeinv1.ExplainPinRequest{
			ReaderId: "ann", Pin: pinNamed("bob", "p"), AtLeast: at,
		}))
		wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	})
}
