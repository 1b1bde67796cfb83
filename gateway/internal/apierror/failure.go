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

// Failure is an error as the API returns it.
type Failure struct {
	Code   connect.Code
	Reason skeinv1.Reason
	// Text is for people. It names the limit that was exceeded, or says what to do.
	Text string
	// Fields are the invalid fields of the request.
	Fields []Violation
	// Retry is the time after which the same call may succeed. 0 means that there is no promise,
	// and the error has no RetryInfo.
	Retry time.Duration
	// Metadata is for programs. It is part of the ErrorInfo.
	Metadata map[string]string
	// Cause is the underlying error, for the log and for errors.Is. Clients do not see it.
	Cause error
}

// Violation is one invalid field.
type Violation struct {
	// Field is the path of the field in the request, such as "pairs[3].user_id".
	Field string
	// Text says what is wrong, in words that follow the path, and names the limit.
	Text   string
	Reason skeinv1.Reason
}

// Error returns the text.
func (f *Failure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// ReasonName returns a reason as the ErrorInfo has it, such as "INVALID_FIELD".
func ReasonName(r skeinv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// ConnectError returns the failure as an error of Connect, with its details.
func (f *Failure) ConnectError() *connect.Error {
	err := connect.NewError(f.Code, f)
	// A detail that cannot be encoded is left out: the error without it is better than none.
	add := func(detail proto.Message) {
		d, encodeErr := connect.NewErrorDetail(detail)
		if encodeErr == nil {
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
		err.Meta().Set("WWW-Authenticate", "Bearer") // RFC 9110 requires it in an answer with status 401
	}
	return err
}

// How long a client should wait before it makes the same call again.
const (
	RetryAtOnce = 50 * time.Millisecond
	RetrySoon   = time.Second
	RetryLater  = 30 * time.Second
)

// MaxViolations is how many fields one error names at most.
const MaxViolations = 25

// Invalid returns the error of a request with invalid fields, of which there must be at least one.
// The text and the reason are those of the first field.
func Invalid(fields ...Violation) *Failure {
	first := fields[0]
	more := len(fields) - 1
	text := first.Field + " " + first.Text
	switch {
	case len(fields) == MaxViolations:
		// The check may have stopped here, because one error names no more fields.
		text = fmt.Sprintf("%s (and at least %d more)", text, more)
	case more > 0:
		text = fmt.Sprintf("%s (and %d more)", text, more)
	}
	if len(fields) > MaxViolations {
		fields = fields[:MaxViolations]
	}
	return &Failure{Code: connect.CodeInvalidArgument, Reason: first.Reason, Text: text, Fields: fields}
}

// InvalidField returns a violation with the general reason INVALID_FIELD. The formatted text
// follows the path of the field in the error.
func InvalidField(field, format string, args ...any) Violation {
	return Violation{Field: field, Text: fmt.Sprintf(format, args...), Reason: skeinv1.Reason_REASON_INVALID_FIELD}
}
