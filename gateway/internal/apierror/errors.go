package apierror

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Errors of the server itself.
var (
	// ErrDiskFull means that the disk is too full for more events. It is wrapped in an error with
	// figures.
	ErrDiskFull = errors.New("gateway: the disk is nearly full")
	// ErrNotCaughtUp means that a wait for a position has ended before the position was reached.
	ErrNotCaughtUp = errors.New("the state that contains the position was not reached in time")
	// ErrStopping means that the process is stopping. It ends streams, and refuses new operations.
	ErrStopping = errors.New("the service is stopping; continue with another one")
)

// errorMapping says how the API returns an error of another package.
type errorMapping struct {
	err    error
	code   connect.Code
	reason skeinv1.Reason
	// retry is the time after which a retry may succeed; 0 means that there is no promise.
	retry time.Duration
	// text is for people. If it is empty, the text of err is used.
	text string
}

// errorMappings maps the errors of other packages. The first mapping that matches counts.
//
// Errors of Publish with resource_exhausted or unavailable say that no event was accepted, so any
// retry is safe. deadline_exceeded says that events were accepted, or may have been, as gRPC
// defines that code. Clients do not retry it by themselves: without event ids, a retry would append
// the events a second time.
var errorMappings = []errorMapping{
	{ErrNotCaughtUp, connect.CodeUnavailable, skeinv1.Reason_REASON_NOT_CAUGHT_UP, RetryAtOnce, ""},
	{ErrStopping, connect.CodeUnavailable, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE, RetryAtOnce, ""},
	{
		events.ErrOutcomeUnknown, connect.CodeDeadlineExceeded, skeinv1.Reason_REASON_OUTCOME_UNKNOWN, RetrySoon,
		"the log did not say in time whether it took the events: retry with the same event ids",
	},
	{
		events.ErrOverloaded, connect.CodeResourceExhausted, skeinv1.Reason_REASON_OVERLOADED, RetrySoon,
		"more is waiting to be published than the service allows; nothing was taken",
	},
	{
		events.ErrLogFull, connect.CodeResourceExhausted, skeinv1.Reason_REASON_DISK_FULL, RetryLater,
		"the log is full; nothing was taken",
	},
	{
		ErrDiskFull, connect.CodeResourceExhausted, skeinv1.Reason_REASON_DISK_FULL, RetryLater,
		"the disk of the service is nearly full; nothing was taken",
	},
	{
		events.ErrRefused, connect.CodeInternal, skeinv1.Reason_REASON_LOG_UNAVAILABLE, 0,
		"the log refused the events for a reason that no retry will change; nothing was taken",
	},
	{
		events.ErrHole, connect.CodeUnavailable, skeinv1.Reason_REASON_LOG_HOLE, RetryLater,
		"the log has lost envelopes, and what is demanded comes after them; reads without a position continue",
	},
	{
		events.ErrLogUnavailable, connect.CodeUnavailable, skeinv1.Reason_REASON_LOG_UNAVAILABLE, RetrySoon,
		"the log cannot be reached",
	},
	{
		events.ErrClosed, connect.CodeUnavailable, skeinv1.Reason_REASON_LOG_UNAVAILABLE, RetrySoon,
		"the log is closed",
	},
	{
		projections.ErrNotReady, connect.CodeUnavailable, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE, RetrySoon,
		"the projection that answers this is not ready yet",
	},
	{
		projections.ErrStopped, connect.CodeUnavailable, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE, 0,
		"the projection that answers this has stopped; the log of the service says why",
	},
	{
		operator.ErrUnknownOperation, connect.CodeNotFound, skeinv1.Reason_REASON_UNKNOWN_OPERATION, 0,
		"there is no such operation; the service may have forgotten it, if it ended long ago",
	},
	// The text of the next four is that of the operator's refusal.
	{operator.ErrKindUnavailable, connect.CodeUnimplemented, skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE, 0, ""},
	{operator.ErrConflict, connect.CodeFailedPrecondition, skeinv1.Reason_REASON_OPERATION_CONFLICT, 0, ""},
	{operator.ErrNotPossible, connect.CodeFailedPrecondition, skeinv1.Reason_REASON_OPERATION_REFUSED, 0, ""},
	{operator.ErrUnknownNode, connect.CodeNotFound, skeinv1.Reason_REASON_UNKNOWN_NODE, 0, ""},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded, 0, 0, "the deadline of the call has passed"},
	{context.Canceled, connect.CodeCanceled, 0, 0, "the call was cancelled"},
}

// Of returns an error as the client gets it. An error that is in no mapping becomes an internal
// error, whose own text goes only to the log.
func Of(err error) *Failure {
	// A Failure counts before its cause, which may be in the table, too.
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	for _, m := range errorMappings {
		if !errors.Is(err, m.err) {
			continue
		}
		text := m.text
		if text == "" {
			text = m.err.Error()
		}
		f := &Failure{Code: m.code, Reason: m.reason, Text: text, Retry: m.retry, Cause: err}
		if r, ok := errors.AsType[*operator.Refusal](err); ok {
			applyRefusal(f, r)
		}
		return f
	}
	if c, ok := errors.AsType[*connect.Error](err); ok {
		// Connect returns these for its connection: the client has gone away, or does not read the
		// answer.
		return &Failure{Code: c.Code(), Text: c.Message(), Cause: err}
	}
	return &Failure{Code: connect.CodeInternal, Text: "internal error: the log of the service says more", Cause: err}
}

// applyRefusal sets the text of an operator's refusal, and the id of the operation that is in the
// way.
func applyRefusal(f *Failure, r *operator.Refusal) {
	f.Text = r.Text
	if r.Operation != "" {
		f.Metadata = map[string]string{"operation_id": r.Operation}
	}
}
