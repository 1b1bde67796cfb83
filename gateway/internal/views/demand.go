package views

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Demand is a position that an answer must contain.
type Demand struct {
	Position events.Position
	// Field is where the request says so.
	Field  string
	Reason skeinv1.Reason
}

// DemandOf reads at_least. An empty one demands nothing.
func DemandOf(atLeast string) (Demand, error) {
	d := Demand{Field: "at_least", Reason: skeinv1.Reason_REASON_INVALID_POSITION}
	if atLeast == "" {
		return d, nil
	}
	pos, err := events.ParsePosition(atLeast)
	if err != nil {
		return d, d.Refused("is no position: send the position of an answer exactly as it came", err)
	}
	d.Position = pos
	return d, nil
}

func (d Demand) isEmpty() bool { return d.Position == events.Position{} }

// Refused is the error of a demand that cannot be met: its field, and what is wrong.
func (d Demand) Refused(text string, cause error) error {
	f := apierror.Invalid(apierror.Violation{Field: d.Field, Text: text, Reason: d.Reason})
	f.Cause = cause
	return f
}

// contains tells without asking the log that a view contains a position. Where it says no, the log knows better: the
// position may be of an epoch that came before.
func (s *Views) contains(v *projections.View, p events.Position) bool {
	own := s.Log.Position(v.Cursor().Seq)
	return p.Log == own.Log && p.Epoch == own.Epoch && p.Seq <= own.Seq
}

// Await waits until a store contains a position.
func (s *Views) Await(ctx context.Context, store *live.Live, d Demand) error {
	if d.isEmpty() {
		return nil
	}
	ctx, cancel := BoundWait(ctx, s.Wait)
	defer cancel()
	err := s.Log.CheckPosition(ctx, d.Position)
	if err == nil || errors.Is(err, events.ErrLogUnavailable) {
		// A log that cannot be asked at the moment is read again in a moment.
		err = store.WaitFor(ctx, d.Position.Seq)
	}
	if err != nil && errors.Is(context.Cause(ctx), apierror.ErrNotCaughtUp) {
		return apierror.ErrNotCaughtUp
	}
	if hole, ok := errors.AsType[*eventlog.HoleError](err); ok {
		return holeFailure(hole, store.Cursor().Seq, s.Log, err)
	}
	return d.PositionError(err)
}

// heldBy refuses to wait for what comes after a hole of the log.
func holeFailure(hole *eventlog.HoleError, seq uint64, log *eventlog.Log, cause error) error {
	at := log.Position(seq).String()
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_LOG_HOLE, Retry: apierror.RetryLater, Cause: cause,
		Text: fmt.Sprintf("the log has lost its sequences %d to %d, and nothing is folded across them: the state stands at %s; "+
			"reads without a position continue from there", hole.First, hole.Last, at),
		Metadata: map[string]string{"position": at},
	}
}

// PositionError says what is wrong with a position that the log does not know.
func (d Demand) PositionError(err error) error {
	switch {
	case errors.Is(err, events.ErrOtherLog):
		return d.Refused("is of another log", err)
	case errors.Is(err, events.ErrOtherEpoch):
		return d.Refused("is of another epoch of the log", err)
	case errors.Is(err, events.ErrPositionAhead):
		return d.Refused("is beyond the end of the log", err)
	}
	return err
}

// BoundWait bounds a wait. It ends a little before the caller's own deadline, so that the caller hears why.
func BoundWait(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(left/10, 100*time.Millisecond))
	}
	return context.WithTimeoutCause(ctx, limit, apierror.ErrNotCaughtUp)
}
