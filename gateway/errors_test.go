package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/adminservice"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// details are the details of an error as a client sees them.
type details struct {
	code   connect.Code
	reason string
	fields []*errdetails.BadRequest_FieldViolation
	retry  bool
	info   *errdetails.ErrorInfo
}

func detailsOf(t testing.TB, err error) (d details) {
	t.Helper()
	var c *connect.Error
	if !errors.As(err, &c) {
		t.Fatalf("%v is no error of the service", err)
	}
	d.code = c.Code()
	for _, detail := range c.Details() {
		v, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch v := v.(type) {
		case *errdetails.ErrorInfo:
			if v.GetDomain() != "skein" {
				t.Errorf("domain %q", v.GetDomain())
			}
			d.reason, d.info = v.GetReason(), v
		case *errdetails.BadRequest:
			d.fields = v.GetFieldViolations()
		case *errdetails.RetryInfo:
			d.retry = v.GetRetryDelay().AsDuration() > 0
		}
	}
	return d
}

// wantError demands the code, the reason and the first field at fault; empty means none.
func wantError(t testing.TB, err error, code connect.Code, reason, field string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v %s %s", code, reason, field)
		return
	}
	d := detailsOf(t, err)
	got := ""
	if len(d.fields) > 0 {
		got = d.fields[0].GetField()
	}
	if d.code != code || d.reason != reason || got != field {
		t.Errorf("%v: got %v %q at %q, want %v %q at %q", err, d.code, d.reason, got, code, reason, field)
	}
}

func TestErrorsAreMappedToCodes(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   connect.Code
		reason string
		retry  bool
	}{
		{events.ErrOutcomeUnknown, connect.CodeDeadlineExceeded, "OUTCOME_UNKNOWN", true},
		{fmt.Errorf("%w: %w", events.ErrOutcomeUnknown, context.Canceled), connect.CodeDeadlineExceeded, "OUTCOME_UNKNOWN", true},
		{events.ErrOverloaded, connect.CodeResourceExhausted, "OVERLOADED", true},
		{events.ErrLogFull, connect.CodeResourceExhausted, "DISK_FULL", true},
		{apierror.ErrDiskFull, connect.CodeResourceExhausted, "DISK_FULL", true},
		{events.ErrLogUnavailable, connect.CodeUnavailable, "LOG_UNAVAILABLE", true},
		{events.ErrClosed, connect.CodeUnavailable, "LOG_UNAVAILABLE", true},
		{events.ErrRefused, connect.CodeInternal, "LOG_UNAVAILABLE", false},
		{projections.ErrNotReady, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", true},
		{projections.ErrStopped, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", false},
		{projections.ErrClosed, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", false},
		{apierror.ErrNotCaughtUp, connect.CodeUnavailable, "NOT_CAUGHT_UP", true},
		{apierror.ErrStopping, connect.CodeUnavailable, "PROJECTION_UNAVAILABLE", true},
		{operator.ErrUnknownOperation, connect.CodeNotFound, "UNKNOWN_OPERATION", false},
		{&operator.Refusal{Cause: operator.ErrKindUnavailable}, connect.CodeUnimplemented, "PROJECTION_UNAVAILABLE", false},
		{&operator.Refusal{Cause: operator.ErrConflict}, connect.CodeFailedPrecondition, "OPERATION_CONFLICT", false},
		{&operator.Refusal{Cause: operator.ErrNotPossible}, connect.CodeFailedPrecondition, "OPERATION_REFUSED", false},
		{context.Canceled, connect.CodeCanceled, "", false},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded, "", false},
		{connect.NewError(connect.CodeUnknown, errors.New("broken pipe")), connect.CodeUnknown, "", false},
		{errors.New("a row that cannot be"), connect.CodeInternal, "", false},
		{apierror.Invalid(apierror.InvalidField("a", "b")), connect.CodeInvalidArgument, "INVALID_FIELD", false},
	} {
		d := detailsOf(t, apierror.Of(fmt.Errorf("wrapped: %w", c.err)).ConnectError())
		if d.code != c.code || d.reason != c.reason || d.retry != c.retry {
			t.Errorf("%v: %+v", c.err, d)
		}
	}
}

// The client does not see the text of an internal error.
func TestInternalErrorsAreNotShown(t *testing.T) {
	err := apierror.Of(errors.New("key 0a0b of user ann")).ConnectError()
	if got := err.Message(); got != "internal error: the log of the service says more" {
		t.Error(got)
	}
}

// Every reason is sent by some error, and every kind of follow has a name.
func TestEveryReasonIsUsed(t *testing.T) {
	for k := graph.None; k <= graph.Excluded; k++ {
		if (graphservice.FollowKinds[k] == skeinv1.FollowKind_FOLLOW_KIND_NONE) != (k == graph.None) {
			t.Errorf("kind %d has no name", k)
		}
	}
	for st := store.Starting; st <= store.Stopped; st++ {
		if adminservice.ProjectionStates[st] == skeinv1.ProjectionState_PROJECTION_STATE_UNSPECIFIED {
			t.Errorf("state %v has no name", st)
		}
	}
}
