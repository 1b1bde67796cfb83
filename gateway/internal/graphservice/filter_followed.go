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

// ValidateFilterFollowed says by hand what the rules of the proto say, because this call is frequent.
func ValidateFilterFollowed(req *skeinv1.FilterFollowedRequest) []apierror.Violation {
	var c request.Checker
	users, boards := len(req.GetUserIds()), len(req.GetBoards())
	c.Length("user_ids", users, 0)
	c.Length("boards", boards, 0)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	switch d := req.GetDirection(); {
	case (users == 0) == (boards == 0):
		c.Found = append(c.Found, apierror.InvalidField("user_ids", "or boards must be given, not both and not neither"))
	case d < 0 || d > skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		c.Found = append(c.Found, apierror.InvalidField("direction", "%s", request.EnumWantedOf(req, "direction")))
	case boards > 0 && d > skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING:
		c.Found = append(c.Found, apierror.InvalidField("direction", "must be FOLLOW_DIRECTION_FOLLOWING for boards: boards follow nobody"))
	}
	c.ID("viewer_id", req.GetViewerId())
	c.IDs("user_ids", req.GetUserIds())
	c.Boards("boards", req.GetBoards())
	return c.Found
}

// FilterFollowed returns the indexes of the candidates that are in a relation to the viewer.
func (s *Service) FilterFollowed(
	ctx context.Context, req *skeinv1.FilterFollowedRequest, x *call.Info,
) (*skeinv1.FilterFollowedResponse, error) {
	r, err := s.OpenAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	res := &skeinv1.FilterFollowedResponse{Position: r.Position}
	return res, views.RunUntilResolved(ctx, func() (err error) {
		res.Indexes, err = filterFollowed(ctx, r, req)
		return err
	}, &r.StoreView)
}

func filterFollowed(ctx context.Context, r *views.Graph, req *skeinv1.FilterFollowedRequest) (indexes []uint32, err error) {
	users, boards := req.GetUserIds(), req.GetBoards()
	indexes = make([]uint32, 0, max(len(users), len(boards)))
	follows := make([]graph.Follow, len(users))
	if req.GetDirection() != skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY {
		if err := r.UserFollows(req.GetViewerId(), users, follows); err != nil {
			return nil, err
		}
	}
	for i := range max(len(users), len(boards)) {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		var match bool
		if len(boards) > 0 {
			var f graph.Follow
			f, err = r.BoardFollow(req.GetViewerId(), boards[i].GetOwnerId(), boards[i].GetBoardId())
			match = f.Kind == graph.Explicit || f.Kind == graph.OnBoard
		} else {
			match, err = related(r, req, i, follows[i])
		}
		if err != nil {
			return nil, err
		}
		if match {
			indexes = append(indexes, uint32(i))
		}
	}
	return indexes, nil
}

// related reports whether a candidate is in the relation asked for, given how the viewer follows it. It reads the
// other direction only where the answer hangs on it.
func related(r *views.Graph, req *skeinv1.FilterFollowedRequest, i int, following graph.Follow) (bool, error) {
	switch req.GetDirection() {
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY:
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		if following.Kind == graph.None {
			return false, nil
		}
	default:
		return following.Kind != graph.None, nil
	}
	f, err := r.FollowedBy(req.GetViewerId(), req.GetUserIds()[i])
	return f.Kind != graph.None, err
}
