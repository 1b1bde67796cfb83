package seenservice

import (
	"context"
	"errors"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// hiddenList is the kind of list in the page tokens of ListHidden. It never changes, and no other
// list has it.
const hiddenList = 0xf7

// ListHidden returns a page of the items that a user hides.
func (s *Service) ListHidden(
	ctx context.Context, req *skeinv1.ListHiddenRequest, info *call.Info,
) (*skeinv1.ListHiddenResponse, error) {
	id := pagetoken.NewListID(hiddenList, req.GetUserId())
	start, err := s.StartPage(req, id)
	if err != nil {
		return nil, err
	}
	r, err := s.OpenSeen(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return nil, err
	}
	items, next, err := r.Hidden(ctx, req.GetUserId(), start.Cursor, start.Size)
	if errors.Is(err, seen.ErrHiddenCursor) {
		// The token has a valid signature, but a cursor that this projection did not make.
		return nil, start.Token.BadTokenError(pagetoken.ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	total, err := r.HiddenCount(req.GetUserId())
	if err != nil {
		return nil, err
	}

	times := call.NewTimes(len(items))
	res := &skeinv1.ListHiddenResponse{
		Entries:   make([]*skeinv1.HiddenEntry, len(items)),
		TotalSize: call.Count(total),
		Position:  r.Position,
	}
	for i, item := range items {
		res.Entries[i] = &skeinv1.HiddenEntry{ItemId: item.Item, HideTime: times.Next(item.Since)}
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: r.At, Cursor: next})
	}
	return res, nil
}
