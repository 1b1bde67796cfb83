package gateway

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// checkCheckFollows says by hand what the rules of the proto say, because this call is hot.
func checkCheckFollows(req *skeinv1.CheckFollowsRequest) []apierror.Violation {
	var c request.Checker
	c.Length("pairs", len(req.GetPairs()), 1)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	for i, p := range req.GetPairs() {
		c.IDAt("pairs", i, ".user_id", p.GetUserId())
		switch t := p.GetTarget().(type) {
		case *skeinv1.FollowPair_TargetUserId:
			c.IDAt("pairs", i, ".target_user_id", t.TargetUserId)
		case *skeinv1.FollowPair_Board:
			c.BoardAt("pairs", i, ".board", t.Board)
		default:
			c.FoundAt("pairs", i, ".target", "must be given: target_user_id or board")
		}
	}
	return c.Found
}

func (s *Server) checkFollows(
	ctx context.Context, req *skeinv1.CheckFollowsRequest, x *extra,
) (*skeinv1.CheckFollowsResponse, error) {
	r, err := s.openAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.close()
	pairs := req.GetPairs()
	res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(pairs)), Position: r.position}
	var times *stamps
	var made []skeinv1.FollowTime
	if req.GetIncludeTimes() {
		times, made = newStamps(len(pairs)), make([]skeinv1.FollowTime, len(pairs))
		res.FollowTimes = make([]*skeinv1.FollowTime, len(pairs))
	}
	for i, p := range pairs {
		if err := poll(ctx, i); err != nil {
			return nil, err
		}
		var f graph.Follow
		if b := p.GetBoard(); b != nil {
			f, err = r.Board(p.GetUserId(), b.GetOwnerId(), b.GetBoardId())
		} else {
			f, err = r.User(p.GetUserId(), p.GetTargetUserId())
		}
		if err != nil {
			return nil, err
		}
		res.Kinds[i] = followKinds[f.Kind]
		if times != nil {
			res.FollowTimes[i] = &made[i]
			if f.Kind != graph.None {
				made[i].Time = times.of(f.Since)
			}
		}
	}
	return res, nil
}

var followKinds = [...]skeinv1.FollowKind{
	graph.None:     skeinv1.FollowKind_FOLLOW_KIND_NONE,
	graph.Explicit: skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT,
	graph.Implicit: skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT,
	graph.OnBoard:  skeinv1.FollowKind_FOLLOW_KIND_BOARD,
	graph.Excluded: skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED,
}

// poll looks now and then whether the caller still waits.
func poll(ctx context.Context, i int) error {
	if i%64 == 63 {
		return ctx.Err()
	}
	return nil
}

// stamps makes timestamps, all in one allocation.
type stamps struct{ free []timestamppb.Timestamp }

func newStamps(n int) *stamps { return &stamps{make([]timestamppb.Timestamp, n)} }

// of returns the next timestamp. There are as many as were asked for.
func (s *stamps) of(at events.Micros) *timestamppb.Timestamp {
	t := &s.free[0]
	s.free = s.free[1:]
	t.Seconds, t.Nanos = int64(at)/1e6, int32(int64(at)%1e6)*1e3
	return t
}
