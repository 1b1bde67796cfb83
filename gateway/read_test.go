package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestReadYourOwnWrite publishes, and then reads with the position that Publish returned, a
// thousand times in a row and by all kinds of reads. No read may be stale.
func TestReadYourOwnWrite(t *testing.T) {
	w := newWorld(t)
	const writers, times = 4, 250
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			user := fmt.Sprint("writer", n)
			for i := range times {
				if err := w.readOwnWrite(user, fmt.Sprint(i), i); err != nil {
					t.Errorf("%s, write %d: %v", user, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// readOwnWrite lets user follow other, and returns an error if a read with the position of that
// event does not have it. i is the number of users whom user follows already, and selects the
// method.
func (w *world) readOwnWrite(user, other string, i int) error {
	ctx := context.Background()
	published, err := w.events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow(user, other)}}))
	if err != nil {
		return err
	}
	at := published.Msg.GetPosition()

	isVisible := false
	position := ""
	switch i % 5 {
	case 0:
		res, err := w.graph.CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
			Pairs: []*skeinv1.FollowPair{userPair(user, other)}, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		isVisible = res.Msg.GetKinds()[0] == explicit
		position = res.Msg.GetPosition()
	case 1:
		res, err := w.graph.FilterFollowed(ctx, connect.NewRequest(&skeinv1.FilterFollowedRequest{
			ViewerId: user, UserIds: []string{other}, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		isVisible = len(res.Msg.GetIndexes()) == 1
		position = res.Msg.GetPosition()
	case 2:
		res, err := w.graph.BatchGetFollowCounts(ctx, connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{
			UserIds: []string{user}, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		isVisible = res.Msg.GetUsers()[0].GetFollowingCount() == uint32(i+1)
		position = res.Msg.GetPosition()
	case 3:
		p, err := w.following(user, anyKind)(1, "", at)
		if err != nil {
			return err
		}
		isVisible = len(p.entries) == 1 && p.entries[0] == other+" explicit" && p.total == int64(i+1)
		position = p.position
	case 4:
		res, err := w.graph.BatchGetRelationships(ctx, connect.NewRequest(&skeinv1.BatchGetRelationshipsRequest{
			ViewerId: other, UserIds: []string{user}, AtLeast: at,
		}))
		if err != nil {
			return err
		}
		isVisible = res.Msg.GetRelationships()[0].GetFollowedBy() == explicit
		position = res.Msg.GetPosition()
	}

	wrote, err := events.ParsePosition(at)
	if err != nil {
		return err
	}
	read, err := events.ParsePosition(position)
	if err != nil {
		return err
	}
	if !isVisible || read.Seq < wrote.Seq {
		return fmt.Errorf("stale read: wrote at %d, read at %d, the follow is visible: %v", wrote.Seq, read.Seq, isVisible)
	}
	return nil
}

func TestAtLeastThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.publish(follow("ann", "bob"))

	future := w.log.Position(2)
	otherLog := w.log.Position(1)
	otherLog.Log[0]++
	otherEpoch := w.log.Position(1)
	otherEpoch.Epoch++

	for name, at := range map[string]string{
		"from the future":  future.String(),
		"of another log":   otherLog.String(),
		"of another epoch": otherEpoch.String(),
		"no position":      "latest",
		"cut":              future.String()[:8],
	} {
		t.Run(name, func(t *testing.T) {
			for method, list := range map[string]lister{
				"followers": w.followers("bob", anyKind),
				"boards":    w.boards("bob"),
				"mutuals":   w.mutuals("ann", "bob"),
			} {
				t.Run(method, func(t *testing.T) {
					_, err := list(1, "", at)
					wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
				})
			}
			t.Run("status", func(t *testing.T) {
				_, err := w.admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{AtLeast: at}))
				wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
			})
		})
	}
}

// TestAtLeastWaits checks that a read of a position that the store has not folded yet waits, and
// answers as soon as the store has folded the position.
func TestAtLeastWaits(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	answered := make(chan error, 1)
	go func() {
		p, err := w.followers("bob", anyKind)(1, "", at)
		if err == nil && len(p.entries) != 1 {
			err = fmt.Errorf("got %d followers, want 1", len(p.entries))
		}
		answered <- err
	}()

	// The store folds only once the call is under way, or has ended too early.
	for w.server.budgets.InFlight() == 0 && len(answered) == 0 {
		runtime.Gosched()
	}
	w.fold()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestAtLeastNotReachedInTime(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 5 * time.Millisecond })
	at := w.publish(follow("ann", "bob"))
	_, err := w.followers("bob", anyKind)(1, "", at)
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	if !detailsOf(t, err).retry {
		t.Errorf("%v: got no RetryInfo", err)
	}

	// Without a position, the read answers from the state that there is, and says how old it is.
	res, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob"}))
	if err != nil {
		t.Fatal(err)
	}
	empty := w.log.Position(0).String()
	if len(res.Msg.GetEntries()) != 0 || res.Msg.GetPosition() != empty {
		t.Fatalf("ListFollowers without a position: got %v, want no followers at %s", res.Msg, empty)
	}
	if lag := res.Header().Get(LagHeader); lag != "1" {
		t.Errorf("%s: got %q, want 1", LagHeader, lag)
	}

	// The position of the empty state can be used for a read, too.
	if _, err := w.followers("bob", anyKind)(1, "", empty); err != nil {
		t.Errorf("ListFollowers at %s: %v", empty, err)
	}
}

// TestAtLeastWithinTheCallersDeadline checks that a wait ends before the caller's own deadline, so
// that the caller gets an answer that says why.
func TestAtLeastWithinTheCallersDeadline(t *testing.T) {
	for _, c := range []struct {
		name                  string
		deadline, limit, want time.Duration
	}{
		{"a tenth before a near deadline", 300 * time.Millisecond, time.Hour, 270 * time.Millisecond},
		{"100 ms before a far deadline", time.Minute, time.Hour, time.Minute - 100*time.Millisecond},
		{"the server's limit before the deadline", time.Hour, time.Minute, time.Minute},
		{"no deadline", 0, time.Minute, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					caller, cancel = context.WithTimeout(caller, c.deadline)
					defer cancel()
				}

				begin := time.Now()
				waiting, cancel := views.BoundWait(caller, c.limit)
				defer cancel()
				<-waiting.Done()
				if took := time.Since(begin); took != c.want {
					t.Errorf("got a wait of %v, want %v", took, c.want)
				}
				if cause := context.Cause(waiting); !errors.Is(cause, apierror.ErrNotCaughtUp) {
					t.Errorf("got cause %v, want %v", cause, apierror.ErrNotCaughtUp)
				}
				if err := caller.Err(); err != nil {
					t.Errorf("the caller's context has ended with %v, want no end before the wait", err)
				}
			})
		})
	}

	// A read of a store waits no longer than that.
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
	demand, err := views.DemandOf(w.publish(follow("ann", "bob")))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.server.views.Await(nearDeadline{t.Context()}, w.store, demand); !errors.Is(err, apierror.ErrNotCaughtUp) {
		t.Errorf("Await: got %v, want %v", err, apierror.ErrNotCaughtUp)
	}
}

// nearDeadline is a context that says that its deadline is near, but never ends. So a wait that
// ends has not been ended by the context.
type nearDeadline struct{ context.Context }

func (nearDeadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Millisecond), true }

// TestLagHeader checks that reads say how old their state is.
func TestLagHeader(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
		Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if lag := res.Header().Values(LagHeader); !slices.Equal(lag, []string{"0"}) {
		t.Errorf("%s: got %q, want 0 once", LagHeader, lag)
	}

	// A large lag is formatted in a different way than the small ones.
	if got := formatLag(12345); !slices.Equal(got, []string{"12345"}) {
		t.Errorf("formatLag: got %q, want 12345", got)
	}
}

// TestStoppedProjection checks that reads of a store that was closed fail, and that the status is
// still answered.
func TestStoppedProjection(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	if _, err := w.followers("bob", anyKind)(1, "", at); err != nil {
		t.Fatal(err)
	}

	w.unfold()
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := w.followers("bob", anyKind)(1, "", "")
	wantError(t, err, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", "")
	if _, err := w.admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{})); err != nil {
		t.Errorf("GetStatus: %v", err)
	}
}
