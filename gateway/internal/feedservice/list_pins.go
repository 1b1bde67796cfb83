package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateListPins looks at the owner or board.
func ValidateListPins(c *request.Checker, req *skeinv1.ListPinsRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ListPinsRequest_Board); ok {
		c.Board("board", t.Board)
		return
	}
	c.ID("owner_id", req.GetOwnerId())
}

// ListPins returns a page of the pins of an owner or board.
func (s *Service) ListPins(
	ctx context.Context, req *skeinv1.ListPinsRequest, x *call.Info,
) (*skeinv1.ListPinsResponse, error) {
	owner, id := req.GetOwnerId(), pagetoken.NewListID(pinsList, req.GetOwnerId())
	var board *string
	if b := req.GetBoard(); b != nil {
		owner, board = b.GetOwnerId(), &b.BoardId
		id = pagetoken.NewListID(pinsList, owner, *board)
	}
	cursor, since, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenFeed(ctx, x, least, since)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := x.MakeLong(ctx, call.PageSize(req.GetPageSize())); err != nil {
		return nil, err
	}
	pins, next, err := r.Pins(ctx, owner, board, inbox.PageCursor(cursor), call.PageSize(req.GetPageSize()))
	if err != nil {
		return nil, since.TokenError(err)
	}
	res := &skeinv1.ListPinsResponse{Entries: feedEntries(pins), Position: r.Position}
	total, err := r.PinCount(owner, board)
	if err != nil {
		return nil, err
	}
	res.TotalSize = call.Count(total)
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: r.At, Cursor: next})
	}
	return res, nil
}
