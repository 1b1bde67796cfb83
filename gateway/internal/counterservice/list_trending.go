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

// TrendingList is the kind of list in the page tokens of ListTrending. It never changes, and no
// other list has it.
const TrendingList = 0xfb

// ValidateListTrending checks the ids of the scope.
func ValidateListTrending(c *request.Checker, req *skeinv1.ListTrendingRequest) {
	switch t := req.GetScope().(type) {
	case *skeinv1.ListTrendingRequest_OwnerId:
		c.RequireID("owner_id", t.OwnerId)
	case *skeinv1.ListTrendingRequest_Board:
		c.RequireBoard("board", t.Board)
	}
}

// scopeOf returns whose items a request asks for: those of an owner, those of a board, or all. It
// returns them as the scope of the query, and as the id that the page tokens of the list have.
func scopeOf(req *skeinv1.ListTrendingRequest) (counters.Scope, pagetoken.ListID) {
	switch t := req.GetScope().(type) {
	case *skeinv1.ListTrendingRequest_OwnerId:
		return counters.Scope{Owner: t.OwnerId}, pagetoken.NewListID(TrendingList, t.OwnerId)
	case *skeinv1.ListTrendingRequest_Board:
		owner := t.Board.GetOwnerId()
		board := t.Board.GetBoardId()
		return counters.Scope{Owner: owner, Board: &board}, pagetoken.NewListID(TrendingList, owner, board)
	}
	return counters.Scope{}, pagetoken.NewListID(TrendingList)
}

// ListTrending returns a page of items by heat, the hottest first.
func (s *Service) ListTrending(
	ctx context.Context, req *skeinv1.ListTrendingRequest, info *call.Info,
) (*skeinv1.ListTrendingResponse, error) {
	scope, id := scopeOf(req)
	start, err := s.StartPage(req, id)
	if err != nil {
		return nil, err
	}
	r, err := s.OpenCounters(ctx, info, start.AtLeast, start.Token)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if err := info.ReserveLongPage(ctx, start.Size); err != nil {
		return nil, err
	}
	var items []counters.TrendingItem
	var next counters.PageCursor
	err = views.RunUntilResolved(ctx, func() (err error) {
		items, next, err = r.Trending(ctx, scope, counters.PageCursor(start.Cursor), start.Size)
		return err
	}, &r.StoreView)
	if err != nil {
		return nil, start.Token.TokenError(err)
	}
	s.metrics.TrendingRows.Observe(float64(r.RowsRead()))

	trending := make([]skeinv1.TrendingItem, len(items)) // one allocation for all items
	res := &skeinv1.ListTrendingResponse{Items: make([]*skeinv1.TrendingItem, len(items)), Position: r.Position}
	for i, item := range items {
		trending[i].ItemId = item.Item
		trending[i].Score = item.Score
		res.Items[i] = &trending[i]
	}
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: views.NextPagePosition(&r.StoreView), Cursor: next})
	}
	return res, nil
}
