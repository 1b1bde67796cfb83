package gateway

import (
	"cmp"
	"context"
	"errors"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// acceptLogHole records in the log that envelopes are lost.
func (s *Server) acceptLogHole(
	ctx context.Context, req *skeinv1.AcceptLogHoleRequest, _ *extra,
) (*skeinv1.AcceptLogHoleResponse, error) {
	hole := eventlog.SeqRange{From: req.GetFirstSequence(), To: cmp.Or(req.GetLastSequence(), req.GetFirstSequence())}
	if err := s.source.AcceptHole(ctx, hole); err != nil {
		if errors.Is(err, eventlog.ErrNotMissing) {
			return nil, &Refusal{Why: ErrNotPossible, Text: err.Error()}
		}
		return nil, err
	}
	left, err := s.source.Holes(ctx)
	return &skeinv1.AcceptLogHoleResponse{AcceptedHoles: holesOf(s.source.AcceptedHoles()), Holes: holesOf(left)}, err
}

func checkAcceptLogHole(c *request.Checker, req *skeinv1.AcceptLogHoleRequest) {
	switch first, last := req.GetFirstSequence(), req.GetLastSequence(); {
	case first == 0:
		c.Found = append(c.Found, apierror.InvalidField("first_sequence", "must be the first sequence that is missing, at least 1"))
	case last != 0 && last < first:
		c.Found = append(c.Found, apierror.InvalidField("last_sequence", "is %d: it must not be before first_sequence, %d", last, first))
	}
}
