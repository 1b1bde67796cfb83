package apierror

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

// Failure is an error as the API tells it.
type Failure struct {
	Code   connect.Code
	Reason skeinv1.Reason
	// Text is for people. It names the limit that was passed or what to do.
	Text string
	// Fields are the fields at fault.
	Fields []Violation
	// Retry is after how long the same call may succeed; 0 means no promise, and no RetryInfo.
	Retry time.Duration
	// Metadata is for programs, in the ErrorInfo.
	Metadata map[string]string
	// Cause is what stands behind it, for the log and for errors.Is; clients do not see it.
	Cause error
}

// Violation is one field at fault.
type Violation struct {
	// Field is the path from the request: "pairs[3].user_id".
	Field string
	// Text says what is wrong, naming the limit.
	Text   string
	Reason skeinv1.Reason
}

// Error returns the text.
func (f *Failure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// ReasonName is the reason as it stands in the ErrorInfo.
func ReasonName(r skeinv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// ConnectError encodes the failure with its details.
func (f *Failure) ConnectError() *connect.Error {
	err := connect.NewError(f.Code, f)
	add := func(detail proto.Message) {
		if d, derr := connect.NewErrorDetail(detail); derr == nil {
			err.AddDetail(d)
		}
	}
	if f.Reason != skeinv1.Reason_REASON_UNSPECIFIED {
		add(&errdetails.ErrorInfo{Domain: Domain, Reason: ReasonName(f.Reason), Metadata: f.Metadata})
	}
	if len(f.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range f.Fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: v.Field, Description: v.Text, Reason: ReasonName(v.Reason),
			})
		}
		add(bad)
	}
	if f.Retry > 0 {
		add(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.Retry)})
	}
	if f.Code == connect.CodeUnauthenticated {
		err.Meta().Set("WWW-Authenticate", "Bearer") // as RFC 9110 demands it of a 401
	}
	return err
}

// How long a client should wait before the same call may succeed.
const (
	RetryAtOnce = 50 * time.Millisecond
	RetrySoon   = time.Second
	RetryLater  = 30 * time.Second
)

// MaxViolations bounds the fields that one error names.
const MaxViolations = 25

// Invalid refuses a request for its fields. The text is that of the first one. There must be one.
func Invalid(fields ...Violation) *Failure {
	first, more := fields[0], len(fields)-1
	text := first.Field + " " + first.Text
	switch {
	case len(fields) == MaxViolations: // perhaps no more were looked for
		text = fmt.Sprintf("%s (and at least %d more)", text, more)
	case more > 0:
		text = fmt.Sprintf("%s (and %d more)", text, more)
	}
	if len(fields) > MaxViolations {
		fields = fields[:MaxViolations]
	}
	return &Failure{Code: connect.CodeInvalidArgument, Reason: first.Reason, Text: text, Fields: fields}
}

// InvalidField is a violation without a reason of its own.
func InvalidField(field, format string, args ...any) Violation {
	return Violation{Field: field, Text: fmt.Sprintf(format, args...), Reason: skeinv1.Reason_REASON_INVALID_FIELD}
}
