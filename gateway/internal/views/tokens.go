package views

import (
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Resume reads a token of the list: where to continue, and the position that the answer must contain. The empty token is
// the start of the list.
func (s *Views) Resume(token, field string, id pagetoken.ListID) (cursor []byte, d Demand, err error) {
	d = Demand{Field: field, Reason: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN}
	if token == "" {
		return nil, d, nil
	}
	t, err := s.Keys.Verify(token, id)
	if err != nil {
		return nil, d, d.BadToken(err)
	}
	d.Position = t.Position
	return t.Cursor, d, nil
}

// BadToken refuses a token, and says which one is wanted.
func (d Demand) BadToken(cause error) error {
	want := "the next_page_token of the page before"
	if d.Field == "newer_than" {
		want = "the newest_token of an earlier page"
	}
	return d.Refused(fmt.Sprintf("%s: send %s exactly as it came, with the same parameters, or nothing to begin again", cause, want), cause)
}

// TokenError says what is wrong with a token that was good for the key ring and not for the projection.
func (d Demand) TokenError(err error) error {
	switch {
	case errors.Is(err, inbox.ErrExpired):
		return d.sessionOverError("a feed", inbox.SessionLifetime, err)
	case errors.Is(err, counters.ErrExpired):
		return d.sessionOverError("a list", counters.SessionLifetime, err)
	case errors.Is(err, inbox.ErrPageCursor), errors.Is(err, counters.ErrPageCursor):
		return d.BadToken(pagetoken.ErrOtherList)
	}
	return err
}

// over refuses the token of a session by heat that lasted too long.
func (d Demand) sessionOverError(what string, life events.Micros, err error) error {
	d.Reason = skeinv1.Reason_REASON_EXPIRED_PAGE_TOKEN
	hours := (time.Duration(life) * time.Microsecond).Hours()
	return d.Refused(fmt.Sprintf("is of a session that is over: %s by heat can be continued for %.4g h of log time; "+
		"begin again without it", what, hours), err)
}
