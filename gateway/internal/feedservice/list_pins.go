package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateListPins checks the owner or board.
func ValidateListPins(c *request.Checker, req *skeinv1.ListPinsRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ListPinsRequest_Board); ok {
		c.RequireBoard("board", t.Board)
		return
	}
	c.RequireID("owner_id", req.GetOwnerId())
}

// ListPins returns a page of the pins of an owner or board.
func (s *Service) ListPins(
	ctx context.Context, req *skeinv1.ListPinsRequest, info *call.Info,
) (*skeinv1.ListPinsResponse, error) {
	owner := req.GetOwnerId()
	id := pagetoken.NewListID(pinsList, owner)
	var board *string // nil means all boards of the owner; a pointer to "" means the default board
	if b := req.GetBoard(); b != nil {
		owner = b.GetOwnerId()
		board = &b.BoardId
		id = pagetoken.NewListID(pinsList, owner, *board)
	}
	start, err := s.StartPage(req, id)
	if err != nil {
		return nil, err
	}
	r, err := s.OpenInbox(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return nil, err
	}
	pins, next, err := r.Pins(ctx, owner, board, inbox.PageCursor(start.Cursor), start.Size)
	if err != nil {
		return nil, start.Token.TokenError(err)
	}
	total, err := r.PinCount(owner, board)
	if err != nil {
		return nil, err
	}

	res := &skeinv1.ListPinsResponse{Entries: feedEntries(pins), TotalSize: call.Count(total), Position: r.Position}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: r.At, Cursor: next})
	}
	return res, nil
}
