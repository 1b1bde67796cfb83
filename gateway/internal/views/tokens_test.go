package views

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestOnlyTokenErrorsBlameTheToken checks that errors of the inbox that are not the fault of the
// client are not reported as an invalid token.
func TestOnlyTokenErrorsBlameTheToken(t *testing.T) {
	demand := Demand{Field: "page_token", Reason: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN}
	for name, c := range map[string]struct {
		err  error
		want skeinv1.Reason
	}{
		"an invalid token": {inbox.ErrPageCursor, skeinv1.Reason_REASON_INVALID_PAGE_TOKEN},
		"an expired token": {inbox.ErrExpired, skeinv1.Reason_REASON_EXPIRED_PAGE_TOKEN},
		"a row is damaged": {errors.New("a row that cannot be"), skeinv1.Reason_REASON_UNSPECIFIED},
	} {
		t.Run(name, func(t *testing.T) {
			if got := apierror.Of(demand.TokenError(c.err)).Reason; got != c.want {
				t.Errorf("reason of TokenError(%v): got %s, want %s", c.err, got, c.want)
			}
		})
	}
}
