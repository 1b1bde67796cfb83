package graphservice

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateBatchGetRelationships checks the ids.
func ValidateBatchGetRelationships(c *request.Checker, req *skeinv1.BatchGetRelationshipsRequest) {
	c.RequireID("viewer_id", req.GetViewerId())
	c.RequireIDs("user_ids", req.GetUserIds())
}

// BatchGetRelationships returns how the viewer and each user are related: follows in both
// directions, blocks, mutes, and settings.
func (s *Service) BatchGetRelationships(
	ctx context.Context, req *skeinv1.BatchGetRelationshipsRequest, info *call.Info,
) (*skeinv1.BatchGetRelationshipsResponse, error) {
	r, err := s.OpenGraphAt(ctx, info, req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	defer r.Close()

	users := req.GetUserIds()
	res := &skeinv1.BatchGetRelationshipsResponse{
		Relationships: make([]*skeinv1.Relationship, len(users)), Position: r.Position,
	}

	times := call.NewTimes(len(users))
	for i, user := range users {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		rel, err := r.Relationship(req.GetViewerId(), user)
		if err != nil {
			return nil, err
		}

		res.Relationships[i] = &skeinv1.Relationship{
			UserId:     user,
			Following:  FollowKinds[rel.Following.Kind],
			FollowedBy: FollowKinds[rel.FollowedBy.Kind],
			Blocking:   rel.Blocking,
			BlockedBy:  rel.BlockedBy,
			Muting:     rel.Muting,
			Settings:   FollowSettingsOf(rel.Settings),
		}
		if rel.MuteUntil != 0 {
			res.Relationships[i].MuteUntil = timestamppb.New(rel.MuteUntil.Time())
		}
		if rel.Following.Kind != graph.None {
			res.Relationships[i].FollowTime = times.Next(rel.Following.Since)
		}
	}
	return res, nil
}
