package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// Publish, then ask with the position that was returned: never stale, a thousand times in a row, by
// any question.
func TestReadYourOwnWrite(t *testing.T) {
	w := newWorld(t)
	const writers, times = 4, 250
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			me := fmt.Sprint("writer", n)
			for i := range times {
				if err := w.readOwnWrite(me, fmt.Sprint(i), i); err != nil {
					t.Errorf("%s, write %d: %v", me, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (w *world) readOwnWrite(me, other string, i int) error {
	ctx := context.Background()
	published, err := w.events.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{follow(me, other)}}))
	if err != nil {
		return err
	}
	at := published.Msg.GetPosition()
	seen, position := false, ""
	switch i % 5 {
	case 0:
		res, err := w.graph.CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair(me, other)}, AtLeast: at}))
		if err != nil {
			return err
		}
		seen, position = res.Msg.GetKinds()[0] == explicit, res.Msg.GetPosition()
	case 1:
		res, err := w.graph.FilterFollowed(ctx, connect.NewRequest(&skeinv1.FilterFollowedRequest{ViewerId: me, UserIds: []string{other}, AtLeast: at}))
		if err != nil {
			return err
		}
		seen, position = len(res.Msg.GetIndexes()) == 1, res.Msg.GetPosition()
	case 2:
		res, err := w.graph.BatchGetFollowCounts(ctx, connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{UserIds: []string{me}, AtLeast: at}))
		if err != nil {
			return err
		}
		seen, position = res.Msg.GetUsers()[0].GetFollowingCount() == uint32(i+1), res.Msg.GetPosition()
	case 3:
		p, err := w.following(me, anyKind)(1, "", at)
		if err != nil {
			return err
		}
		seen, position = len(p.entries) == 1 && p.entries[0] == other+" explicit" && p.total == int64(i+1), p.position
	case 4:
		res, err := w.graph.BatchGetRelationships(ctx, connect.NewRequest(&skeinv1.BatchGetRelationshipsRequest{ViewerId: other, UserIds: []string{me}, AtLeast: at}))
		if err != nil {
			return err
		}
		seen, position = res.Msg.GetRelationships()[0].GetFollowedBy() == explicit, res.Msg.GetPosition()
	}
	wrote, err := events.ParsePosition(at)
	if err != nil {
		return err
	}
	read, err := events.ParsePosition(position)
	if err != nil {
		return err
	}
	if !seen || read.Seq < wrote.Seq {
		return fmt.Errorf("stale: wrote at %d, read at %d", wrote.Seq, read.Seq)
	}
	return nil
}

func TestAtLeastThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.publish(follow("ann", "bob"))
	future, foreign, epoch := w.log.Position(2), w.log.Position(1), w.log.Position(1)
	foreign.Log[0]++
	epoch.Epoch++
	for name, at := range map[string]string{
		"from the future": future.String(), "of another log": foreign.String(), "of another epoch": epoch.String(),
		"no position": "latest", "cut": future.String()[:8],
	} {
		for kind, list := range map[string]lister{
			"followers": w.followers("bob", anyKind), "boards": w.boards("bob"), "mutuals": w.mutuals("ann", "bob"),
		} {
			_, err := list(1, "", at)
			if err == nil {
				t.Errorf("%s %s: taken", kind, name)
				continue
			}
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
		}
		_, err := w.admin.GetStatus(t.Context(), connect.NewRequest(&skeinv1.GetStatusRequest{AtLeast: at}))
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_POSITION", "at_least")
	}
}

// A read that demands what the state does not have waits, and answers as soon as it has it.
func TestAtLeastWaits(t *testing.T) {
	w := newWorld(t, asleep)
	at := w.publish(follow("ann", "bob"))
	answered := make(chan error, 1)
	go func() {
		p, err := w.followers("bob", anyKind)(1, "", at)
		if err == nil && len(p.entries) != 1 {
			err = errors.New("answered from a state that does not have it")
		}
		answered <- err
	}()
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
		t.Error("no RetryInfo")
	}
	// Without the demand it answers from what there is, and says how old that is.
	res, err := w.graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: "bob"}))
	if err != nil || len(res.Msg.GetEntries()) != 0 || res.Msg.GetPosition() != w.log.Position(0).String() {
		t.Fatal(res, err)
	}
	if lag := res.Header().Get(LagHeader); lag != "1" {
		t.Errorf("%s: %q", LagHeader, lag)
	}
	// The position of the empty state is one that can be asked for.
	if _, err := w.followers("bob", anyKind)(1, "", res.Msg.GetPosition()); err != nil {
		t.Error(err)
	}
}

// The caller's own deadline counts, and a wait ends before it passes, so that the caller hears why.
func TestAtLeastWithinTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ deadline, limit, want time.Duration }{
			{300 * time.Millisecond, time.Hour, 270 * time.Millisecond},
			{time.Minute, time.Hour, time.Minute - 100*time.Millisecond},
			{time.Hour, time.Minute, time.Minute},
			{0, time.Minute, time.Minute},
		} {
			caller := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				caller, cancel = context.WithTimeout(caller, c.deadline)
				defer cancel()
			}
			began := time.Now()
			waiting, cancel := views.BoundWait(caller, c.limit)
			<-waiting.Done()
			if took := time.Since(began); took != c.want || !errors.Is(context.Cause(waiting), apierror.ErrNotCaughtUp) || caller.Err() != nil {
				t.Errorf("of %v and %v it waits %v: %v, the caller's %v", c.deadline, c.limit, took, context.Cause(waiting), caller.Err())
			}
			cancel()
		}
	})
	// A read waits no longer than that.
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = time.Hour })
	least, err := views.DemandOf(w.publish(follow("ann", "bob")))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.server.views.Await(hurried{t.Context()}, w.store, least); !errors.Is(err, apierror.ErrNotCaughtUp) {
		t.Error(err)
	}
}

// hurried is a context that is about to reach its deadline, and never does.
type hurried struct{ context.Context }

func (hurried) Deadline() (time.Time, bool) { return time.Now().Add(time.Millisecond), true }

// Reads say how old their state is.
func TestLagHeader(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res, err := w.graph.CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{userPair("ann", "bob")}, AtLeast: at}))
	if err != nil {
		t.Fatal(err)
	}
	if lag := res.Header().Values(LagHeader); len(lag) != 1 || lag[0] != "0" {
		t.Errorf("%s: %q", LagHeader, lag)
	}
	if got := formatLag(12345); got[0] != "12345" {
		t.Error(got)
	}
}

// A failed projection answers nothing, and what is asked of it says so.
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
		t.Errorf("status: %v", err)
	}
}
