package gateway

import (
	"context"
	"runtime"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/call"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// readLongPages reads a page of each list whose pages can be long, each within a timeout. It
// returns the error, or nil, for each list.
func (w *world) readLongPages(size int32, timeout time.Duration) map[string]error {
	errs := map[string]error{}
	for name, readPage := range map[string]func(context.Context) error{
		"followers": func(ctx context.Context) error {
			_, err := w.graph.ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob", PageSize: size}))
			return err
		},
		"pins": func(ctx context.Context) error {
			target := &skeinv1.ListPinsRequest_OwnerId{OwnerId: "bob"}
			_, err := w.feed.ListPins(ctx, connect.NewRequest(&skeinv1.ListPinsRequest{Target: target, PageSize: size}))
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
		"a feed without seen items": func(ctx context.Context) error {
			_, err := w.feed.ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "ann", PageSize: size, HideSeen: true}))
			return err
		},
		"items by heat": func(ctx context.Context) error {
			_, err := w.counterClient.ListTrending(ctx, connect.NewRequest(&skeinv1.ListTrendingRequest{PageSize: size}))
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
		errs[name] = readPage(ctx)
		cancel()
	}
	return errs
}

// TestLongAnswers checks that a long page waits for a place in the budget of long pages, and
// gives the place back. Short pages do not wait.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFeeds, withSeen, withCounters)
	w.caughtUp(w.publish(follow("ann", "bob"), pinned("bob", "", "p")))
	longPages := w.server.budgets.LongPages
	for encoding, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}} {
		t.Run(encoding, func(t *testing.T) {
			w.connect(options...)

			// While all places are taken, only short pages are answered.
			for range longPages.Limit {
				if err := longPages.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for name, err := range w.readLongPages(call.MaxShortPage, patienceOfTests) {
				if err != nil {
					t.Errorf("short page of %s without a place: got error %v, want none", name, err)
				}
			}
			for name, err := range w.readLongPages(call.MaxShortPage+1, 50*time.Millisecond) {
				if err == nil {
					t.Errorf("long page of %s without a place: got an answer, want none within the timeout", name)
				}
			}

			// Once the places are free, long pages are answered, and leave the places free.
			for range longPages.Limit {
				longPages.Done()
			}
			for name, err := range w.readLongPages(call.MaxShortPage+1, patienceOfTests) {
				if err != nil {
					t.Errorf("long page of %s: got error %v, want none", name, err)
				}
			}

			// A call that the client has given up above may have got a place when the places became
			// free, and gives it back when its goroutine runs again.
			for deadline := time.Now().Add(time.Minute); longPages.Used() > 0 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			if n := longPages.Used(); n > 0 {
				t.Errorf("got %d taken places afterwards, want none", n)
			}
		})
	}
}

// TestLongListOfReactorsWaitsForItsStoresFirst checks that a call that waits for one of its
// stores holds no place for a long page. Here the inbox lags behind and all places are taken, so
// the caller must get an error about the inbox instead of waiting for a place.
func TestLongListOfReactorsWaitsForItsStoresFirst(t *testing.T) {
	w := newWorld(t, withCounters, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Millisecond })
	at := w.publish(liked("ann", "a"))
	if err := w.counters.Serving().Fold(w.envelopes(1)); err != nil {
		t.Fatal(err)
	}
	longPages := w.server.budgets.LongPages
	for range longPages.Limit {
		if err := longPages.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer longPages.Done()
	}

	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	_, err := w.counterClient.ListReactors(ctx, connect.NewRequest(&skeinv1.ListReactorsRequest{
		ItemId: "a", ViewerId: "bob", PageSize: call.MaxShortPage + 1, AtLeast: at,
	}))
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
}
