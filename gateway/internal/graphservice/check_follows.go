package graphservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateCheckFollows says by hand what the rules of the proto say, because this call is frequent.
func ValidateCheckFollows(req *skeinv1.CheckFollowsRequest) []apierror.Violation {
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

// CheckFollows returns how each pair follows.
func (s *Service) CheckFollows(
	ctx context.Context, req *skeinv1.CheckFollowsRequest, x *call.Info,
) (*skeinv1.CheckFollowsResponse, error) {
	r, err := s.OpenAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(req.GetPairs())), Position: r.Position}
	return res, views.RunUntilResolved(ctx, func() error { return checkFollows(ctx, r, req, res) }, &r.StoreView)
}

func checkFollows(ctx context.Context, r *views.Graph, req *skeinv1.CheckFollowsRequest, res *skeinv1.CheckFollowsResponse) (err error) {
	pairs := req.GetPairs()
	var times *call.Times
	var made []skeinv1.FollowTime
	if req.GetIncludeTimes() {
		times, made = call.NewTimes(len(pairs)), make([]skeinv1.FollowTime, len(pairs))
		res.FollowTimes = make([]*skeinv1.FollowTime, len(pairs))
	}
	for i, p := range pairs {
		if err := call.Poll(ctx, i); err != nil {
			return err
		}
		var f graph.Follow
		if b := p.GetBoard(); b != nil {
			f, err = r.BoardFollow(p.GetUserId(), b.GetOwnerId(), b.GetBoardId())
		} else {
			f, err = r.UserFollow(p.GetUserId(), p.GetTargetUserId())
		}
		if err != nil {
			return err
		}
		res.Kinds[i] = FollowKinds[f.Kind]
		if times != nil {
			res.FollowTimes[i] = &made[i]
			if f.Kind != graph.None {
				made[i].Time = times.Of(f.Since)
			}
		}
	}
	return nil
}

// FollowKinds are the kinds of follows as the API names them.
var FollowKinds = [...]skeinv1.FollowKind{
	graph.None:     skeinv1.FollowKind_FOLLOW_KIND_NONE,
	graph.Explicit: skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT,
	graph.Implicit: skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT,
	graph.OnBoard:  skeinv1.FollowKind_FOLLOW_KIND_BOARD,
	graph.Excluded: skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED,
}
