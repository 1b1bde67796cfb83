package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// checkFilterFollowed says by hand what the rules of the proto say, because this call is hot.
func checkFilterFollowed(req *skeinv1.FilterFollowedRequest) []apierror.Violation {
	var c checker
	users, boards := len(req.GetUserIds()), len(req.GetBoards())
	c.length("user_ids", users, 0)
	c.length("boards", boards, 0)
	c.atLeast(req.GetAtLeast())
	if len(c.found) > 0 {
		return c.found
	}
	switch d := req.GetDirection(); {
	case (users == 0) == (boards == 0):
		c.found = append(c.found, apierror.InvalidField("user_ids", "or boards must be given, not both and not neither"))
	case d < 0 || d > skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		c.found = append(c.found, apierror.InvalidField("direction", "%s", enumWantedOf(req, "direction")))
	case boards > 0 && d > skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING:
		c.found = append(c.found, apierror.InvalidField("direction", "must be FOLLOW_DIRECTION_FOLLOWING for boards: boards follow nobody"))
	}
	c.id("viewer_id", req.GetViewerId())
	c.ids("user_ids", req.GetUserIds())
	c.boards("boards", req.GetBoards())
	return c.found
}

func (s *Server) filterFollowed(
	ctx context.Context, req *skeinv1.FilterFollowedRequest, x *extra,
) (*skeinv1.FilterFollowedResponse, error) {
	r, err := s.openAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.close()
	users, boards := req.GetUserIds(), req.GetBoards()
	res := &skeinv1.FilterFollowedResponse{
		Indexes: make([]uint32, 0, max(len(users), len(boards))), Position: r.position,
	}
	follows := make([]graph.Follow, len(users))
	if req.GetDirection() != skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY {
		if err := r.Users(req.GetViewerId(), users, follows); err != nil {
			return nil, err
		}
	}
	for i := range max(len(users), len(boards)) {
		if err := poll(ctx, i); err != nil {
			return nil, err
		}
		var match bool
		if len(boards) > 0 {
			var f graph.Follow
			f, err = r.Board(req.GetViewerId(), boards[i].GetOwnerId(), boards[i].GetBoardId())
			match = f.Kind == graph.Explicit || f.Kind == graph.OnBoard
		} else {
			match, err = r.related(req, i, follows[i])
		}
		if err != nil {
			return nil, err
		}
		if match {
			res.Indexes = append(res.Indexes, uint32(i))
		}
	}
	return res, nil
}

// related reports whether a candidate is in the relation asked for, given how the viewer follows it. It reads the
// other direction only where the answer hangs on it.
func (r *reading) related(req *skeinv1.FilterFollowedRequest, i int, following graph.Follow) (bool, error) {
	switch req.GetDirection() {
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY:
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		if following.Kind == graph.None {
			return false, nil
		}
	default:
		return following.Kind != graph.None, nil
	}
	f, err := r.User(req.GetUserIds()[i], req.GetViewerId())
	return f.Kind != graph.None, err
}
