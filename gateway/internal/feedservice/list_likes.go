package feedservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ListLikes returns a page of what a user likes.
func (s *Service) ListLikes(ctx context.Context, req *skeinv1.ListLikesRequest, x *call.Info) (*skeinv1.ListLikesResponse, error) {
	id := pagetoken.NewListID(likesList, req.GetUserId())
	cursor, since, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, x, least, since)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	size := call.PageSize(req.GetPageSize())
	if err := x.MakeLong(ctx, size); err != nil {
		return nil, err
	}
	var items []counters.LikedItem
	var next counters.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		items, next, err = r.Liked(ctx, req.GetUserId(), counters.PageCursor(cursor), size)
		return err
	}, &r.StoreView)
	if err != nil {
		return nil, since.TokenError(err)
	}
	made, times := make([]skeinv1.LikeEntry, len(items)), call.NewTimes(len(items))
	res := &skeinv1.ListLikesResponse{Entries: make([]*skeinv1.LikeEntry, len(items)), Position: r.Position}
	for i, item := range items {
		made[i].ItemId, made[i].LikeTime = item.Item, times.Of(item.Since)
		res.Entries[i] = &made[i]
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: r.Newest(), Cursor: next})
	}
	return res, nil
}
