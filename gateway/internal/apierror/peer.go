package apierror

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// OfPeer returns the error of another node as that node meant it. One without a reason did not come from a node, or says that it has
// an internal error.
func OfPeer(err error) error {
	c, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	f := &Failure{Code: c.Code(), Text: c.Message(), Cause: err}
	for _, d := range c.Details() {
		detail, err := d.Value()
		if err != nil {
			continue // of a later version
		}
		switch m := detail.(type) {
		case *errdetails.ErrorInfo:
			f.Reason, f.Metadata = skeinv1.Reason(skeinv1.Reason_value["REASON_"+m.GetReason()]), m.GetMetadata()
		case *errdetails.RetryInfo:
			f.Retry = m.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range m.GetFieldViolations() {
				f.Fields = append(f.Fields, Violation{
					Field: v.GetField(), Text: v.GetDescription(), Reason: skeinv1.Reason(skeinv1.Reason_value["REASON_"+v.GetReason()]),
				})
			}
		}
	}
	return f
}
