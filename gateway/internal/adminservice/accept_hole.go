package adminservice

import (
	"cmp"
	"context"
	"errors"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// AcceptLogHole records in the log that a range of envelopes is lost. Projections stop before such
// a hole, and continue after it once the hole is accepted.
func (s *Service) AcceptLogHole(
	ctx context.Context, req *skeinv1.AcceptLogHoleRequest, _ *call.Info,
) (*skeinv1.AcceptLogHoleResponse, error) {
	// Without a last sequence, only the first one is lost.
	last := cmp.Or(req.GetLastSequence(), req.GetFirstSequence())
	err := s.Log.AcceptHole(ctx, eventlog.SeqRange{From: req.GetFirstSequence(), To: last})
	if errors.Is(err, eventlog.ErrNotMissing) {
		return nil, &operator.Refusal{Cause: operator.ErrNotPossible, Text: err.Error()}
	}
	if err != nil {
		return nil, err
	}

	remaining, err := s.Log.Holes(ctx)
	return &skeinv1.AcceptLogHoleResponse{
		AcceptedHoles: holeProtos(s.Log.AcceptedHoles()), Holes: holeProtos(remaining),
	}, err
}

// ValidateAcceptLogHole checks that the sequences are a range.
func ValidateAcceptLogHole(c *request.Checker, req *skeinv1.AcceptLogHoleRequest) {
	first := req.GetFirstSequence()
	last := req.GetLastSequence()
	switch {
	case first == 0:
		c.Refuse("first_sequence", "must be the first sequence that is missing, at least 1")
	case last != 0 && last < first:
		c.Refuse("last_sequence", "is %d: must be 0, or at least first_sequence, which is %d", last, first)
	}
}
