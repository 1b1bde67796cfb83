package counterservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TrendingList is the kind of the lists by heat in their page tokens.
const TrendingList = 0xfb

// ValidateListTrending looks at the ids of the scope.
func ValidateListTrending(c *request.Checker, req *skeinv1.ListTrendingRequest) {
	switch t := req.GetScope().(type) {
	case *skeinv1.ListTrendingRequest_OwnerId:
		c.ID("owner_id", t.OwnerId)
	case *skeinv1.ListTrendingRequest_Board:
		c.Board("board", t.Board)
	}
}

// scopeOf names the items that a list by heat is of, for the query and for tokens.
func scopeOf(req *skeinv1.ListTrendingRequest) (counters.Scope, pagetoken.ListID) {
	switch t := req.GetScope().(type) {
	case *skeinv1.ListTrendingRequest_OwnerId:
		return counters.Scope{Owner: t.OwnerId}, pagetoken.NewListID(TrendingList, t.OwnerId)
	case *skeinv1.ListTrendingRequest_Board:
		owner, board := t.Board.GetOwnerId(), t.Board.GetBoardId()
		return counters.Scope{Owner: owner, Board: &board}, pagetoken.NewListID(TrendingList, owner, board)
	}
	return counters.Scope{}, pagetoken.NewListID(TrendingList)
}

// ListTrending returns a page of items by heat.
func (s *Service) ListTrending(
	ctx context.Context, req *skeinv1.ListTrendingRequest, x *call.Info,
) (*skeinv1.ListTrendingResponse, error) {
	scope, id := scopeOf(req)
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
	if err := x.MakeLong(ctx, call.PageSize(req.GetPageSize())); err != nil {
		return nil, err
	}
	var items []counters.TrendingItem
	var next counters.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		items, next, err = r.Trending(ctx, scope, counters.PageCursor(cursor), call.PageSize(req.GetPageSize()))
		return err
	}, &r.StoreView)
	if err != nil {
		return nil, since.TokenError(err)
	}
	s.metrics.TrendingRows.Observe(float64(r.RowsRead()))
	made := make([]skeinv1.TrendingItem, len(items))
	res := &skeinv1.ListTrendingResponse{Items: make([]*skeinv1.TrendingItem, len(items)), Position: r.Position}
	for i, item := range items {
		made[i].ItemId, made[i].Score = item.Item, item.Score
		res.Items[i] = &made[i]
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: r.Newest(), Cursor: next})
	}
	return res, nil
}
