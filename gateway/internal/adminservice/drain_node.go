package adminservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// DrainNode stops assigning partitions to a node of the cluster. With undo set, it resumes
// assigning them.
func (s *Service) DrainNode(
	ctx context.Context, req *skeinv1.DrainNodeRequest, _ *call.Info,
) (*skeinv1.DrainNodeResponse, error) {
	if s.Drain == nil {
		return nil, &operator.Refusal{
			Cause: operator.ErrNotPossible,
			Text:  "this service is no node of a cluster (--node), so it holds all partitions and cannot be drained",
		}
	}
	drain := !req.GetUndo()
	return &skeinv1.DrainNodeResponse{}, s.Drain(ctx, req.GetName(), drain)
}
