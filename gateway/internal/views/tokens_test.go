package views

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Errors of the inbox that are not the fault of the client are not reported as an invalid token.
func TestOnlyTokenErrorsBlameTheToken(t *testing.T) {
	d := Demand{Field: "page_token", Reason: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN}
	for err, reason := range map[error]skeinv1.Reason{
		inbox.ErrPageCursor: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN, inbox.ErrExpired: skeinv1.Reason_REASON_EXPIRED_PAGE_TOKEN,
		errors.New("a row that cannot be"): skeinv1.Reason_REASON_UNSPECIFIED,
	} {
		if got := apierror.Of(d.TokenError(err)).Reason; got != reason {
			t.Errorf("%v: got the reason %s, expected %s", err, got, reason)
		}
	}
}
