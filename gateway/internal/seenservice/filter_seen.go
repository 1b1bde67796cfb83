package seenservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// MaxCandidates is how many items one call of FilterSeen may ask about. It is larger than the
// limits of other lists, because callers ask about everything that they might show.
const MaxCandidates = 10_000

// ValidateFilterSeen checks by hand what the rules of the proto say, because this call is frequent
// and large, and evaluating the rules is slow.
func ValidateFilterSeen(req *skeinv1.FilterSeenRequest) []apierror.Violation {
	var c request.Checker
	c.RequireAtMost("item_ids", len(req.GetItemIds()), MaxCandidates)
	c.RequireAtMost("numeric_ids", len(req.GetNumericIds()), MaxCandidates)
	c.RequirePosition(req.GetAtLeast())
	if len(c.Violations) > 0 {
		return c.Violations // before the ids, which are too many to check if a list is too long
	}

	if len(req.GetItemIds()) > 0 && len(req.GetNumericIds()) > 0 {
		c.Refuse("item_ids", "or numeric_ids must be given, not both")
	}
	if req.GetWindowMonths() < 0 {
		c.Refuse("window_months", "is %d: must be 0 or more", req.GetWindowMonths())
	}
	c.RequireID("user_id", req.GetUserId())
	c.RequireIDs("item_ids", req.GetItemIds())
	return c.Violations
}

// FilterSeen returns the indexes of the candidates that the user has not seen.
func (s *Service) FilterSeen(
	ctx context.Context, req *skeinv1.FilterSeenRequest, info *call.Info,
) (*skeinv1.FilterSeenResponse, error) {
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenSeen(ctx, info, atLeast)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	question := seen.Question{
		User:         req.GetUserId(),
		Window:       int(req.GetWindowMonths()),
		IgnoreServed: req.GetIgnoreServed(),
	}
	candidates := views.Candidates{Items: req.GetItemIds(), Numeric: req.GetNumericIds()}
	unseen, months, err := r.Unseen(question, candidates)
	if err != nil {
		return nil, err
	}

	s.metrics.Seen.Count(metrics.ByFilter, candidates.Len(), len(unseen), months)
	return &skeinv1.FilterSeenResponse{UnseenIndexes: unseen, MonthsRead: int32(months), Position: r.Position}, nil
}
