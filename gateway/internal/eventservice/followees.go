package eventservice

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The followee cap limits how many users a user may follow, counting explicit and implicit follows.
// It is checked against the graph as this process knows it, plus the follows that the same call
// begins and ends. It is a guard against accounts that follow very many users, and not an exact
// limit: concurrent calls may exceed it by a few follows, and calls to several nodes within a
// minute by half of what was left, for each node (follow_cap_cache.go). A follow of a user who is
// already followed, in whatever way, adds no followee and is always accepted. Backfills record what
// has happened, and are always accepted, too.

// mayAddFollowee reports whether an event may add a followee.
func mayAddFollowee(ev *events.Event) bool {
	return !ev.Backfill && ev.Kind.BeginsFollow()
}

// endsFollowee reports whether an event certainly removes a followee. The end of the follow of one
// board does not, because the user may follow other boards of the same owner.
func endsFollowee(ev *events.Event) bool {
	return !ev.Backfill && ev.Kind.EndsFollow()
}

// followeeChanges has the events of one call that change the followees of one follower.
type followeeChanges struct {
	user string
	// events are the events that may add or end followees, in the order of the call.
	events []*events.CheckedEvent
	// addCount is how many of the events may add a followee.
	addCount int
	// total is the number of followees, including the changes of the events that were judged
	// already.
	total int64
	// remaining is how many more users the follower may follow after all events of the call. It is
	// negative if the events were judged one by one.
	remaining int64
	// isFollowed says, for each user that these events have named, whether the follower follows
	// that user.
	isFollowed map[string]bool
}

// refuseFollowsOverLimit returns a rejection for each follow of a call that would exceed the cap.
func (s *Service) refuseFollowsOverLimit(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, err error) {
	limit := int64(s.MaxFollowees)
	if limit < 0 {
		return nil, nil
	}
	// Most followers are far below the cap, and then the graph is not read at all.
	followers := s.followCapCache.reserve(groupByFollower(evs), time.Now())
	if len(followers) == 0 {
		return nil, nil
	}

	r, err := s.OpenGraph(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	err = views.RunUntilResolved(ctx, func() (err error) {
		refused, err = s.refuseAllOverLimit(ctx, r, followers, limit)
		return err
	}, &r.StoreView)
	if err == nil {
		// Only now, because the totals of a run that lacks answers of other nodes are too low.
		s.followCapCache.remember(followers)
	}
	// If no node that knows the followers can be reached, the cap cannot be checked, and refuses
	// nobody.
	if err != nil && apierror.Of(err).Reason == skeinv1.Reason_REASON_NOT_HERE {
		return nil, nil
	}
	return refused, err
}

// refuseAllOverLimit looks up the followers, and returns the rejections of all of them. It may run
// several times for one call, and overwrites what it has stored in the followers before.
func (s *Service) refuseAllOverLimit(
	ctx context.Context, r *views.Graph, followers []*followeeChanges, limit int64,
) (refused []events.Rejection, err error) {
	for i, f := range followers {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		f.total, err = r.Followees(f.user)
		if err != nil {
			return nil, err
		}

		// If all of the follows fit, whether they are new or not, the events need not be judged one
		// by one.
		f.remaining = limit - f.total - int64(f.addCount)
		if f.remaining >= 0 {
			continue
		}
		rejections, err := f.refuseOverLimit(r, limit)
		if err != nil {
			return nil, err
		}
		refused = append(refused, rejections...)
	}
	return refused, nil
}

// groupByFollower groups the events that change followees by their follower. It leaves out
// followers whose events only end follows.
func groupByFollower(evs []events.CheckedEvent) []*followeeChanges {
	var all []*followeeChanges
	byUser := map[string]*followeeChanges{}
	for i := range evs {
		ev := &evs[i]
		if !mayAddFollowee(&ev.Event) && !endsFollowee(&ev.Event) {
			continue
		}
		f := byUser[ev.User]
		if f == nil {
			f = &followeeChanges{user: ev.User}
			byUser[ev.User] = f
			all = append(all, f)
		}
		f.events = append(f.events, ev)
		if mayAddFollowee(&ev.Event) {
			f.addCount++
		}
	}
	return slices.DeleteFunc(all, func(f *followeeChanges) bool { return f.addCount == 0 })
}

// refuseOverLimit judges the events in order, and returns the rejections of the follows that exceed
// the cap. A rejected follow does not count for the events after it.
func (f *followeeChanges) refuseOverLimit(r *views.Graph, limit int64) (refused []events.Rejection, err error) {
	// A run before this one may have left entries that lacked answers of other nodes.
	f.isFollowed = map[string]bool{}
	for _, ev := range f.events {
		isFollowed, isKnown := f.isFollowed[ev.Peer]
		if !isKnown {
			follow, err := r.UserFollow(f.user, ev.Peer)
			if err != nil {
				return nil, err
			}
			isFollowed = follow.Kind != graph.None
		}

		switch {
		case mayAddFollowee(&ev.Event) && !isFollowed && f.total >= limit:
			refused = append(refused, events.Rejection{
				Index: ev.Index, Reason: skeinv1.Reason_REASON_FOLLOWEE_LIMIT, Field: ev.Kind.String(),
				Message: fmt.Sprintf("%s is beyond the %d users whom one may follow", ev.Kind, limit),
			})
			continue
		case mayAddFollowee(&ev.Event) && !isFollowed:
			f.total++
		case endsFollowee(&ev.Event) && isFollowed:
			f.total--
		}
		f.isFollowed[ev.Peer] = mayAddFollowee(&ev.Event)
	}
	return refused, nil
}
