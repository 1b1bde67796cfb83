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

// multiplexed makes the clients of a world use HTTP/2 without TLS.
func (w *world) multiplexed() {
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(h2.CloseIdleConnections)
	w.http = &http.Client{Transport: h2}
	w.connect(connect.WithGRPC())
}

// callsOfEachKind makes a read, a publish, a status and a health check, each of which must be
// answered without an error.
func (w *world) callsOfEachKind() {
	w.t.Helper()
	answered(w, w.events.Publish, &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("ann", "bob")}})
	answered(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob"})
	answered(w, w.admin.GetStatus, &skeinv1.GetStatusRequest{})
	answered(w, w.health.Check, &healthv1.HealthCheckRequest{})
}

// answered makes a call until the server answers it, which it must do without an error. A call that
// does not arrive in time is made again. In tests that give clients little time, the server also
// cuts off this client if the machine stands still for so long.
func answered[Req, Res any](
	w *world, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) {
	w.t.Helper()
	for {
		_, err := method(w.t.Context(), connect.NewRequest(req))
		if err == nil {
			return
		}
		isLate := !connect.IsWireError(err) || strings.Contains(err.Error(), os.ErrDeadlineExceeded.Error())
		if !isLate || w.t.Context().Err() != nil {
			w.t.Fatal(err)
		}
		w.t.Logf("called again: %v", err)
	}
}

// flood opens streams until the server refuses one, or accepts more than most. It returns how many
// streams were accepted, and the error of the one that was refused. The streams stay open until the
// test ends.
func flood[Res any](
	t *testing.T, open func() (*connect.ServerStreamForClient[Res], error), most int,
) (accepted int, refused error) {
	t.Helper()
	for accepted <= most {
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if !stream.Receive() {
			return accepted, stream.Err()
		}
		t.Cleanup(func() { _ = stream.Close() })
		accepted++
	}
	return accepted, nil
}

// TestFloodOfStreams checks that each kind of stream has a budget of its own, and takes nothing
// from the budgets of calls. The streams of health matter most, because they need no token.
func TestFloodOfStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *worldOptions) { o.Limits.InFlight = 4 })
	w.multiplexed()

	wantLimit := func(kind string, accepted, limit int, refused error) {
		t.Helper()
		if accepted != limit || refused == nil {
			t.Errorf("%s: got %d accepted streams and then error %v, want %d and a refusal", kind, accepted, refused, limit)
			return
		}
		if d := detailsOf(t, refused); d.code != connect.CodeResourceExhausted || d.reason != "OVERLOADED" || !d.retry {
			t.Errorf("%s: got error %v with %+v, want code %v, reason OVERLOADED and a time to retry",
				kind, refused, d, connect.CodeResourceExhausted)
		}
	}
	accepted, err := flood(t, func() (*connect.ServerStreamForClient[healthv1.HealthCheckResponse], error) {
		return w.health.Watch(t.Context(), connect.NewRequest(&healthv1.HealthCheckRequest{}))
	}, healthStreams)
	wantLimit("health", accepted, healthStreams, err)
	accepted, err = flood(t, func() (*connect.ServerStreamForClient[skeinv1.WatchResponse], error) {
		return w.events.Watch(t.Context(), connect.NewRequest(&skeinv1.WatchRequest{}))
	}, w.server.limits.Watches)
	wantLimit("events", accepted, w.server.limits.Watches, err)

	// While all these streams are open, calls have their whole budgets.
	if n := w.server.budgets.Reads.Used() + w.server.budgets.Writes.Used(); n != 0 {
		t.Errorf("the streams take %d of the budgets of calls, want 0", n)
	}
	w.callsOfEachKind()
	if got := w.server.budgets.Streams["/"+healthv1connect.HealthName+"/Watch"].Limit; got != healthStreams {
		t.Errorf("budget of health streams: got %d, want %d", got, healthStreams)
	}
}

// TestEveryStreamHasABudget checks that no method that answers with a stream takes from the budget
// of calls.
func TestEveryStreamHasABudget(t *testing.T) {
	w := newWorld(t)
	if len(w.server.streams) == 0 {
		t.Error("got no methods that answer with a stream")
	}
	most := int64(max(healthStreams, w.server.limits.FeedWatches))
	for procedure := range w.server.streams {
		budget := w.server.budgets.Streams[procedure]
		if budget == nil || budget.Limit > most || budget.Limit < 1 {
			t.Errorf("%s: got budget %+v, want one of 1 to %d streams", procedure, budget, most)
		}
	}
}

