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

// ValidateFilterFollowed checks by hand what the rules of the proto say, because this call is
// frequent and evaluating the rules is slow.
func ValidateFilterFollowed(req *skeinv1.FilterFollowedRequest) []apierror.Violation {
	var c request.Checker
	users := len(req.GetUserIds())
	boards := len(req.GetBoards())
	c.RequireLength("user_ids", users, 0)
	c.RequireLength("boards", boards, 0)
	c.RequirePosition(req.GetAtLeast())
	if len(c.Violations) > 0 {
		return c.Violations // before the ids, which may be too many to check
	}

	switch d := req.GetDirection(); {
	case (users == 0) == (boards == 0):
		c.Refuse("user_ids", "or boards must be given, and not both")
	case d < 0 || d > skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		c.Refuse("direction", "%s", request.EnumRequirement(req, "direction"))
	case boards > 0 && d > skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING:
		c.Refuse("direction", "must be FOLLOW_DIRECTION_FOLLOWING for boards: boards follow nobody")
	}

	c.RequireID("viewer_id", req.GetViewerId())
	c.RequireIDs("user_ids", req.GetUserIds())
	c.RequireBoards("boards", req.GetBoards())
	return c.Violations
}

// FilterFollowed returns the indexes of the users or boards that the viewer follows. Depending on
// the direction, it instead returns the indexes of the users who follow the viewer, or of those
// whom the viewer follows and who follow the viewer.
func (s *Service) FilterFollowed(
	ctx context.Context, req *skeinv1.FilterFollowedRequest, info *call.Info,
) (*skeinv1.FilterFollowedResponse, error) {
	r, err := s.OpenGraphAt(ctx, info, req.GetAtLeast())
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

// filterFollowed returns the indexes of the answer. It may run several times for one call.
func filterFollowed(
	ctx context.Context, r *views.Graph, req *skeinv1.FilterFollowedRequest,
) (indexes []uint32, err error) {
	viewer := req.GetViewerId()
	users := req.GetUserIds()
	boards := req.GetBoards()
	indexes = make([]uint32, 0, max(len(users), len(boards)))

	// One query finds whom of the users the viewer follows. Who follows the viewer needs a query
	// per user (see matchesDirection).
	follows := make([]graph.Follow, len(users))
	if req.GetDirection() != skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY {
		if err := r.UserFollows(viewer, users, follows); err != nil {
			return nil, err
		}
	}

	for i := range max(len(users), len(boards)) {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}

		var matches bool
		if len(boards) > 0 {
			// A board matches if the viewer follows its owner explicitly, or the board itself, and
			// does not exclude it.
			var f graph.Follow
			f, err = r.BoardFollow(viewer, boards[i].GetOwnerId(), boards[i].GetBoardId())
			matches = f.Kind == graph.Explicit || f.Kind == graph.OnBoard
		} else {
			matches, err = matchesDirection(r, req.GetDirection(), viewer, users[i], follows[i])
		}
		if err != nil {
			return nil, err
		}
		if matches {
			indexes = append(indexes, uint32(i))
		}
	}
	return indexes, nil
}

// matchesDirection reports whether the viewer and the user are related as the direction says.
// following is how the viewer follows the user; it is not set for FOLLOWED_BY.
func matchesDirection(
	r *views.Graph, direction skeinv1.FollowDirection, viewer, user string, following graph.Follow,
) (bool, error) {
	switch direction {
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY:
	case skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL:
		if following.Kind == graph.None {
			return false, nil
		}
	default: // FOLLOWING, or unspecified, which means the same
		return following.Kind != graph.None, nil
	}

	// This comes last, because it costs a query, and only the two other directions depend on it.
	followedBy, err := r.FollowedBy(viewer, user)
	return followedBy.Kind != graph.None, err
}
