package adminservice

import (
	"cmp"
	"context"
	"errors"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// AcceptLogHole records in the log that envelopes are lost.
func (s *Service) AcceptLogHole(
	ctx context.Context, req *skeinv1.AcceptLogHoleRequest, _ *call.Info,
) (*skeinv1.AcceptLogHoleResponse, error) {
	hole := eventlog.SeqRange{From: req.GetFirstSequence(), To: cmp.Or(req.GetLastSequence(), req.GetFirstSequence())}
	if err := s.Log.AcceptHole(ctx, hole); err != nil {
		if errors.Is(err, eventlog.ErrNotMissing) {
			return nil, &operator.Refusal{Cause: operator.ErrNotPossible, Text: err.Error()}
		}
		return nil, err
	}
	left, err := s.Log.Holes(ctx)
	return &skeinv1.AcceptLogHoleResponse{AcceptedHoles: holesOf(s.Log.AcceptedHoles()), Holes: holesOf(left)}, err
}

// ValidateAcceptLogHole looks at the range.
func ValidateAcceptLogHole(c *request.Checker, req *skeinv1.AcceptLogHoleRequest) {
	switch first, last := req.GetFirstSequence(), req.GetLastSequence(); {
	case first == 0:
		c.Found = append(c.Found, apierror.InvalidField("first_sequence", "must be the first sequence that is missing, at least 1"))
	case last != 0 && last < first:
		c.Found = append(c.Found, apierror.InvalidField("last_sequence", "is %d: it must not be before first_sequence, %d", last, first))
	}
}
