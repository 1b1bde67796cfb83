package eventservice

import (
	"context"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The followee cap bounds how many users one may follow, explicitly and implicitly together. It looks at the graph as
// this process knows it, with the follows that the same call adds and ends. It is a guard against accounts that follow very many users,
// not an exact limit: concurrent calls may exceed it by a few, and calls to several nodes within a minute by half of what was left, for
// each node (follow_cap_cache.go). A follow of a user who is followed already, in whatever way, adds none and is always accepted. Backfills have
// happened, and are always accepted too.

// adds reports whether an event may add a followee.
func mayAddFollowee(ev *events.Event) bool {
	return !ev.Backfill && ev.Kind.BeginsFollow()
}

// ends reports whether an event ends a followee for sure. The end of a board follow may leave others.
func endsFollowee(ev *events.Event) bool {
	return !ev.Backfill && ev.Kind.EndsFollow()
}

// followees is what one call makes of one follower's followees.
type followeeChanges struct {
	user string
	// events are those of the call that add or end followees, in order.
	events   []*events.CheckedEvent
	addCount int
	// total is how many there are, and held which of the peers met are among them.
	total      int64
	isFollowed map[string]bool
}

// overLimit refuses the follows of a call that go beyond the cap.
func (s *Service) refuseFollowsOverLimit(ctx context.Context, evs []events.CheckedEvent) (refused []events.Rejection, err error) {
	limit := int64(s.Followees)
	if limit < 0 {
		return nil, nil
	}
	followers := s.followCapCache.reserve(groupByFollower(evs), time.Now())
	if len(followers) == 0 {
		return nil, nil
	}
	r, err := s.Open(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	err = views.RunUntilResolved(ctx, func() (err error) {
		refused, err = s.refuseAllOverLimit(ctx, r, followers, limit)
		return err
	}, &r.StoreView)
	if err != nil && apierror.Of(err).Reason == skeinv1.Reason_REASON_NOT_HERE {
		return nil, nil // no node can be reached that knows the followers: what cannot be checked refuses nobody
	}
	return refused, err
}

func (s *Service) refuseAllOverLimit(
	ctx context.Context, r *views.Graph, followers []*followeeChanges, limit int64,
) (refused []events.Rejection, err error) {
	for i, f := range followers {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		if f.total, err = r.Followees(f.user); err != nil {
			return nil, err
		}
		if left := limit - f.total - int64(f.addCount); left >= 0 {
			s.followCapCache.remember(f, left)
			continue // whichever of them are new
		}
		over, err := f.refuseOverLimit(r, limit)
		if err != nil {
			return nil, err
		}
		refused = append(refused, over...)
	}
	return refused, nil
}

// followersOf gathers the events that matter by follower. It leaves out followers that only end follows.
func groupByFollower(evs []events.CheckedEvent) []*followeeChanges {
	var all, adding []*followeeChanges
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
	for _, f := range all {
		if f.addCount > 0 {
			adding = append(adding, f)
		}
	}
	return adding
}

// judge goes through the events in order.
func (f *followeeChanges) refuseOverLimit(r *views.Graph, limit int64) (refused []events.Rejection, err error) {
	f.isFollowed = map[string]bool{}
	for _, ev := range f.events {
		held, known := f.isFollowed[ev.Peer]
		if !known {
			follow, err := r.UserFollow(f.user, ev.Peer)
			if err != nil {
				return nil, err
			}
			held = follow.Kind != graph.None
		}
		switch {
		case mayAddFollowee(&ev.Event) && !held && f.total >= limit:
			refused = append(refused, events.Rejection{
				Index: ev.Index, Reason: skeinv1.Reason_REASON_FOLLOWEE_LIMIT, Field: ev.Kind.String(),
				Message: fmt.Sprintf("%s is beyond the %d users whom one may follow", ev.Kind, limit),
			})
			continue
		case mayAddFollowee(&ev.Event) && !held:
			f.total++
		case endsFollowee(&ev.Event) && held:
			f.total--
		}
		f.isFollowed[ev.Peer] = mayAddFollowee(&ev.Event)
	}
	return refused, nil
}
