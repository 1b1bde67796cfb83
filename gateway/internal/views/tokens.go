package views

import (
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/notifications"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Resume verifies a page token of the list, which came in the given field. It returns the cursor at
// which the list continues, and the demand for the position that the answer must contain. An empty
// token means the start of the list: the cursor is nil, and nothing is demanded.
func (s *Views) Resume(token, field string, id pagetoken.ListID) (cursor []byte, d Demand, err error) {
	d = Demand{Field: field, Reason: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN}
	if token == "" {
		return nil, d, nil
	}
	t, err := s.Keys.Verify(token, id)
	if err != nil {
		return nil, d, d.BadTokenError(err)
	}
	d.Position = t.Position
	return t.Cursor, d, nil
}

// ListRequest has what the requests for pages of lists have in common.
type ListRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetAtLeast() string
}

// PageStart is where a page of a list begins.
type PageStart struct {
	// Cursor is where the page before it ended. It is nil for the first page.
	Cursor []byte
	// Size is how many entries the page may have.
	Size int
	// AtLeast and Token are what the page must contain: the position in at_least, and that of the
	// page that returned the token.
	AtLeast, Token Demand
}

// StartPage reads the fields of a request for a page of the list.
func (s *Views) StartPage(req ListRequest, id pagetoken.ListID) (start PageStart, err error) {
	start.Size = call.PageSize(req.GetPageSize())
	start.Cursor, start.Token, err = s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return start, err
	}
	start.AtLeast, err = DemandOf(req.GetAtLeast())
	return start, err
}

// BadTokenError returns the error of an invalid token. It says which token the client should send.
func (d Demand) BadTokenError(cause error) error {
	valid := "the next_page_token of the page before"
	if d.Field == "newer_than" {
		valid = "the newest_token of an earlier page"
	}
	return d.InvalidError(fmt.Sprintf("%s: send %s exactly as it came, with the same parameters, or nothing to begin again", cause, valid), cause)
}

// TokenError turns the error by which a projection refuses a cursor into one about the token of the
// demand. The token has a valid signature. It returns other errors unchanged.
func (d Demand) TokenError(err error) error {
	switch {
	case errors.Is(err, inbox.ErrExpired):
		return d.sessionOverError("a feed", inbox.SessionLifetime, err)
	case errors.Is(err, counters.ErrExpired):
		return d.sessionOverError("a list", counters.SessionLifetime, err)
	case errors.Is(err, inbox.ErrPageCursor), errors.Is(err, counters.ErrPageCursor), errors.Is(err, notifications.ErrPageCursor):
		return d.BadTokenError(pagetoken.ErrOtherList)
	}
	return err
}

// sessionOverError returns the error of the token of a session by heat that is older than lifetime.
// what is "a feed" or "a list".
func (d Demand) sessionOverError(what string, lifetime events.Micros, err error) error {
	d.Reason = skeinv1.Reason_REASON_EXPIRED_PAGE_TOKEN
	hours := (time.Duration(lifetime) * time.Microsecond).Hours()
	return d.InvalidError(fmt.Sprintf("is of a session that is over: %s by heat can be continued for %.4g h of log time; "+
		"begin again without it", what, hours), err)
}
