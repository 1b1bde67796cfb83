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
	// fields are the fields of the request that are not valid.
	fields []*errdetails.BadRequest_FieldViolation
	// retry says that the error has a time after which to call again.
	retry bool
	info  *errdetails.ErrorInfo
}

func detailsOf(t testing.TB, err error) (d details) {
	t.Helper()
	var connectErr *connect.Error
	if !errors.As(err, &connectErr) {
		t.Fatalf("got %v, want an error of the service", err)
	}
	d.code = connectErr.Code()
	for _, detail := range connectErr.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch v := value.(type) {
		case *errdetails.ErrorInfo:
			if v.GetDomain() != "skein" {
				t.Errorf("got the domain %q, want skein", v.GetDomain())
			}
			d.reason = v.GetReason()
			d.info = v
		case *errdetails.BadRequest:
			d.fields = v.GetFieldViolations()
		case *errdetails.RetryInfo:
			d.retry = v.GetRetryDelay().AsDuration() > 0
		}
	}
	return d
}

// wantError checks the code and the reason of an error, and the first field that is not valid. An
// empty reason or field means that the error must have none.
func wantError(t testing.TB, err error, code connect.Code, reason, field string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want %v %q at %q", code, reason, field)
		return
	}
	got := detailsOf(t, err)
	gotField := ""
	if len(got.fields) > 0 {
		gotField = got.fields[0].GetField()
	}
	if got.code != code || got.reason != reason || gotField != field {
		t.Errorf("%v: got %v %q at %q, want %v %q at %q", err, got.code, got.reason, gotField, code, reason, field)
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
		got := detailsOf(t, apierror.Of(fmt.Errorf("wrapped: %w", c.err)).ConnectError())
		if got.code != c.code || got.reason != c.reason || got.retry != c.retry {
			t.Errorf("%v: got %v %q, retry %v; want %v %q, retry %v", c.err, got.code, got.reason, got.retry, c.code, c.reason, c.retry)
		}
	}
}

// TestInternalErrorsAreNotShown checks that a client does not get the text of an internal error,
// which may have ids of users or keys of rows.
func TestInternalErrorsAreNotShown(t *testing.T) {
	err := apierror.Of(errors.New("key 0a0b of user ann")).ConnectError()
	const want = "internal error: the log of the service says more"
	if got := err.Message(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEveryFollowKindAndStoreStateHasAName checks that the tables that translate kinds of follows
// and states of stores to the API have all of them.
func TestEveryFollowKindAndStoreStateHasAName(t *testing.T) {
	for k := graph.None; k <= graph.Excluded; k++ {
		isNone := graphservice.FollowKinds[k] == skeinv1.FollowKind_FOLLOW_KIND_NONE
		if isNone != (k == graph.None) {
			t.Errorf("kind %d: got %v, want NONE only for no follow", k, graphservice.FollowKinds[k])
		}
	}
	for st := store.Starting; st <= store.Stopped; st++ {
		if adminservice.ProjectionStates[st] == skeinv1.ProjectionState_PROJECTION_STATE_UNSPECIFIED {
			t.Errorf("state %v: got UNSPECIFIED, want a state of the API", st)
		}
	}
}
