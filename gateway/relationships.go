package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func checkRelationships(c *request.Checker, req *skeinv1.BatchGetRelationshipsRequest) {
	c.ID("viewer_id", req.GetViewerId())
	c.IDs("user_ids", req.GetUserIds())
}

func (s *Server) batchGetRelationships(
	ctx context.Context, req *skeinv1.BatchGetRelationshipsRequest, x *extra,
) (*skeinv1.BatchGetRelationshipsResponse, error) {
	r, err := s.openAt(ctx, x, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.close()
	users := req.GetUserIds()
	res := &skeinv1.BatchGetRelationshipsResponse{
		Relationships: make([]*skeinv1.Relationship, len(users)), Position: r.position,
	}
	times := newStamps(len(users))
	for i, user := range users {
		if err := poll(ctx, i); err != nil {
			return nil, err
		}
		rel, err := r.Relationship(req.GetViewerId(), user)
		if err != nil {
			return nil, err
		}
		res.Relationships[i] = &skeinv1.Relationship{
			UserId:     user,
			Following:  followKinds[rel.Following.Kind],
			FollowedBy: followKinds[rel.FollowedBy.Kind],
			Blocking:   rel.Blocking, BlockedBy: rel.BlockedBy, Muting: rel.Muting,
		}
		if rel.Following.Kind != graph.None {
			res.Relationships[i].FollowTime = times.of(rel.Following.Since)
		}
	}
	return res, nil
}
