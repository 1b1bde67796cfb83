package gateway

import (
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Domain is the domain of every google.rpc.ErrorInfo.
const Domain = "skein"

// failure is an error as the API tells it.
type failure struct {
	code   connect.Code
	reason skeinv1.Reason
	// text is for people. It names the limit that was passed or what to do.
	text string
	// fields are the fields at fault.
	fields []violation
	// retry is after how long the same call may succeed; 0: no promise, and no RetryInfo.
	retry time.Duration
	// metadata is for programs, in the ErrorInfo.
	metadata map[string]string
	// cause is what stands behind it, for the log and for errors.Is; clients do not see it.
	cause error
}

// violation is one field at fault.
type violation struct {
	// field is the path from the request: "pairs[3].user_id".
	field string
	// text says what is wrong, naming the limit.
	text   string
	reason skeinv1.Reason
}

// Error returns the text.
func (f *failure) Error() string { return f.text }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.cause }

// reasonName is the reason as it stands in the ErrorInfo.
func reasonName(r skeinv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// connectError encodes the failure with its details.
func (f *failure) connectError() *connect.Error {
	err := connect.NewError(f.code, f)
	add := func(detail proto.Message) {
		if d, derr := connect.NewErrorDetail(detail); derr == nil {
			err.AddDetail(d)
		}
	}
	if f.reason != skeinv1.Reason_REASON_UNSPECIFIED {
		add(&errdetails.ErrorInfo{Domain: Domain, Reason: reasonName(f.reason), Metadata: f.metadata})
	}
	if len(f.fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range f.fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: v.field, Description: v.text, Reason: reasonName(v.reason),
			})
		}
		add(bad)
	}
	if f.retry > 0 {
		add(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.retry)})
	}
	if f.code == connect.CodeUnauthenticated {
		err.Meta().Set("WWW-Authenticate", "Bearer") // as RFC 9110 demands it of a 401
	}
	return err
}

// How long a client should wait before the same call may succeed.
const (
	retryAtOnce = 50 * time.Millisecond
	retrySoon   = time.Second
	retryLater  = 30 * time.Second
)

// maxViolations bounds the fields that one error names.
const maxViolations = 25

// invalid refuses a request for its fields. The text is that of the first one. There must be one.
func invalid(fields ...violation) *failure {
	first, more := fields[0], len(fields)-1
	text := first.field + " " + first.text
	switch {
	case len(fields) == maxViolations: // perhaps no more were looked for
		text = fmt.Sprintf("%s (and at least %d more)", text, more)
	case more > 0:
		text = fmt.Sprintf("%s (and %d more)", text, more)
	}
	if len(fields) > maxViolations {
		fields = fields[:maxViolations]
	}
	return &failure{code: connect.CodeInvalidArgument, reason: first.reason, text: text, fields: fields}
}

// invalidField is a violation without a reason of its own.
func invalidField(field, format string, args ...any) violation {
	return violation{field: field, text: fmt.Sprintf(format, args...), reason: skeinv1.Reason_REASON_INVALID_FIELD}
}