// TestStreamsOfFeedsAndNotificationsShareTheirMemory checks that both kinds of streams have one
// budget. Both follow the log for a user and cost the same, so one limit, which is derived from the
// memory of the process, holds for both together.
func TestStreamsOfFeedsAndNotificationsShareTheirMemory(t *testing.T) {
	w := newWorld(t)
	streams := w.server.budgets.Streams
	feeds := streams[connectv1.FeedServiceWatchFeedProcedure]
	notifications := streams[connectv1.NotificationServiceWatchNotificationsProcedure]
	if feeds == nil || feeds != notifications {
		t.Fatalf("got budgets %p and %p, want the same one for both kinds of streams", feeds, notifications)
	}

	before := w.server.budgets.InFlight()
	if f := notifications.Take("", 1); f != nil {
		t.Fatal(f)
	}
	defer notifications.Release("", 1)
	if got := w.server.budgets.InFlight() - before; got != 1 {
		t.Errorf("one stream counts as %d calls in work, want 1", got)
	}
}

// TestCallsOfOperators checks that operators are still answered when the budgets of reads and
// writes are used up.
func TestCallsOfOperators(t *testing.T) {
	w := newWorld(t, func(o *worldOptions) { o.Limits.InFlight = 1 })
	for _, budget := range []*admission.Budget{w.server.budgets.Reads, w.server.budgets.Writes} {
		if f := budget.Take("", 1); f != nil {
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

// TestWritesTakeNoPlaceOfReads checks that reads are answered while writes use up their own budget,
// because the log does not accept them. In the same way, writes are answered while reads use up
// theirs.
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
		name       string
		fullBudget *admission.Budget
		// callRefused makes a call of the full budget, and callAnswered one of the other budget.
		callRefused, callAnswered func() error
	}{
		{"writes", w.server.budgets.Writes, write, read},
		{"reads", w.server.budgets.Reads, read, write},
	} {
		t.Run(c.name+" are full", func(t *testing.T) {
			if f := c.fullBudget.Take("", 1); f != nil {
				t.Fatal(f)
			}
			defer c.fullBudget.Release("", 1)
			refusedBefore := c.fullBudget.Refused()

			err := c.callRefused()
			wantError(t, err, connect.CodeResourceExhausted, "OVERLOADED", "")
			if want := "the service allows 1 " + c.name + " at a time"; err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got error %q, want one that contains %q", err, want)
			}
			if got := c.fullBudget.Refused() - refusedBefore; got != 1 {
				t.Errorf("got %d counted refusals, want 1", got)
			}
			if err := c.callAnswered(); err != nil {
				t.Errorf("call of the other budget: got %v, want an answer", err)
			}
		})
	}
}

// TestFloodOfExpensiveReads checks that only a few reads by heat run at the same time, that some
// wait for a moment, and that the others are refused. Other calls are answered all the while.
func TestFloodOfExpensiveReads(t *testing.T) {
	w := newWorld(t, withFeeds, func(o *worldOptions) {
		o.Limits.ExpensiveReads = 1
		o.Limits.InFlight = 16
	})
	budget := w.server.budgets.ExpensiveReads
	budget.MaxWait = time.Millisecond
	readByHeat := func() error {
		_, err := w.feed.ReadFeed(t.Context(), connect.NewRequest(&skeinv1.ReadFeedRequest{
			ReaderId: "ann", Order: skeinv1.FeedOrder_FEED_ORDER_TRENDING,
		}))
		return err
	}
	if err := readByHeat(); err != nil {
		t.Fatal(err)
	}

	// The test takes the only place. A read that has waited for MaxWait is refused.
	if err := budget.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantError(t, readByHeat(), connect.CodeResourceExhausted, "OVERLOADED", "")

	// One read waits for its turn. Of 16 calls only two may be expensive, so the next read is
	// refused at once.
	budget.MaxWait = time.Hour
	answered := make(chan error, 1)
	go func() { answered <- readByHeat() }()
	for budget.Waiting() < 1 {
		if len(answered) > 0 {
			t.Fatalf("the read has ended with %v, want it to wait for its turn", <-answered)
		}
		runtime.Gosched()
	}
	wantError(t, readByHeat(), connect.CodeResourceExhausted, "OVERLOADED", "")
	ask(w, w.feed.ReadFeed, &skeinv1.ReadFeedRequest{ReaderId: "ann"})
	w.callsOfEachKind()

	// The read that waits gets the place as soon as it is free.
	budget.Done()
	if err := <-answered; err != nil {
		t.Errorf("the read that has waited: %v", err)
	}
	if err := readByHeat(); err != nil {
		t.Errorf("a read after the flood: %v", err)
	}
	if n := budget.Used(); n != 0 {
		t.Errorf("got %d expensive reads in work, want 0", n)
	}
	if n := budget.Refused(); n != 2 {
		t.Errorf("got %d counted refusals, want 2", n)
	}
}

// TestExpensiveReadsWaitForTheirStoresFirst checks that a read that waits for a store which lags
// holds no place of an expensive read. So it gets the error that the store is behind even while all
// places are taken.
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
