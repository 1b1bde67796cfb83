package apierror

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// OfPeer turns the error of a call to another node into the Failure that the node has returned. A
// Failure without a reason did not come from a node, or is an internal error of the node.
func OfPeer(err error) error {
	c, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	f := &Failure{Code: c.Code(), Text: c.Message(), Cause: err}
	for _, d := range c.Details() {
		detail, err := d.Value()
		if err != nil {
			continue // a kind of detail that a later version has added
		}
		switch m := detail.(type) {
		case *errdetails.ErrorInfo:
			f.Reason = reasonByName(m.GetReason())
			f.Metadata = m.GetMetadata()
		case *errdetails.RetryInfo:
			f.Retry = m.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range m.GetFieldViolations() {
				f.Fields = append(f.Fields, Violation{
					Field: v.GetField(), Text: v.GetDescription(), Reason: reasonByName(v.GetReason()),
				})
			}
		}
	}
	return f
}

// reasonByName is the reverse of [ReasonName]. For an unknown name it returns the unspecified
// reason.
func reasonByName(name string) skeinv1.Reason {
	return skeinv1.Reason(skeinv1.Reason_value["REASON_"+name])
}
