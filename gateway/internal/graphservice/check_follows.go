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

// ValidateCheckFollows checks by hand what the rules of the proto say, because this call is
// frequent and evaluating the rules is slow.
func ValidateCheckFollows(req *skeinv1.CheckFollowsRequest) []apierror.Violation {
	var c request.Checker
	c.RequireLength("pairs", len(req.GetPairs()), 1)
	c.RequirePosition(req.GetAtLeast())
	if len(c.Violations) > 0 {
		return c.Violations
	}

	// The length of the list was checked first, so the number of violations is bounded.
	for i, p := range req.GetPairs() {
		c.RequireIDAt("pairs", i, ".user_id", p.GetUserId())
		switch t := p.GetTarget().(type) {
		case *skeinv1.FollowPair_TargetUserId:
			c.RequireIDAt("pairs", i, ".target_user_id", t.TargetUserId)
		case *skeinv1.FollowPair_Board:
			c.RequireBoardAt("pairs", i, ".board", t.Board)
		default:
			c.RefuseAt("pairs", i, ".target", "must be given: target_user_id or board")
		}
	}
	return c.Violations
}

// CheckFollows returns for each pair how the user follows the other user or the board.
func (s *Service) CheckFollows(
	ctx context.Context, req *skeinv1.CheckFollowsRequest, info *call.Info,
) (*skeinv1.CheckFollowsResponse, error) {
	r, err := s.OpenGraphAt(ctx, info, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()

	res := &skeinv1.CheckFollowsResponse{
		Kinds: make([]skeinv1.FollowKind, len(req.GetPairs())), Position: r.Position,
	}
	return res, views.RunUntilResolved(ctx, func() error { return checkFollows(ctx, r, req, res) }, &r.StoreView)
}

// checkFollows sets the kinds and times in res. It may run several times for one call, and each run
// overwrites all of them.
func checkFollows(
	ctx context.Context, r *views.Graph, req *skeinv1.CheckFollowsRequest, res *skeinv1.CheckFollowsResponse,
) (err error) {
	pairs := req.GetPairs()

	// These are made anew in each run, because times hands out each timestamp only once.
	var times *call.Times
	var followTimes []skeinv1.FollowTime // one allocation for all pairs
	if req.GetIncludeTimes() {
		times = call.NewTimes(len(pairs))
		followTimes = make([]skeinv1.FollowTime, len(pairs))
		res.FollowTimes = make([]*skeinv1.FollowTime, len(pairs))
	}

	for i, p := range pairs {
		if err := call.CheckCanceled(ctx, i); err != nil {
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
			res.FollowTimes[i] = &followTimes[i]
			if f.Kind != graph.None { // otherwise the entry of the pair has no time
				followTimes[i].Time = times.Next(f.Since)
			}
		}
	}
	return nil
}

// FollowKinds has the kind of the API for each [graph.FollowKind].
var FollowKinds = [...]skeinv1.FollowKind{
	graph.None:     skeinv1.FollowKind_FOLLOW_KIND_NONE,
	graph.Explicit: skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT,
	graph.Implicit: skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT,
	graph.OnBoard:  skeinv1.FollowKind_FOLLOW_KIND_BOARD,
	graph.Excluded: skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED,
}
