package gateway

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// askLong asks for a page of each list whose pages can be long, and returns the errors. Each may
// take so long.
func (w *world) askLong(size int32, patience time.Duration) map[string]error {
	errs := map[string]error{}
	for name, ask := range map[string]func(context.Context) error{
		"followers": func(ctx context.Context) error {
			_, err := w.graph.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", PageSize: size}))
			return err
		},
		"pins": func(ctx context.Context) error {
			of := &skeinv1.ListPinsRequest_OwnerId{OwnerId: "bob"}
			_, err := w.feed.ListPins(ctx, connect.NewRequest(&skeinv1.ListPinsRequest{Target: of, PageSize: size}))
			return err
		},
		"pins by their names": func(ctx context.Context) error {
			req := &skeinv1.BatchGetPinsRequest{}
			for range size {
				req.Pins = append(req.Pins, pinNamed("bob", "p"))
			}
			_, err := w.feed.BatchGetPins(ctx, connect.NewRequest(req))
			return err
		},
		"states of a viewer": func(ctx context.Context) error {
			req := &skeinv1.BatchGetViewerStateRequest{ViewerId: "ann"}
			for range size {
				req.Keys = append(req.Keys, stateOfPin("bob", "p"))
			}
			_, err := w.feed.BatchGetViewerState(ctx, connect.NewRequest(req))
			return err
		},
		"a feed": func(ctx context.Context) error {
			_, err := w.feed.ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size}))
			return err
		},
		"a feed of what was not seen": func(ctx context.Context) error {
			_, err := w.feed.ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, HideSeen: true}))
			return err
		},
		"items by heat": func(ctx context.Context) error {
			_, err := w.counterClient.ListTrending(ctx, connect.NewRequest(&skeinv1.ListTrendingRequest{PageSize: size}))
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		errs[name] = ask(ctx)
		cancel()
	}
	return errs
}

// TestLongAnswers: a long page is made when there is a place for it in the budget, and gives the
// place back; short pages wait for nothing.
func TestLongAnswers(t *testing.T) {
	w := newWorld(t, withFeeds, withSeen, withCounters)
	w.caughtUp(w.publish(follow("ann", "bob"), pinned("bob", "", "p")))
	pages := w.server.budgets.LongPages
	for way, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}} {
		w.connect(options...)
		for range pages.Limit {
			if err := pages.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for name, err := range w.askLong(call.MaxShortPage, patienceOfTests) {
			if err != nil {
				t.Errorf("%s: a short page of %s: %v", way, name, err)
			}
		}
		for name, err := range w.askLong(call.MaxShortPage+1, 50*time.Millisecond) {
			if err == nil {
				t.Errorf("%s: a long page of %s was made without a place", way, name)
			}
		}
		for range pages.Limit {
			pages.Done()
		}
		for name, err := range w.askLong(call.MaxShortPage+1, patienceOfTests) {
			if err != nil {
				t.Errorf("%s: a long page of %s: %v", way, name, err)
			}
		}
		if n := pages.Used(); n > 0 {
			t.Errorf("%s: %d places are not given back", way, n)
		}
	}
}

// A call that waits for one of its stores holds no place for a long page. So while all places are
// taken, it learns that the store is behind.
func TestLongListOfReactorsWaitsForItsStoresFirst(t *testing.T) {
	w := newWorld(t, withCounters, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	at := w.publish(liked("ann", "a"))
	if err := w.counters.Serving().Fold(w.envelopes(1)); err != nil {
		t.Fatal(err)
	}
	pages := w.server.budgets.LongPages
	for range pages.Limit {
		if err := pages.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer pages.Done()
	}

	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	_, err := w.counterClient.ListReactors(ctx, connect.NewRequest(&skeinv1.ListReactorsRequest{
		ItemId: "a", ViewerId: "bob", PageSize: call.MaxShortPage + 1, AtLeast: at,
	}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
}
