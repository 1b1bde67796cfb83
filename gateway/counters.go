package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countersReading is the counters at one position.
type countersReading struct {
	*counters.Queries
	opened
}

// openCounters returns the counters at a position that contains all that is demanded.
func (s *Server) openCounters(ctx context.Context, x *extra, demands ...demand) (*countersReading, error) {
	o, err := s.openStore(ctx, s.counters, &s.countersState.names, x, demands)
	if err != nil {
		return nil, err
	}
	return &countersReading{Queries: counters.Query(o.view), opened: o}, nil
}

// checkBatchGetCounters says by hand what the rules of the proto say, because this call is hot.
func checkBatchGetCounters(req *skeinv1.BatchGetCountersRequest) []apierror.Violation {
	var c request.Checker
	c.Length("keys", len(req.GetKeys()), 1)
	c.AtLeast(req.GetAtLeast())
	if len(c.Found) > 0 {
		return c.Found
	}
	for i, k := range req.GetKeys() {
		switch t := k.GetTarget().(type) {
		case *skeinv1.CounterKey_UserId:
			c.IDAt("keys", i, ".user_id", t.UserId)
		case *skeinv1.CounterKey_Board:
			c.BoardAt("keys", i, ".board", t.Board)
		case *skeinv1.CounterKey_ItemId:
			c.IDAt("keys", i, ".item_id", t.ItemId)
		default:
			c.FoundAt("keys", i, ".target", "must be given: user_id, board or item_id")
		}
	}
	return c.Found
}

func (s *Server) batchGetCounters(
	ctx context.Context, req *skeinv1.BatchGetCountersRequest, x *extra,
) (*skeinv1.BatchGetCountersResponse, error) {
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openCounters(ctx, x, least)
	if err != nil {
		return nil, err
	}
	defer r.close()
	made := make([]skeinv1.Counters, len(req.GetKeys()))
	res := &skeinv1.BatchGetCountersResponse{Counters: make([]*skeinv1.Counters, len(made)), Position: r.position}
	for i, key := range req.GetKeys() {
		if err := poll(ctx, i); err != nil {
			return nil, err
		}
		res.Counters[i] = &made[i]
		if err := r.count(key, &made[i]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// count fills in what applies to a key.
func (r *countersReading) count(key *skeinv1.CounterKey, to *skeinv1.Counters) error {
	switch t := key.GetTarget().(type) {
	case *skeinv1.CounterKey_UserId:
		c, err := r.User(t.UserId)
		if err != nil {
			return err
		}
		to.PinCount, to.BoardCount, to.PlayCount = count32(c.Pins), count32(c.Boards), c.Plays
		to.FollowerCount = count32(c.Followers + c.FollowersImplicit)
	case *skeinv1.CounterKey_Board:
		c, err := r.Board(t.Board.GetOwnerId(), t.Board.GetBoardId())
		if err != nil {
			return err
		}
		to.PinCount, to.FollowerCount = count32(c.Pins), count32(c.Appears)
	case *skeinv1.CounterKey_ItemId:
		c, err := r.Item(t.ItemId)
		if err != nil {
			return err
		}
		to.PlayCount, to.LikeCount, to.RepinCount = c.Plays, count32(c.Likes), count32(c.Repins)
	}
	return nil
}

func checkListTrending(c *request.Checker, req *skeinv1.ListTrendingRequest) {
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
		return counters.Scope{Owner: t.OwnerId}, pagetoken.NewListID(hotList, t.OwnerId)
	case *skeinv1.ListTrendingRequest_Board:
		owner, board := t.Board.GetOwnerId(), t.Board.GetBoardId()
		return counters.Scope{Owner: owner, Board: &board}, pagetoken.NewListID(hotList, owner, board)
	}
	return counters.Scope{}, pagetoken.NewListID(hotList)
}

func (s *Server) listTrending(
	ctx context.Context, req *skeinv1.ListTrendingRequest, x *extra,
) (*skeinv1.ListTrendingResponse, error) {
	scope, id := scopeOf(req)
	mark, since, err := s.resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openCounters(ctx, x, least, since)
	if err != nil {
		return nil, err
	}
	defer r.close()
	items, next, err := r.Hot(ctx, scope, counters.Mark(mark), pageSize(req.GetPageSize()))
	if err != nil {
		return nil, since.outOf(err)
	}
	s.metrics.hotRows.Observe(float64(r.RowsRead()))
	made := make([]skeinv1.TrendingItem, len(items))
	res := &skeinv1.ListTrendingResponse{Items: make([]*skeinv1.TrendingItem, len(items)), Position: r.position}
	for i, item := range items {
		made[i].ItemId, made[i].Score = item.Item, item.Score
		res.Items[i] = &made[i]
	}
	if next != nil {
		res.NextPageToken = s.keys.Sign(pagetoken.Token{List: id, Position: r.at, Cursor: next})
	}
	return res, nil
}
