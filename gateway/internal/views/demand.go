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
	// Field is the field of the request that demands it, and Reason the reason of errors about it.
	Field  string
	Reason skeinv1.Reason
}

// DemandOf returns the demand of the field at_least. An empty field demands nothing.
func DemandOf(atLeast string) (Demand, error) {
	d := Demand{Field: "at_least", Reason: skeinv1.Reason_REASON_INVALID_POSITION}
	if atLeast == "" {
		return d, nil
	}
	pos, err := events.ParsePosition(atLeast)
	if err != nil {
		return d, d.InvalidError("is no position: send the position of an answer exactly as it came", err)
	}
	d.Position = pos
	return d, nil
}

func (d Demand) isEmpty() bool { return d.Position == events.Position{} }

// InvalidError returns the error of a demand that cannot be met. text says what is wrong, in words
// that follow the name of the field.
func (d Demand) InvalidError(text string, cause error) error {
	f := apierror.Invalid(apierror.Violation{Field: d.Field, Text: text, Reason: d.Reason})
	f.Cause = cause
	return f
}

// contains reports whether a view certainly contains a position. It does not ask the log. If it
// returns false, the view may still contain the position, because only the log knows the positions
// of earlier epochs.
func (s *Views) contains(v *projections.View, p events.Position) bool {
	viewPosition := s.Log.Position(v.Cursor().Seq)
	return p.Log == viewPosition.Log && p.Epoch == viewPosition.Epoch && p.Seq <= viewPosition.Seq
}

// Await waits until a store contains the position of a demand. It waits at most for [Views.Wait],
// and a little less than the deadline of ctx.
func (s *Views) Await(ctx context.Context, store *live.Live, d Demand) error {
	if d.isEmpty() {
		return nil
	}
	ctx, cancel := BoundWait(ctx, s.Wait)
	defer cancel()

	err := s.Log.CheckPosition(ctx, d.Position)
	if err == nil || errors.Is(err, events.ErrLogUnavailable) {
		// If the log cannot be asked now, the position is taken as valid: the store reaches it once
		// the log can be read again.
		err = store.WaitFor(ctx, d.Position.Seq)
	}

	// WaitFor returns the error of ctx, which does not tell the limit of the wait from the deadline
	// of the caller.
	if err != nil && errors.Is(context.Cause(ctx), apierror.ErrNotCaughtUp) {
		return apierror.ErrNotCaughtUp
	}
	if hole, ok := errors.AsType[*eventlog.HoleError](err); ok {
		return holeFailure(hole, store.Cursor().Seq, s.Log, err)
	}
	return d.PositionError(err)
}

// holeFailure returns the error of a demand for a position behind a hole of the log. seq is the
// sequence at which the store stands.
func holeFailure(hole *eventlog.HoleError, seq uint64, log *eventlog.Log, cause error) error {
	position := log.Position(seq).String()
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_LOG_HOLE, Retry: apierror.RetryLater, Cause: cause,
		Text: fmt.Sprintf("the log has lost its sequences %d to %d, and nothing is folded across them: the state stands at %s; "+
			"reads without a position continue from there", hole.First, hole.Last, position),
		Metadata: map[string]string{"position": position},
	}
}

// PositionError turns the error of a position that the log does not accept into one about the field
// of the demand. It returns other errors unchanged.
func (d Demand) PositionError(err error) error {
	switch {
	case errors.Is(err, events.ErrOtherLog):
		return d.InvalidError("is of another log", err)
	case errors.Is(err, events.ErrOtherEpoch):
		return d.InvalidError("is of another epoch of the log", err)
	case errors.Is(err, events.ErrPositionAhead):
		return d.InvalidError("is beyond the end of the log", err)
	}
	return err
}

// BoundWait returns a context for a wait, which ends after limit with [apierror.ErrNotCaughtUp]. It
// ends a little before the caller's own deadline, so that the caller receives the reason.
func BoundWait(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		timeForError := min(left/10, 100*time.Millisecond)
		limit = min(limit, left-timeForError)
	}
	return context.WithTimeoutCause(ctx, limit, apierror.ErrNotCaughtUp)
}
