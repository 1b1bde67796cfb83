package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func checkFollowCounts(c *request.Checker, req *skeinv1.BatchGetFollowCountsRequest) {
	c.IDs("user_ids", req.GetUserIds())
	c.Boards("boards", req.GetBoards())
}

func (s *Server) batchGetFollowCounts(
	ctx context.Context, req *skeinv1.BatchGetFollowCountsRequest, x *extra,
) (*skeinv1.BatchGetFollowCountsResponse, error) {
	r, err := s.openAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.close()
	res := &skeinv1.BatchGetFollowCountsResponse{Position: r.position}
	for _, user := range req.GetUserIds() {
		c, err := r.UserCounts(user)
		if err != nil {
			return nil, err
		}
		res.Users = append(res.Users, &skeinv1.UserFollowCounts{
			UserId:                 user,
			FollowerCount:          count32(c.Followers + c.FollowersImplicit),
			ExplicitFollowerCount:  count32(c.Followers),
			ImplicitFollowerCount:  count32(c.FollowersImplicit),
			FollowingCount:         count32(c.Following + c.FollowingImplicit),
			ExplicitFollowingCount: count32(c.Following),
			ImplicitFollowingCount: count32(c.FollowingImplicit),
			BoardCount:             count32(c.Boards),
			FollowedBoardCount:     count32(c.FollowedBoards),
			ExcludedBoardCount:     count32(c.ExcludedBoards),
			BlockedCount:           count32(c.Blocked),
			MutedCount:             count32(c.Muted),
		})
	}
	for i, b := range req.GetBoards() {
		if err := poll(ctx, i); err != nil {
			return nil, err
		}
		c, err := r.BoardCounts(b.GetOwnerId(), b.GetBoardId())
		if err != nil {
			return nil, err
		}
		res.Boards = append(res.Boards, &skeinv1.BoardFollowCounts{
			Board:                 b,
			FollowerCount:         count32(c.Appears),
			ExplicitFollowerCount: count32(c.Followers),
			ExcluderCount:         count32(c.Excluders),
		})
	}
	return res, nil
}
