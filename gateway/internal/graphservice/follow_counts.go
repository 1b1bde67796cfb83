package graphservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetFollowCounts checks the ids.
func ValidateBatchGetFollowCounts(c *request.Checker, req *skeinv1.BatchGetFollowCountsRequest) {
	c.RequireIDs("user_ids", req.GetUserIds())
	c.RequireBoards("boards", req.GetBoards())
}

// BatchGetFollowCounts returns the counts of the users and the counts of the boards, both in the
// order of the request.
func (s *Service) BatchGetFollowCounts(
	ctx context.Context, req *skeinv1.BatchGetFollowCountsRequest, info *call.Info,
) (*skeinv1.BatchGetFollowCountsResponse, error) {
	r, err := s.OpenGraphAt(ctx, info, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()

	res := &skeinv1.BatchGetFollowCountsResponse{Position: r.Position}
	for i, user := range req.GetUserIds() {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		c, err := r.UserCounts(user)
		if err != nil {
			return nil, err
		}
		res.Users = append(res.Users, &skeinv1.UserFollowCounts{
			UserId:                 user,
			FollowerCount:          call.Count(c.Followers + c.FollowersImplicit),
			ExplicitFollowerCount:  call.Count(c.Followers),
			ImplicitFollowerCount:  call.Count(c.FollowersImplicit),
			FollowingCount:         call.Count(c.Following + c.FollowingImplicit),
			ExplicitFollowingCount: call.Count(c.Following),
			ImplicitFollowingCount: call.Count(c.FollowingImplicit),
			BoardCount:             call.Count(c.Boards),
			FollowedBoardCount:     call.Count(c.FollowedBoards),
			ExcludedBoardCount:     call.Count(c.ExcludedBoards),
			BlockedCount:           call.Count(c.Blocked),
			MutedCount:             call.Count(c.Muted),
		})
	}

	for i, b := range req.GetBoards() {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		c, err := r.BoardCounts(b.GetOwnerId(), b.GetBoardId())
		if err != nil {
			return nil, err
		}
		res.Boards = append(res.Boards, &skeinv1.BoardFollowCounts{
			Board:                 b,
			FollowerCount:         call.Count(c.Appears),
			ExplicitFollowerCount: call.Count(c.Followers),
			ExcluderCount:         call.Count(c.Excluders),
		})
	}
	return res, nil
}
