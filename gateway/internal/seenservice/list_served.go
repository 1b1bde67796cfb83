package seenservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ListServed returns the items that were served to the user last, the latest first.
func (s *Service) ListServed(
	ctx context.Context, req *skeinv1.ListServedRequest, info *call.Info,
) (*skeinv1.ListServedResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenSeen(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	items, err := r.Served(req.GetUserId())
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListServedResponse{ItemIds: items, Position: r.Position}, nil
}
